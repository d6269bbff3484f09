"""Numbers of the machine itself, from /proc and /sys.

Units are in the names of the fields, which are those of ``gpumon.snapshot.System``.
A value that can't be read is None and named in ``unknown``. Meanings: proc(5) and
Documentation/filesystems/proc.rst of the kernel.
Runs on the host under Python 3.6 or newer, standard library only.
"""

import os

#: No file that is read here is longer, but /proc/stat of a machine with many interrupts.
READ_LIMIT = 262144


def read_bytes(path, limit=READ_LIMIT):
    """At most ``limit`` bytes of a file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        parts = []
        left = limit
        while left > 0:
            part = os.read(descriptor, min(left, 65536))
            if not part:
                break
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def read_text(path, limit=READ_LIMIT):
    """A file's text, undecodable bytes replaced; None where it can't be read."""
    try:
        return read_bytes(path, limit).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


class KeptFile(object):
    """A /proc file kept open: reading it again costs one call instead of three."""

    def __init__(self, path):
        self.path = path
        self.descriptor = None

    def text(self):
        """The file as it is now; None where it can't be read."""
        try:
            if self.descriptor is None:
                self.descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            return os.pread(self.descriptor, READ_LIMIT, 0).decode("utf-8", "replace")
        except (OSError, ValueError):
            if self.descriptor is not None:
                os.close(self.descriptor)
                self.descriptor = None
            return None


def parse_cpu(text):
    """(busy, total) clock ticks of all CPUs since boot, or None.

    Waiting for a disk counts as idle, time taken by the hypervisor as busy; guest time
    is left out, for it is in user time already (proc(5)).
    """
    first = text.partition("\n")[0].split()
    if len(first) < 5 or first[0] != "cpu":
        return None
    try:
        ticks = [int(part) for part in first[1:9]]
    except ValueError:
        return None
    total = sum(ticks)
    idle = ticks[3] + (ticks[4] if len(ticks) > 4 else 0)
    return total - idle, total


def parse_memory(text):
    """System's memory and swap fields in bytes; absent where the file lacks them."""
    kib = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()[:1]
        if number and number[0].isdigit():
            kib[name] = int(number[0])
    found = {}
    if "MemTotal" in kib:
        found["memory_total_bytes"] = kib["MemTotal"] * 1024
    if "MemAvailable" in kib:
        found["memory_available_bytes"] = kib["MemAvailable"] * 1024
    elif "MemFree" in kib:
        # kernels before 3.14 do not say what is available: the old sum of free(1)
        parts = [kib.get(name, 0) for name in ("MemFree", "Buffers", "Cached")]
        found["memory_available_bytes"] = sum(parts) * 1024
    if "SwapTotal" in kib and "SwapFree" in kib:
        found["swap_total_bytes"] = kib["SwapTotal"] * 1024
        found["swap_used_bytes"] = max(0, kib["SwapTotal"] - kib["SwapFree"]) * 1024
    return found


def parse_network(text):
    """{interface: (received, sent)} bytes since the interface came up."""
    found = {}
    for line in text.splitlines()[2:]:
        name, colon, rest = line.rpartition(":")
        numbers = rest.split()
        if colon and len(numbers) >= 9 and numbers[0].isdigit() and numbers[8].isdigit():
            found[name.strip()] = (int(numbers[0]), int(numbers[8]))
    return found


def network_rates(before, now, seconds, wanted):
    """(rx, tx) bytes a second over the ``wanted`` interfaces, or None.

    An interface that is new, or whose counter went backwards, is left out this time.
    """
    if not before or seconds <= 0:
        return None
    received = sent = 0
    counted = False
    for name in wanted:
        if name not in before or name not in now:
            continue
        rx, tx = now[name][0] - before[name][0], now[name][1] - before[name][1]
        if rx < 0 or tx < 0:
            continue
        received += rx
        sent += tx
        counted = True
    return (received / seconds, sent / seconds) if counted else None


class SystemReader(object):
    """Reads ``System``'s fields; rates are over the time since the reading before."""

    def __init__(self, proc="/proc", sysfs="/sys"):
        self.proc = proc
        self.sysfs = sysfs
        self.files = dict(
            (name, KeptFile(os.path.join(proc, name)))
            for name in ("stat", "meminfo", "loadavg", "net/dev", "uptime")
        )
        self.cpu = None
        self.network = None
        self.network_at = None
        self.physical = {}

    def read(self, mono):
        """One reading at ``mono`` (monotonic seconds), without disks."""
        found = {}
        unknown = {}
        self._read_cpu(found, unknown)
        self._read_memory(found, unknown)
        self._read_load(found, unknown)
        self._read_network(mono, found, unknown)
        found["uptime_s"] = self.uptime_s()
        if found["uptime_s"] is None:
            unknown["uptime_s"] = "unreadable"
        found["unknown"] = unknown
        return found

    def uptime_s(self):
        """Seconds since boot, None where unreadable."""
        try:
            return float((self.files["uptime"].text() or "").split()[0])
        except (IndexError, ValueError):
            return None

    def _read_cpu(self, found, unknown):
        now = parse_cpu(self.files["stat"].text() or "")
        before, self.cpu = self.cpu, now
        found["cpu_percent"] = None
        if now is None:
            unknown["cpu_percent"] = "unreadable"
        elif before is None or now[1] <= before[1]:
            unknown["cpu_percent"] = "not-read"
        else:
            # the kernel may take idle time back: keep the share in bounds
            share = 100.0 * (now[0] - before[0]) / (now[1] - before[1])
            found["cpu_percent"] = round(min(100.0, max(0.0, share)), 2)

    def _read_memory(self, found, unknown):
        read = parse_memory(self.files["meminfo"].text() or "")
        if "memory_total_bytes" not in read:
            try:  # not Linux
                read["memory_total_bytes"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf(
                    "SC_PAGE_SIZE"
                )
            except (ValueError, OSError):
                pass
        for name in (
            "memory_total_bytes",
            "memory_available_bytes",
            "swap_total_bytes",
            "swap_used_bytes",
        ):
            found[name] = read.get(name)
            if found[name] is None:
                unknown[name] = "unreadable"

    def _read_load(self, found, unknown):
        names = ("load_1", "load_5", "load_15")
        try:
            text = self.files["loadavg"].text()
            loads = [float(part) for part in text.split()[:3]] if text else list(os.getloadavg())
        except (ValueError, OSError):
            loads = []
        if len(loads) == 3:
            found.update(zip(names, loads))
        else:
            for name in names:
                found[name] = None
                unknown[name] = "unreadable"

    def _read_network(self, mono, found, unknown):
        names = ("network_rx_bytes_per_s", "network_tx_bytes_per_s")
        now = parse_network(self.files["net/dev"].text() or "")
        before, seconds = self.network, mono - (self.network_at or mono)
        self.network, self.network_at = now, mono
        rates = network_rates(before, now, seconds, self._wanted(now))
        for position, name in enumerate(names):
            found[name] = None
            if rates is not None:
                found[name] = round(rates[position], 1)
            elif now:
                unknown[name] = "not-read"
            else:
                unknown[name] = "unreadable"

    def _wanted(self, interfaces):
        """Interfaces with hardware behind them: a bridge or a bond would count twice.

        Where none has (in a container), all but loopback.
        """
        for name in interfaces:
            if name not in self.physical:
                device = os.path.join(self.sysfs, "class/net", name, "device")
                self.physical[name] = os.path.exists(device)
        real = [name for name in interfaces if self.physical[name]]
        return real or [name for name in interfaces if name != "lo"]
