"""One process as its files in /proc show it (proc(5)).

Runs on the host under Python 3.6 or newer, standard library only.
"""

import collections
import os
import re

from gpumon_probe_procfs import read_bytes, read_text

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: More of a command line is neither matched nor sent.
MOST_COMMAND_BYTES = 16384
MOST_ENVIRONMENT_BYTES = 262144
#: The number that the kernel gives the first pid namespace (PROC_PID_INIT_INO).
_FIRST_PID_NAMESPACE = "pid:[4026531836]"

Stat = collections.namedtuple("Stat", "comm state ppid ticks start_ticks rss_bytes")


def parse_stat(text):
    """A ``Stat`` from /proc/PID/stat, or None. A comm may hold spaces and brackets."""
    opening, closing = text.find("("), text.rfind(")")
    rest = text[closing + 1 :].split()
    if opening < 0 or closing < opening or len(rest) < 22:
        return None
    try:
        return Stat(
            text[opening + 1 : closing],
            rest[0],
            int(rest[1]),
            int(rest[11]) + int(rest[12]),
            int(rest[19]),
            int(rest[21]) * PAGE_BYTES,
        )
    except ValueError:
        return None


def split_command(data):
    """argv from /proc/PID/cmdline; a process that set its title has one long argument."""
    stripped = data.rstrip(b"\0")
    if not stripped:
        return []
    return [part.decode("utf-8", "replace") for part in stripped.split(b"\0")]


class ProcessFiles(object):
    """Reads /proc/PID/*; everything is None (or empty) where it can't be read."""

    def __init__(self, proc="/proc"):
        self.proc = proc
        try:
            self.nested = os.readlink(os.path.join(proc, "self/ns/pid")) != _FIRST_PID_NAMESPACE
        except OSError:
            self.nested = False
        #: True where gpumon runs in a container that was given NVIDIA devices
        self.verify = self.nested and os.path.exists("/dev/nvidiactl")

    def path(self, pid, name=""):
        """A file of a process."""
        return os.path.join(self.proc, str(pid), name)

    def pids(self):
        """The ids of all processes that are visible."""
        try:
            return [int(name) for name in os.listdir(self.proc) if name.isdigit()]
        except OSError:
            return []

    def stat(self, pid):
        """The process's ``Stat``, or None."""
        text = read_text(self.path(pid, "stat"), 4096)
        return parse_stat(text) if text else None

    def comm(self, pid):
        """The kernel's name of the process, at most 15 characters."""
        return (read_text(self.path(pid, "comm"), 256) or "").rstrip("\n")

    def argv(self, pid):
        """The command line; [] for a kernel thread, a zombie, or where it can't be read."""
        try:
            return split_command(read_bytes(self.path(pid, "cmdline"), MOST_COMMAND_BYTES))
        except OSError:
            return []

    def uid(self, pid):
        """The effective user id, or None.

        Not the owner of /proc/PID: that is root for a process that may not be dumped.
        """
        match = re.search(
            r"^Uid:\s+\d+\s+(\d+)", read_text(self.path(pid, "status"), 8192) or "", re.M
        )
        return int(match.group(1)) if match else None

    def cgroup(self, pid):
        """The text of /proc/PID/cgroup, "" where unreadable."""
        return read_text(self.path(pid, "cgroup"), 16384) or ""

    def environment(self, pid):
        """{name: value}, or None where it can't be read (another user's process)."""
        try:
            data = read_bytes(self.path(pid, "environ"), MOST_ENVIRONMENT_BYTES)
        except OSError:
            return None
        found = {}
        for part in data.split(b"\0"):
            name, equals, value = part.decode("utf-8", "replace").partition("=")
            if equals:
                found[name] = value
        return found

    def is_foreign(self, pid):
        """True where the driver's pid means another process than the one that is here.

        Drivers that do not translate pids give the host's numbers to a container
        (nvidia-docker#179). A process without any /dev/nvidia* open uses no GPU.
        """
        if not self.verify:
            return False
        directory = self.path(pid, "fd")
        try:
            names = os.listdir(directory)
        except OSError:
            return False
        for name in names:
            try:
                if os.readlink(os.path.join(directory, name)).startswith("/dev/nvidia"):
                    return False
            except OSError:
                continue
        return True

    def why_absent(self):
        """Reason code for a pid of the driver's that is not in /proc."""
        if self.nested:
            return "not-visible"
        for line in (read_text(os.path.join(self.proc, "self/mounts")) or "").splitlines():
            parts = line.split()
            if len(parts) > 3 and parts[2] == "proc" and re.search(r"hidepid=(?!0|off)", parts[3]):
                return "hidden"
        return "unreadable"
