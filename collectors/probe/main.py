"""The probe's life on a host: one line of JSON at every tick, until nobody listens.

Order of a tick: hand out HTTP requests, have the processes read, read the machine, take
what the driver's thread has, collect the answers, write. Only the machine's own counters
are read in this thread; whatever may hang has a thread of its own.
Runs on the host under Python 3.6 or newer, standard library only.
"""

import json
import os
import select
import signal
import sys
import threading
import time

from gpumon_probe_disks import read_disks
from gpumon_probe_drivers import Drivers
from gpumon_probe_http import Asker
from gpumon_probe_identity import describe_host
from gpumon_probe_link import MOST_LINE_BYTES, Link, encode
from gpumon_probe_processes import ProcessTable
from gpumon_probe_procfs import SystemReader, read_text
from gpumon_probe_stuck_probes import name_this_process
from gpumon_probe_worker import Worker

#: How long a tick waits for the reading of processes.
PROCESSES_WAIT_S = 0.5
#: The second line comes early, so that rates are known soon after the start.
SECOND_SAMPLE_S = 0.25
#: A process under this share of a core does nothing but wait.
BUSY_CPU_PERCENT = 3.0
#: How long a tick waits for answers to what it has just asked; most take 1 ms.
ANSWERS_WAIT_S = 0.02
MOST_COMPLAINTS = 5

DEFAULTS = {
    "nonce": "",
    "interval_s": 2.0,
    "heartbeat_timeout_s": 30.0,
    "watch": (),
    "env_names": (),
    "disks": (),
    "requests": (),
    "slow_every_s": 10.0,
    "pynvml": True,
    "nvml_paths": (),
}
_BOUNDS = {
    "interval_s": (0.1, 3600.0),
    "heartbeat_timeout_s": (0.2, 86400.0),
    "slow_every_s": (0.1, 86400.0),
}


def clean_settings(before, given):
    """``before`` with what is valid of ``given``: the client may be of another version."""
    after = dict(before)
    for name, value in given.items():
        if name not in DEFAULTS:
            continue
        if name in _BOUNDS:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            least, most = _BOUNDS[name]
            value = min(most, max(least, float(value)))
        elif isinstance(DEFAULTS[name], bool):
            value = bool(value)
        elif isinstance(DEFAULTS[name], str):
            value = str(value)
        elif not isinstance(value, (list, tuple)):
            continue
        after[name] = value
    return after


def next_tick(start, interval_s, now):
    """The next point of the grid ``start + k * interval_s`` after ``now``.

    Ticks that were missed (a suspended host, a client that did not read) are not made up.
    """
    return start + (int((now - start) / interval_s) + 1) * interval_s


class Complaints(object):
    """The first few kinds of trouble, one short line each, on stderr."""

    def __init__(self):
        self.seen = set()

    def __call__(self, error):
        """Say what went wrong and where, unless it was said before."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = "%s:%d" % (trace.tb_frame.f_code.co_filename, trace.tb_lineno) if trace else "?"
        key = (type(error).__name__, where)
        if key not in self.seen and len(self.seen) < MOST_COMPLAINTS:
            self.seen.add(key)
            text = "gpumon probe: %s: %s (%s)\n" % (key[0], str(error)[:200], where)
            try:
                os.write(2, text.encode("ascii", "replace"))
            except OSError:
                pass


class Probe(object):
    """Everything that one connection's probe knows."""

    def __init__(self, settings):
        self.settings = settings
        self.complain = Complaints()
        self.wake_read, self.wake_write = os.pipe()
        self.lock = threading.Lock()
        self.pending = []
        self.link = Link(settings["heartbeat_timeout_s"], self._on_set)
        self.system = SystemReader()
        self.table = ProcessTable()
        self.asker = Asker()
        self.processes = Worker(self._read_processes, self.complain)
        self.disks = Worker(read_disks, self.complain)
        self.disks_at = None
        self.drivers = None
        self.seq = 0
        self.cpu_before = (time.monotonic(), time.process_time())
        self.busy = {}
        self.gpu_busy = set()
        self.configure()

    def run(self):
        """Greet, then sample until the link ends."""
        listener = threading.Thread(target=self.link.listen, name="stdin")
        listener.daemon = True
        listener.start()
        self.link.send(("\x1e%s\n" % self.settings["nonce"]).encode("ascii", "replace"))
        self.drivers = Drivers(self.settings, self.complain)
        self.link.send(encode(dict(describe_host(), t="hello", v=1)))
        start = time.monotonic()
        self._sample()
        name_this_process()  # now, as ctypes takes its time to load
        early = start + SECOND_SAMPLE_S if self.settings["interval_s"] > SECOND_SAMPLE_S else None
        while True:
            interval_s = self.settings["interval_s"]
            tick = early or next_tick(start, interval_s, time.monotonic())
            if self._sleep_until(tick):
                if self.settings["interval_s"] != interval_s:
                    start = time.monotonic()
            elif early:
                early = None
            self._sample()

    def configure(self):
        """Hand the settings to those who use them."""
        settings = self.settings
        self.link.heartbeat_timeout_s = settings["heartbeat_timeout_s"]
        self.asker.configure(settings["requests"])
        if self.drivers is not None:
            self.drivers.configure(settings)
        self.disks_at = None

    def _on_set(self, given):
        """From the stdin thread: have the main thread take it over at once."""
        with self.lock:
            self.pending.append(given)
        os.write(self.wake_write, b"x")

    def _sleep_until(self, tick):
        """True when new settings came before ``tick`` and asking can't wait for it.

        Sleeps in select, which no jump of the wall clock disturbs.
        """
        while True:
            left = tick - time.monotonic()
            if left <= 0:
                return False
            if not select.select([self.wake_read], [], [], left)[0]:
                return False
            os.read(self.wake_read, 4096)
            before = self.settings
            with self.lock:
                given, self.pending = self.pending, []
            for one in given:
                self.settings = clean_settings(self.settings, one)
            if self.settings != before:
                self.configure()
                if self.settings["interval_s"] != before["interval_s"]:
                    return True
                # ask at once; the answers go into the line of the next tick
                self.asker.tick(time.monotonic(), self._is_busy, False)

    # --- a sample --------------------------------------------------------------------
    def _sample(self):
        began = time.monotonic()
        taken = self.drivers.snapshot()
        gpu_rows = taken["processes"]
        asked = self.processes.ask((began, gpu_rows, self.asker.busy_pids()))
        self.asker.tick(began, self._is_busy, False)
        system = self._read_system(began)
        # a reading that was stuck at the tick before is not waited for again
        result, stuck_s = self.processes.result(PROCESSES_WAIT_S if asked else 0.0)
        watched, described, changed, self.busy = result or ([], None, False, {})
        if stuck_s:
            changed, described = False, _merge(gpu_rows, described)
        self.gpu_busy = set(
            row.get("pid") for row in gpu_rows or () if (row.get("sm_percent") or 0) > 0
        )
        # again, as now it is known what burns and what is new
        self.asker.tick(time.monotonic(), self._is_busy, changed)
        line = {
            "t": "sample",
            "seq": self.seq,
            "mono": round(began, 3),
            "wall": round(time.time() - (time.monotonic() - began), 3),
            "system": system,
            "nvml": taken["nvml"],
            "gpus": taken["gpus"],
            "gpus_mono": taken["gpus_mono"],
            "processes": described,
            "watched": watched,
            "probe": self._cost(began),
        }
        self.seq += 1
        data = fit(line)
        self.asker.wait(ANSWERS_WAIT_S)
        answers = self.asker.collect(MOST_LINE_BYTES - len(data) - 16)
        self.link.send(data[:-2] + b',"http":' + encode(answers)[:-1] + b"}\n")

    def _read_processes(self, argument):
        mono, gpu_rows, others = argument
        settings = self.settings
        self.table.configure(settings["watch"], settings["env_names"], settings["slow_every_s"])
        return self.table.read(mono, gpu_rows, others)

    def _read_system(self, mono):
        try:
            found = self.system.read(mono)
        except Exception as error:
            self.complain(error)
            found = {"unknown": {}}
        if self.disks_at is None or mono - self.disks_at >= self.settings["slow_every_s"]:
            if self.disks.ask(tuple(self.settings["disks"])):
                self.disks_at = mono
        rows, stuck_s = self.disks.result(0.02)
        if rows is None or stuck_s > 2 * self.settings["slow_every_s"]:
            found["disks"] = []
            found["unknown"]["disks"] = "timeout" if stuck_s > 5 else "not-read"
        else:
            found["disks"] = rows
        return found

    def _is_busy(self, pid):
        return (self.busy.get(pid) or 0.0) >= BUSY_CPU_PERCENT or pid in self.gpu_busy

    def _cost(self, began):
        now, used = time.monotonic(), time.process_time()
        seconds, cpu = now - self.cpu_before[0], used - self.cpu_before[1]
        self.cpu_before = (now, used)
        pages = (read_text("/proc/self/statm", 256) or "").split()
        return {
            "cpu_percent": round(100.0 * cpu / seconds, 3) if seconds > 0 else None,
            "rss_bytes": int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else None,
            "sample_ms": round((now - began) * 1000.0, 2),
        }


def _merge(gpu_rows, described):
    """The driver's rows with what was known of them, while /proc does not answer."""
    if gpu_rows is None:
        return None
    known = dict(((row.get("pid"), row.get("gpu_uuid")), row) for row in described or ())
    rows = []
    for row in gpu_rows:
        old = known.get((row.get("pid"), row.get("gpu_uuid")))
        merged = dict(old or {}, **row)
        merged["unknown"] = dict(
            row.get("unknown") or {}, cpu_percent="timeout", rss_bytes="timeout"
        )
        merged["cpu_percent"] = merged["rss_bytes"] = None
        rows.append(merged)
    return rows


def fit(line):
    """The line's bytes; parts are left out until it is short enough."""
    most = MOST_LINE_BYTES - 1024
    data = encode(line)
    if len(data) > most:
        for row in line["watched"]:
            row["ancestors"] = [dict(one, cmd=one["cmd"][:4]) for one in row["ancestors"]]
        data = encode(line)
    for name, empty in (("watched", []), ("processes", None), ("gpus", [])):
        if len(data) > most:
            line[name] = empty
            data = encode(line)
    return data


def run(text):
    """Start with a ``ProbeConfig`` as JSON text; never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client; we see its end
    settings = clean_settings(DEFAULTS, json.loads(text))
    probe = Probe(settings)
    try:
        probe.run()
    except BaseException as error:
        probe.complain(error)
        probe.link.leave("%s: %s" % (type(error).__name__, str(error)[:200]), 1)
    sys.exit(1)
