"""Reads a process's container from its control group.

Runs on the host under Python 3.6 or newer, standard library only.
"""

import re

_ID = re.compile(r"(?:^|[/:.\-])([0-9a-f]{64})(?:\.scope|\.service|/|$)")
_LXC = re.compile(r"/lxc(?:\.payload)?[./]([^/]+)")
_NSPAWN = re.compile(r"/machine-([^/]+?)\.scope")


def group_of(text):
    """The most telling path of /proc/PID/cgroup, or None.

    The unified hierarchy's where it says something, else systemd's, else the longest.
    """
    paths = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon and number.isdigit():
            paths[controllers] = path
    for name in ("", "name=systemd"):
        if paths.get(name, "/") != "/":
            return paths[name]
    return max(paths.values(), key=len) if paths else None


def container_of(text):
    """A container's name for a person: the first 12 digits of its id, or its LXC name.

    Docker, containerd, CRI-O and podman all end the path with a 64-digit id; a systemd
    driver wraps it (``docker-ID.scope``). None outside of containers.
    """
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        found = _ID.findall(path)
        if found:
            return found[-1][:12]
        for pattern in (_LXC, _NSPAWN):
            match = pattern.search(path)
            if match:
                return match.group(1)
    return None
