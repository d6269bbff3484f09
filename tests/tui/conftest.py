"""Time and terminal as every golden screen expects them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks on the screen show UTC, and no theme comes from outside."""
    for name in ("NO_COLOR", "GPUMON_THEME", "TEXTUAL_THEME", "SSH_CONNECTION", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
