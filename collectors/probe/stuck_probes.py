"""Probes of before that are stuck in the driver and so cannot die.

A thread within a driver call that never returns outlives even SIGKILL; the process stays
as a dead leader with a living thread. A second reader would get stuck beside it and hold
the driver up further (microsoft/pai#842, gpud#117): so such a probe is looked for first,
and while there is one the driver is left alone. Probes are known by the name that they
give themselves. Runs on the host under Python 3.6 or newer, standard library only.
"""

import os

from gpumon_probe_process_files import parse_stat
from gpumon_probe_procfs import read_text

NAME = "gpumon-probe"
_PR_SET_NAME = 15


def name_this_process():
    """Take the name; to be called in the main thread. Changes nothing but /proc's view."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_NAME, NAME.encode("ascii"), 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass  # not Linux, or a Python without ctypes: it goes without


def find_stuck_probe(proc="/proc"):
    """The pid of a probe whose leader is dead while a thread of it lives on, or None."""
    try:
        pids = [name for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return None
    for pid in pids:
        if (read_text(os.path.join(proc, pid, "comm"), 64) or "").rstrip("\n") != NAME:
            continue
        stat = parse_stat(read_text(os.path.join(proc, pid, "stat"), 4096) or "")
        if stat is not None and stat.state in "ZX" and _has_living_thread(proc, pid):
            return int(pid)
    return None


def _has_living_thread(proc, pid):
    tasks = os.path.join(proc, pid, "task")
    try:
        names = os.listdir(tasks)
    except OSError:
        return False
    for name in names:
        stat = parse_stat(read_text(os.path.join(tasks, name, "stat"), 4096) or "")
        if stat is not None and stat.state not in "ZX":
            return True
    return False
