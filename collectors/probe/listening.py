"""Which TCP ports a process listens on.

/proc/PID/net/tcp is world-readable and shows the process's own network namespace; whose
socket it is stands in /proc/PID/fd, which only the same user and root may read.
Runs on the host under Python 3.6 or newer, standard library only.
"""

import os

#: The kernel lists listening sockets first (tcp_seq_start in net/ipv4/tcp_ipv4.c), so
#: reading stops at the first other one: a busy server has ten thousands of those.
_LISTEN = "0A"
_CHUNK = 16384
_MOST_BYTES = 1 << 20
_MOST_FILES = 4096


def listening_sockets(path):
    """{inode: port} of a /proc/.../net/tcp or tcp6 file; empty where unreadable."""
    found = {}
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return found
    try:
        rest = b""
        total = 0
        first = True
        while total < _MOST_BYTES:
            chunk = os.read(descriptor, _CHUNK)
            total += len(chunk)
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            for line in lines:
                if first:
                    first = False  # the heading
                    continue
                if not _take(line.decode("ascii", "replace"), found):
                    return found
            if not chunk:
                break
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return found


def _take(line, found):
    """Note a line's socket; False when it is no listening one."""
    parts = line.split()
    if len(parts) < 10:
        return True
    if parts[3] != _LISTEN:
        return False
    try:
        found[parts[9]] = int(parts[1].rpartition(":")[2], 16)
    except ValueError:
        pass
    return True


def listening_ports(directory):
    """Sorted ports of the process whose /proc directory this is; None where unreadable."""
    try:
        names = os.listdir(os.path.join(directory, "fd"))
    except OSError:
        return None
    inodes = set()
    for name in names[:_MOST_FILES]:
        try:
            target = os.readlink(os.path.join(directory, "fd", name))
        except OSError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    if not inodes:
        return []
    ports = set()
    for name in ("tcp", "tcp6"):
        sockets = listening_sockets(os.path.join(directory, "net", name))
        ports.update(port for inode, port in sockets.items() if inode in inodes)
    return sorted(ports)
