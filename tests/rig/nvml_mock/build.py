"""Compiles the mock driver: one source, a library per driver generation.

``build("535_86")`` gives a folder that holds ``libnvidia-ml.so.1``; with it in
LD_LIBRARY_PATH and a scenario file named by GPUMON_FAKE_NVML, any program that loads
NVML reads the scenario. The folder is kept between runs, keyed by source and flags.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["DRIVERS", "CompilerMissing", "build", "environment"]

#: name -> value of DRIVER, major * 1000 + minor. 700 stands for CUDA 14, without old symbols.
DRIVERS = {
    "450": 450080,
    "470": 470256,
    "525": 525147,
    "535_86": 535086,
    "550": 550090,
    "610": 610057,
    "700": 700000,
}
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
LINK = ("-fvisibility=hidden", "-Wl,-soname,libnvidia-ml.so.1")
LIBRARIES = ("-lm", "-lpthread")
SOURCES = ("nvml_mock.c", "nvml_mock_more.h", "nvml_abi.h", "scenario.h")


class CompilerMissing(RuntimeError):
    """There is no C compiler."""


def _cache() -> Path:
    folder = Path(tempfile.gettempdir()) / f"gpumon-nvml-mock-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise RuntimeError(f"{folder} belongs to someone else")
    return folder


@functools.cache
def build(driver: str = "610", into: Path | None = None) -> Path:
    """A folder with the mock as that driver would export it. Raises CompilerMissing."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise CompilerMissing("no cc, gcc or clang: the mock driver can't be built")
    here = Path(__file__).parent
    define = f"-DDRIVER={DRIVERS[driver]}"
    digest = hashlib.sha256(" ".join((compiler, define, *FLAGS, *LINK)).encode())
    for source in SOURCES:
        digest.update((here / source).read_bytes())
    folder = into or _cache() / f"{driver}-{digest.hexdigest()[:16]}"
    library = folder / "libnvidia-ml.so.1"
    if library.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    half_done = folder / f"building.{os.getpid()}"
    command = [compiler, define, *FLAGS, *LINK, "-o", str(half_done), str(here / SOURCES[0])]
    subprocess.run([*command, *LIBRARIES], check=True)
    half_done.rename(library)
    return folder


def environment(scenario: Path, driver: str = "610") -> dict[str, str]:
    """The variables that make a process see the scenario's cards."""
    return {"LD_LIBRARY_PATH": str(build(driver)), "GPUMON_FAKE_NVML": str(scenario)}
