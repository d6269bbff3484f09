"""The GPU readers of the vendors, each started where it can't hold up the rest.

Runs on the host under Python 3.6 or newer, standard library only.
"""

import threading
import time

from gpumon_probe_stuck_probes import find_stuck_probe
from gpumon_probe_worker import Worker

#: How often it is looked whether an earlier probe is still stuck.
STUCK_CHECK_S = 0.5
#: How long the first line waits for the readers to start.
FIRST_LOOK_S = 0.05


class Drivers(object):
    """Starts the readers in a thread of its own and hands on what they have."""

    def __init__(self, settings, complain):
        self.settings = settings
        self.complain = complain
        self.nvml = None
        self.failed = None
        self.amd = None
        self.started = threading.Event()
        thread = threading.Thread(target=self._start, name="drivers")
        thread.daemon = True
        thread.start()
        # Whether there is a card at all is known in a moment, and the first line should say it.
        self.started.wait(FIRST_LOOK_S)

    def _start(self):
        """Compile and start NVML's reader: 0.2 s where there is a driver."""
        try:
            from gpumon_probe_amd import read_gpus

            self.amd = Worker(lambda _: (time.monotonic(), read_gpus()), self.complain)
        except ImportError:
            pass
        if self.settings["pynvml"]:
            self._start_nvml()
        else:
            self.failed = {"state": "absent", "detail": "not read: switched off"}
        self.started.set()

    def _start_nvml(self):
        try:
            self._wait_for_stuck_probe()
            from gpumon_probe_nvml import NvmlReader

            reader = NvmlReader(list(self.settings["nvml_paths"]))
            reader.start(self.settings["interval_s"], self.settings["slow_every_s"])
            self.nvml = reader
            self.failed = None
        except Exception as error:
            detail = "%s: %s" % (type(error).__name__, str(error)[:200])
            self.failed = {"state": "error", "detail": detail}
            self.complain(error)

    def _wait_for_stuck_probe(self):
        """Leave the driver alone while an earlier probe hangs in it."""
        began = time.monotonic()
        pid = find_stuck_probe()
        while pid is not None:
            time.sleep(STUCK_CHECK_S)
            # one that is just dying looks the same for a moment
            pid = find_stuck_probe()
            if pid is not None:
                self.failed = {
                    "state": "hung",
                    "detail": "an earlier probe (pid %d) is stuck in the driver" % pid,
                    "hung_s": round(time.monotonic() - began, 1),
                    "hung_call": "pid %d" % pid,
                }

    def configure(self, settings):
        """Take over other intervals."""
        self.settings = settings
        if self.nvml is not None:
            self.nvml.set(settings["interval_s"], settings["slow_every_s"])

    def snapshot(self):
        """The drivers' newest reading: nvml, gpus, gpus_mono, processes."""
        taken = {"nvml": {"state": "starting"}, "gpus": [], "gpus_mono": None, "processes": None}
        if self.nvml is not None:
            try:
                taken.update(self.nvml.snapshot())
            except Exception as error:
                self.complain(error)
                taken["nvml"] = {"state": "error", "detail": str(error)[:200]}
        elif self.failed is not None:
            taken["nvml"] = self.failed
        if self.amd is not None:
            value, _ = self.amd.result(0.0)
            # a machine without such a card is looked at now and then only
            pause_s = 0.0 if value is None or value[1] else self.settings["slow_every_s"]
            if value is None or time.monotonic() - value[0] >= pause_s:
                self.amd.ask(None)
                value, _ = self.amd.result(0.05)
            if value is not None and value[1]:
                taken["gpus"] = list(taken["gpus"] or []) + value[1]
                times = [at for at in (taken["gpus_mono"], value[0]) if at is not None]
                taken["gpus_mono"] = min(times)
        return taken
