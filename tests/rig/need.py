"""Tests that need something of the machine: skip loudly, or fail where nothing may be skipped.

``need("sshd")`` gives the program's path. Without it the test is skipped with the command
that would install it; with GPUMON_NO_SKIP=1, as in CI, the test fails instead.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess

import pytest

__all__ = ["find", "need", "netns_trouble"]

#: What is needed -> how to get it (Debian's and PyPI's names).
_HOW = {
    "sshd": "apt-get install openssh-server",
    "ssh": "apt-get install openssh-client",
    "ssh-keygen": "apt-get install openssh-client",
    "ip": "apt-get install iproute2",
    "tc": "apt-get install iproute2",
    "iptables": "apt-get install iptables",
    "unshare": "apt-get install util-linux",
    "nsenter": "apt-get install util-linux",
    "cc": "apt-get install gcc libc6-dev",
    "nm": "apt-get install binutils",
    "tmux": "apt-get install tmux",
    "bash": "apt-get install bash",
    "netns": "run as root with CAP_SYS_ADMIN and CAP_NET_ADMIN, iproute2 and util-linux",
    "root": "run as root",
    "xllamacpp": "pip install -e '.[test]' (Linux on x86-64 only)",
    "gguf": "pip install -e '.[test]'",
}
_MODULES = ("xllamacpp", "gguf", "numpy", "pyte")
#: A user's PATH seldom holds these.
_SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"


def find(program: str) -> str | None:
    """The program's path, also in the system's folders; None where it is missing."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_SYSTEM_FOLDERS}")


def netns_trouble() -> str | None:
    """Why no host with namespaces of its own can be made here; None where one can.

    GPUMON_RIG_NETNS=0 says that none is wanted.
    """
    if os.environ.get("GPUMON_RIG_NETNS") == "0":
        return "GPUMON_RIG_NETNS=0"
    return _try_netns()


@functools.cache
def _try_netns() -> str | None:
    if os.geteuid() != 0:
        return "not root"
    for program in ("ip", "unshare", "nsenter", "setpriv"):
        if find(program) is None:
            return f"no {program}"
    name = f"gpumon-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True, text=True)
    if made.returncode != 0:
        return made.stderr.strip() or "ip netns add failed"
    try:
        tried = subprocess.run(
            ["ip", "netns", "exec", name, "unshare", "-pf", "--mount-proc", "true"],
            check=False,
            capture_output=True,
            text=True,
        )
        return None if tried.returncode == 0 else tried.stderr.strip() or "unshare failed"
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


def _look(what: str) -> tuple[str | None, str]:
    """(what was found, what to say where it was not)."""
    if what == "root":
        return ("root" if os.geteuid() == 0 else None), "this test must be run by root"
    if what == "netns":
        trouble = netns_trouble()
        return (None if trouble else "netns"), f"no network namespaces: {trouble}"
    if what in _MODULES:
        found = importlib.util.find_spec(what)
        return (found.origin if found else None), f"the Python package {what} is not installed"
    return find(what), f"{what} is not on this machine"


def need(*wanted: str) -> str:
    """The path of the last one; skips the test where one is missing, or fails it."""
    found = ""
    for what in wanted:
        place, message = _look(what)
        if place is None:
            how = _HOW.get(what)
            text = f"{message}; to run this test: {how}" if how else message
            if os.environ.get("GPUMON_NO_SKIP") == "1":
                pytest.fail(text)
            pytest.skip(text)
        found = place
    return found
