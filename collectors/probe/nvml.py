"""Reads a host's NVIDIA cards in a thread of its own.

``NvmlReader.snapshot()`` never blocks: where a driver call does not return, it says
for how long and which, and goes on showing the last rows with their age. There is
one reader for ever; beside a hung one no second is started, for it would hang too
(leptonai/gpud#117, microsoft/pai#3372).

On a host this file is the module ``gpumon_probe_nvml`` and the other nvml_*.py of this
folder are its parts (see loader.py). Runs under Python 3.6 or newer, standard library only.
"""

import threading
import time

from gpumon_probe_nvml_card import Card
from gpumon_probe_nvml_driver import UNINITIALIZED, Driver, LibraryMissingError, RefusedError
from gpumon_probe_nvml_events import XidWatcher
from gpumon_probe_nvml_mig import MigUtilisation, find_slices
from gpumon_probe_nvml_presence import Presence
from gpumon_probe_nvml_processes import ProcessReader
from gpumon_probe_nvml_row import blank_row
from gpumon_probe_nvml_rows import gone_row, in_order, rows_without_handle, sum_slices
from gpumon_probe_nvml_states import (
    identity_of,
    init_refused,
    no_card_found,
    rows_without_nvml,
    without_library,
)
from gpumon_probe_nvml_tegra import read_tegra

#: calls that may bring up a card first, which takes seconds where persistence mode is off
BRINGING_UP = (
    "dlopen",
    "nvmlInitWithFlags",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetHandleByPciBusId",
)
#: fields that every card has in some form: all failing alike means the card fails
VITAL = ("temperature_c", "memory_total_bytes", "util_percent", "power_w", "sm_clock_mhz")
#: a card that stays awake so long after it was let go is held by someone else
RELEASE_TRIAL_S = 20.0
RELEASE_AGAIN_S = 600.0


class NvmlReader(object):
    """Reads all cards every ``interval_s``, what changes slowly every ``slow_every_s``."""

    def __init__(
        self,
        extra_paths=(),
        *,
        sysfs_root=None,
        proc_root=None,
        hung_after_s=4.0,
        hung_init_after_s=12.0,
        retry_s=30.0,
        reinit_after_s=30.0,
        release_after_s=60.0,
    ):
        self.extra_paths = tuple(extra_paths)
        self.presence = Presence(sysfs_root, proc_root)
        self.driver = Driver()
        self.interval_s = 2.0
        self.slow_every_s = 10.0
        self.hung_after_s = hung_after_s
        self.hung_init_after_s = hung_init_after_s
        self.retry_s = retry_s
        self.reinit_after_s = reinit_after_s
        #: on battery, with nothing to do for this long, the cards are let go to sleep
        self.release_after_s = release_after_s
        self._wake = threading.Event()
        self._stopped = False
        self._asked_at = None
        self._published = {"nvml": {"state": "starting"}, "gpus": [], "gpus_mono": None}
        self._pci = []
        self._information = {}
        self._tegra = False
        self._seen = {}  # pci id -> what NVML once said: a key must not change with sleep
        self._slow_at = None
        self._connected = False
        self._retry_at = 0.0
        self._backoff_s = reinit_after_s
        self._bad_since = None
        self._idle_since = None
        self._released_at = None
        self._no_release_before = 0.0
        self._facts = {}
        self._cards = []
        self._refused = {}  # NVML index -> code of a card without a handle
        self._count = 0
        self._by_pci = False
        self._slices = {}
        self._gpm = {}
        self._processes = None
        self._xids = None

    # --- for the probe's main thread ------------------------------------------------

    def start(self, interval_s, slow_every_s):
        """Begin to read."""
        self.set(interval_s, slow_every_s)
        thread = threading.Thread(target=self._run, name="nvml")
        thread.daemon = True
        thread.start()

    def set(self, interval_s=None, slow_every_s=None):
        """Change the cadence; takes effect after the present wait."""
        if interval_s:
            self.interval_s = float(interval_s)
        if slow_every_s:
            self.slow_every_s = float(slow_every_s)

    def stop(self):
        """Let go of the driver after the present round, so that it can be unloaded."""
        self._stopped = True
        self._wake.set()

    def snapshot(self):
        """The newest rows; never blocks. See the wire protocol's nvml, gpus, processes."""
        self._asked_at = time.monotonic()
        published = self._published
        nvml = dict(published["nvml"])
        gpus = published["gpus"]
        hung = self.hung()
        if hung is not None:
            name, seconds = hung
            nvml["state"] = "hung"
            nvml["hung_s"] = round(seconds, 1)
            nvml["hung_call"] = name
            nvml["detail"] = "%s has not returned for %d s" % (name, seconds)
            if not gpus:
                gpus = self._rows_never_read()
        return {
            "nvml": nvml,
            "gpus": gpus,
            "gpus_mono": published["gpus_mono"],
            "processes": published.get("processes"),
        }

    def hung(self):
        """(call, seconds) of a driver call that takes too long, or None."""
        call = self.driver.call
        if call is None:
            return None
        seconds = time.monotonic() - call[1]
        limit = self.hung_init_after_s if call[0] in BRINGING_UP else self.hung_after_s
        return (call[0], seconds) if seconds > limit else None

    # --- the reader's thread --------------------------------------------------------

    def _run(self):
        while not self._stopped:
            started = time.monotonic()
            try:
                self._round(started)
            except Exception as error:  # the thread must outlive any surprise
                detail = "the reader failed: %s: %s" % (type(error).__name__, error)
                if self._disconnect():
                    self._retry_at = started + self.retry_s
                self._publish(dict(self._facts, state="error", detail=detail), [], None)
            self._wake.wait(self._until_next(started, time.monotonic()))
        self._disconnect()

    def _until_next(self, started, now):
        """Seconds to the next round: just before the next snapshot is likely to be taken."""
        asked_at = self._asked_at or started
        lead = min(self.interval_s / 2, 0.05 + 2 * (now - started)) if self._asked_at else 0.0
        rounds = (started + self.interval_s / 2 + lead - asked_at) // self.interval_s + 1
        return max(0.05, asked_at + rounds * self.interval_s - lead - now)

    def _round(self, now):
        if self._slow_at is None or now - self._slow_at >= self.slow_every_s:
            self._slow_at = now
            self._look_around()
        sleeping = set(card.pci_id for card in self._pci if card.asleep)
        if not self._connected:
            if self._pci and len(sleeping) == len(self._pci):
                self._released_at = None
                rows = rows_without_nvml(self._pci, self._known(), "asleep", None)
                self._publish(dict(self._facts, state="asleep"), rows, [])
                return
            if self._waits(now):
                return
            if not self._connect(now, sleeping):
                return
        self._read_all(now, sleeping)

    def _look_around(self):
        """What /sys and /proc say; a hung driver may hang its /proc files too."""
        self.driver.call = ("/proc/driver/nvidia", time.monotonic())
        try:
            self._pci = self.presence.cards()
            self._information = self.presence.information()
            self._tegra = self.presence.tegra()
        finally:
            self.driver.call = None
        if self._connected:
            self._look_again()

    def _waits(self, now):
        if self._released_at is not None:
            if now - self._released_at < RELEASE_TRIAL_S:
                return True
            self._released_at = None
            self._no_release_before = now + RELEASE_AGAIN_S
            return False
        if now < self._retry_at:
            self._published = dict(self._published, gpus_mono=now)
            return True
        return False

    def _connect(self, now, sleeping):
        """Load, initialise and find the cards; publish why not where that fails."""
        self._retry_at = now + self.retry_s
        self._facts = {}
        try:
            self.driver.open_library(self.extra_paths)
        except LibraryMissingError as error:
            self._give_up(without_library(self.presence, self._pci, str(error)))
            return False
        started = time.monotonic()
        try:
            self.driver.ask("nvmlInitWithFlags", 0)
        except RefusedError as refusal:
            version = self.driver.library_version()
            self.driver.close_library()
            self._give_up(init_refused(self.presence, self._pci, refusal.code, version))
            return False
        self._connected = True
        self._retry_at = 0.0
        self._bad_since = self._idle_since = None
        self._cards, self._refused = [], {}
        self._find_cards(sleeping)
        self._facts = {
            "init_s": round(time.monotonic() - started, 3),
            "driver_version": self._text("nvmlSystemGetDriverVersion"),
            "cuda_version": self._cuda_version(),
        }
        if not self._count and not sleeping:
            state = no_card_found(self.presence, self._pci)
            self._disconnect()
            self._give_up(state)
            return False
        self._processes = ProcessReader(self.driver, self._facts["driver_version"], self.presence)
        self._watch_xids()
        return True

    def _give_up(self, state):
        name, detail = state
        rows = rows_without_nvml(self._pci, self._known(), name, detail)
        if not rows and self._tegra:
            rows = [read_tegra(self.presence, {})]
        facts = {"state": name, "detail": detail, "driver_version": self.presence.module_version()}
        self._publish(facts, rows, [] if name == "absent" else None)

    def _disconnect(self):
        """Let go of the driver; False where a wait for events does not end."""
        if not self._connected:
            return True
        if self._xids is not None and not self._xids.stop():
            return False
        try:
            self.driver.ask("nvmlShutdown")
        except RefusedError:
            pass
        self._connected = False
        self._xids = None
        self._cards, self._refused, self._slices, self._gpm = [], {}, {}, {}
        return True

    # --- finding cards --------------------------------------------------------------

    def _find_cards(self, sleeping):
        """A handle brings its card up: cards that sleep are left out, found by PCI id."""
        self._by_pci = bool(sleeping)
        if not sleeping:
            self._count = self.driver.ask("nvmlDeviceGetCount")
            for index in range(self._count):
                self._find_card(index, "nvmlDeviceGetHandleByIndex", index)
            return
        awake = [card for card in self._pci if card.pci_id not in sleeping]
        awake = [card for card in awake if card.driver in ("nvidia", None)]
        for card in awake:
            self._find_card(None, "nvmlDeviceGetHandleByPciBusId", card.pci_id.encode("ascii"))
        self._count = len(awake)

    def _find_card(self, index, name, argument):
        try:
            handle = self.driver.ask(name, argument)
            if index is None:
                index = self.driver.ask("nvmlDeviceGetIndex", handle)
            card = Card(self.driver, handle, index, self.presence)
            self._cards.append(card)
            self._refused.pop(index, None)
            if "pci_id" in card.identity:
                self._seen[card.identity["pci_id"]] = card.identity
        except RefusedError as refusal:
            if index is not None:
                self._refused[index] = refusal.code

    def _look_again(self):
        """Cards may come, or come back: at the slow cadence."""
        before = len(self._cards)
        if self._by_pci:
            have = set(card.identity.get("pci_id") for card in self._cards)
            for card in self._pci:
                if card.pci_id not in have and card.driver == "nvidia" and not card.asleep:
                    self._find_card(
                        None, "nvmlDeviceGetHandleByPciBusId", card.pci_id.encode("ascii")
                    )
        else:
            try:
                self._count = self.driver.ask("nvmlDeviceGetCount")
            except RefusedError:
                return
            have = set(card.index for card in self._cards)
            for index in range(self._count):
                if index not in have:
                    self._find_card(index, "nvmlDeviceGetHandleByIndex", index)
        self._cards.sort(key=lambda card: card.index)
        for card in self._cards:
            self._slices.pop(card.uuid, None)
        if len(self._cards) != before:
            self._watch_xids()

    def _watch_xids(self):
        before = self._xids
        if before is not None and not before.stop():
            return
        self._xids = XidWatcher(self.driver, lambda: self.hung() is not None)
        if before is not None:
            self._xids.newest.update(before.newest)
        self._xids.start(self._cards)

    # --- reading them ---------------------------------------------------------------

    def _read_all(self, now, sleeping):
        rows, lists, codes = [], [], []
        for card in self._cards:
            if card.identity.get("pci_id") in sleeping:
                rows.append(blank_row(card.identity, "asleep", "asleep"))
                continue
            try:
                card_rows, found, code = self._read_card(card)
            except RefusedError as refusal:
                code = refusal.code
                card_rows, found = [gone_row(card.identity, code)], None
            codes.append(code)
            rows += card_rows
            lists.append(found)
        rows += rows_without_handle(
            self._cards,
            self._refused,
            pci=self._pci,
            sleeping=sleeping,
            information=self._information,
            seen=self._seen,
        )
        codes += list(self._refused.values())
        rows = in_order(rows)
        closed = bool(codes) and all(found is None for found in lists)
        processes = None if closed else [one for found in lists for one in found or ()]
        self._publish(dict(self._facts, state="ok"), rows, processes)
        self._mind_failures(now, codes)
        self._mind_idleness(now, rows, processes)

    def _read_card(self, card):
        """(rows of a card and its slices, processes or None, failure code or None)."""
        row = card.read(self.slow_every_s)
        slices = self._slices.get(card.uuid)
        if slices is None:
            slices = find_slices(self.driver, card) if card.mig_mode else []
            self._slices[card.uuid] = slices
        more = dict(card.identity)
        code = None
        if all(row.unknown.get(field) == "driver-error" for field in VITAL):
            code = 999
            more["state"] = "error"
            more["detail"] = (
                "the driver answers with unknown errors only; in a container: "
                "it may have lost its device nodes, restart it"
            )
        if self._xids is not None:
            if card.uuid in self._xids.newest:
                row.put("xid", self._xids.newest[card.uuid])
            elif card.uuid in self._xids.unknown:
                row.miss("xid", self._xids.unknown[card.uuid])
        if self._tegra:
            for field, value in read_tegra(self.presence, row.values).items():
                if field in ("util_percent", "temperature_c"):
                    row.put(field, value)
        slice_rows = self._read_slices(card, slices)
        if slices and row.unknown.get("memory_total_bytes") == "no-permission":
            sum_slices(row, slice_rows, more)
        found = self._processes.read(card, slices)
        return [row.as_dict(**more)] + slice_rows, found, code

    def _read_slices(self, card, slices):
        if not slices:
            return []
        gpm = self._gpm.setdefault(card.uuid, MigUtilisation(self.driver, card))
        utilisation = gpm.read(slices)
        return [one.read(utilisation[one.gpu_instance]).as_dict(**one.identity) for one in slices]

    def _known(self):
        """pci id -> name and uuid: what NVML said, else what the kernel module says."""
        return dict(self._information, **self._seen)

    def _rows_never_read(self):
        rows, known = [], self._known()
        for card in self._pci:
            identity = identity_of(card, known)
            rows.append(blank_row(identity, "error", "hung", "the driver hangs"))
        return rows

    # --- when all fails, or nothing happens -----------------------------------------

    def _mind_failures(self, now, codes):
        """A driver that was reloaded leaves stale handles: init again, seldom."""
        if not codes or any(code is None for code in codes):
            self._bad_since, self._backoff_s = None, self.reinit_after_s
            return
        if self._bad_since is None:
            self._bad_since = now
        waits = 0.0 if UNINITIALIZED in codes else self._backoff_s
        if now - self._bad_since >= waits and self._disconnect():
            self._retry_at = now if waits else now + self.interval_s
            self._backoff_s = min(self._backoff_s * 2, 600.0)

    def _mind_idleness(self, now, rows, processes):
        """An open driver keeps a laptop's card awake (cosmic-ext-applet-system-monitor#39)."""
        busy = processes is None or processes or any(row.get("util_percent") for row in rows)
        may_sleep = any(card.may_sleep for card in self._pci)
        if busy or not may_sleep or now < self._no_release_before:
            self._idle_since = None
            return
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since >= self.release_after_s and self.presence.on_battery():
            if self._disconnect():
                self._released_at = now

    # --- small things ---------------------------------------------------------------

    def _text(self, symbol):
        try:
            return self.driver.text(symbol)
        except RefusedError:
            return None

    def _cuda_version(self):
        try:
            number = self.driver.first(
                ("nvmlSystemGetCudaDriverVersion_v2",), ("nvmlSystemGetCudaDriverVersion",)
            )
        except RefusedError:
            return None
        return "%d.%d" % (number // 1000, number % 1000 // 10)

    def _publish(self, nvml, gpus, processes):
        self._published = {
            "nvml": dict((key, value) for key, value in nvml.items() if value is not None),
            "gpus": gpus,
            "gpus_mono": time.monotonic(),
            "processes": processes,
        }
