"""The fleet as a fixture, started once for all tests that ask for it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.rig.fleet import RigFleet
from tests.rig.need import need

__all__ = ["rig_fleet"]


@pytest.fixture(scope="session")
def rig_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RigFleet]:
    """Every named host, running, with ``GPUMON_SSH_CONFIG`` pointing at them.

    A test that breaks a host must mend it again.
    """
    need("sshd", "ssh", "ssh-keygen", "cc", "gguf", "xllamacpp")
    with RigFleet(tmp_path_factory.mktemp("fleet")) as fleet:
        before = os.environ.get("GPUMON_SSH_CONFIG")
        os.environ.update(fleet.client.environment)
        try:
            yield fleet
        finally:
            del os.environ["GPUMON_SSH_CONFIG"]
            if before is not None:
                os.environ["GPUMON_SSH_CONFIG"] = before
