"""Processes on a card: the driver's lists merged, with memory and SM utilisation.

Runs on the host under Python 3.6 or newer, standard library only.
"""

import ctypes
import re
import struct
import time

from gpumon_probe_nvml_driver import (
    INSUFFICIENT_SIZE,
    NO_FUNCTION,
    RefusedError,
    is_gone,
)

LISTS = (("compute", "Compute"), ("graphics", "Graphics"), ("mps", "MPSCompute"))
UNKNOWN_MEMORY = 2**64 - 1
NO_INSTANCE = 0xFFFFFFFF
NARROW, WIDE, OLDEST = 24, 32, 16
MOST_MEMORY = 1024**5
SAMPLE_HOLDS_S = 2.0
#: the kernel's own limit on 64 bits; a container's may be lower than the pids it is told of
PID_MAX = 4194304


class ProcessReader(object):
    """Reads one card's process lists; remembers what is needed between readings."""

    def __init__(self, driver, driver_version, presence):
        self.driver = driver
        self.unknown_memory = "wddm" if presence.wsl() else "unsupported"
        self.record = WIDE if writes_wide_records(driver_version) else NARROW
        self._since_us = {}
        self._held = {}

    def read(self, card, slices):
        """Process rows of a card and its slices, or None where no list could be read."""
        found = self._lists(card.handle)
        if found is None and slices:
            # without rights the parent's list is closed, but each slice's own may be open
            parts = [self._lists(one.handle) for one in slices]
            found = None if all(part is None for part in parts) else sum(filter(None, parts), [])
        if found is None:
            return None
        uuid_of = dict(((one.gpu_instance, one.compute_instance), one.uuid) for one in slices)
        rows = {}
        for kind, (pid, memory, gpu_instance, compute_instance) in found:
            uuid = uuid_of.get((gpu_instance, compute_instance), card.uuid)
            row = rows.setdefault((pid, uuid), {"kinds": [], "memory": None})
            if kind not in row["kinds"]:
                row["kinds"].append(kind)
            if memory is not None:
                # on two lists it is the same memory, told twice (nvitop#152)
                row["memory"] = max(memory, row["memory"] or 0)
        utilisation, reason = self._utilisation(card, bool(slices))
        return [
            self._row(pid, uuid, row, utilisation.get(pid), reason)
            for (pid, uuid), row in sorted(rows.items())
        ]

    def _row(self, pid, uuid, found, sm_percent, reason):
        row = {"pid": pid, "gpu_uuid": uuid, "kind": "+".join(found["kinds"]), "unknown": {}}
        if found["memory"] is None:
            row["unknown"]["memory_bytes"] = self.unknown_memory
        elif found["memory"] > MOST_MEMORY:
            row["unknown"]["memory_bytes"] = "nonsense"
        else:
            row["memory_bytes"] = found["memory"]
        if sm_percent is None:
            row["unknown"]["sm_percent"] = reason
        else:
            row["sm_percent"] = sm_percent
        return row

    def _lists(self, handle):
        """[(kind, record)] of all lists that answer; None where none does."""
        found, answered = [], False
        for kind, word in LISTS:
            try:
                records = self._list(handle, word)
            except RefusedError as refusal:
                if is_gone(refusal):
                    raise
                continue
            answered = True
            found += [(kind, record) for record in records]
        return found if answered else None

    def _list(self, handle, word):
        symbol = "nvmlDeviceGet%sRunningProcesses" % word
        telling = RefusedError(NO_FUNCTION)
        for suffix, record in (("_v3", self.record), ("_v2", NARROW), ("", OLDEST)):
            try:
                return self._read_list(handle, symbol + suffix, record)
            except RefusedError as refusal:
                if is_gone(refusal):
                    raise
                if refusal.code != NO_FUNCTION:
                    telling = refusal
        raise telling

    def _read_list(self, handle, symbol, record):
        room = 0
        for _ in range(4):
            count = ctypes.c_uint(room)
            # room for the widest record, whatever this driver writes
            buffer = ctypes.create_string_buffer(room * WIDE) if room else None
            rc = self.driver.raw(symbol, handle, ctypes.byref(count), buffer)
            if rc == INSUFFICIENT_SIZE:
                # the list may grow between the two calls
                room = min(count.value * 2 + 5, 65536)
                continue
            if rc:
                raise RefusedError(rc)
            if buffer is None:
                return []
            return self._records(buffer.raw, min(count.value, room), record)
        raise RefusedError(INSUFFICIENT_SIZE)

    def _records(self, raw, count, size):
        """The records; where they make no sense in the expected size, in the other one.

        535.43 to 535.86 wrote 32 bytes under the name of the 24-byte record, without a
        new symbol to tell by: pids shifted and sizes absurd (nvitop#75, gpustat#157).
        """
        records = _unpack(raw, count, size)
        if size != OLDEST and not self._plausible(records):
            other = _unpack(raw, count, WIDE if size == NARROW else NARROW)
            if self._plausible(other):
                records = other
        return [record for record in records if 0 < record[0] <= PID_MAX]

    def _plausible(self, records):
        return all(
            0 < pid <= PID_MAX and (memory is None or memory < MOST_MEMORY)
            for pid, memory, _, _ in records
        )

    def _utilisation(self, card, mig):
        """(pid -> SM percent, reason for the others) of late.

        The driver samples a few times a second and only processes that work: one that is
        not in the newest samples keeps its figure for ``SAMPLE_HOLDS_S``.
        """
        if mig:
            return {}, "unsupported"
        held = self._held.setdefault(card.uuid, {})
        now = time.monotonic()
        reason = "no-data"
        try:
            samples = self.driver.ask(
                "nvmlDeviceGetProcessUtilization", card.handle, self._since_us.get(card.uuid, 0)
            )
        except RefusedError as refusal:
            if is_gone(refusal):
                raise
            samples, reason = [], refusal.reason
        for sample in sorted(samples, key=lambda sample: sample.timeStamp):
            self._since_us[card.uuid] = sample.timeStamp
            # over 100 is garbage (nvtop#110)
            if sample.smUtil <= 100:
                held[sample.pid] = (now, sample.smUtil)
        for pid in [pid for pid, (when, _) in held.items() if now - when > SAMPLE_HOLDS_S]:
            del held[pid]
        return dict((pid, util) for pid, (_, util) in held.items()), reason


def writes_wide_records(driver_version):
    """True for the drivers from 535.43 to 535.86 (fixed in 535.98)."""
    match = re.match(r"535\.(\d+)", driver_version or "")
    return bool(match) and 43 <= int(match.group(1)) < 98


def _unpack(raw, count, size):
    records = []
    for start in range(0, count * size, size):
        if size == OLDEST:
            pid, memory = struct.unpack_from("=I4xQ", raw, start)
            gpu_instance = compute_instance = NO_INSTANCE
        else:
            pid, memory, gpu_instance, compute_instance = struct.unpack_from("=I4xQII", raw, start)
        records.append(
            (pid, None if memory == UNKNOWN_MEMORY else memory, gpu_instance, compute_instance)
        )
    return records
