"""Python programs whose /proc entry reads like another program's.

A monitor finds engines by their command lines, so the rig's stand-ins must have exactly
those. The interpreter is started with arguments of the same total length as the wanted
ones, and the process then writes the wanted ones over its own (the area that
``/proc/PID/cmdline`` shows, proc(5): arg_start, arg_end). Standard library only: this runs
inside the rig's hosts.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["command", "die_with_parent", "environment", "wear"]

_WANTED = "GPUMON_RIG_ARGV"
_OWN = (_WANTED, "PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
_PR_SET_PDEATHSIG = 1
_HERE = Path(__file__).parent


def interpreter() -> str:
    """The real Python, behind a virtual environment's link."""
    return os.path.realpath(sys.executable or "/proc/self/exe")


def command(module: str, wanted: Sequence[str]) -> list[str]:
    """Arguments for ``interpreter()`` that run ``module`` and fill as many bytes as ``wanted``."""
    size = sum(len(os.fsencode(word)) + 1 for word in wanted)
    words = ["p", f"-m{module}"]
    left = size - sum(len(word) + 1 for word in words)
    if left < 1:
        raise ValueError(f"too short for a disguise: {' '.join(wanted)}")
    return [*words, "x" * (left - 1)]


def environment(wanted: Sequence[str], base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables for ``command``: the disguise, and where Python and its packages are."""
    paths = dict.fromkeys([str(_HERE), *(p for p in sys.path if p.endswith("-packages"))])
    paths[sysconfig.get_path("purelib")] = None
    return {
        **(os.environ if base is None else base),
        _WANTED: json.dumps(list(wanted)),
        "PYTHONHOME": sys.base_prefix,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def wear() -> list[str]:
    """Put the disguise on; returns the wanted arguments, or those of this process if none."""
    text = os.environ.pop(_WANTED, None)
    for name in _OWN:
        os.environ.pop(name, None)
    if text is None:
        return sys.argv
    wanted: list[str] = json.loads(text)
    data = b"".join(os.fsencode(word) + b"\0" for word in wanted)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    if end - start != len(data):
        raise RuntimeError(f"{end - start} bytes of arguments, {len(data)} wanted")
    ctypes.memmove(start, data, len(data))
    Path("/proc/self/comm").write_text(Path(wanted[0]).name)
    return wanted


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
