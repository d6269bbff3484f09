"""One NVIDIA card: every value on its own, the newest call first, then the older one.

Which symbols came and went with which driver, and what each answers where it is not
supported: nvml.h of CUDA 13, nvidia_gpu_exporter's captures, nvitop#181 and PR#226.
Runs on the host under Python 3.6 or newer, standard library only.
"""

import time

from gpumon_probe_nvml_driver import RefusedError, is_gone
from gpumon_probe_nvml_row import MEASURED, Row

GIB = 1024**3
MEMORY_V2_WORD = 0x02000028  # size 40 and version 2; a bare 2 is refused (nvtop#322)
FIELD_MEMORY_TEMPERATURE = 82
FIELD_SLOWDOWN_TLIMIT = 194
FIELD_PCIE_TX, FIELD_PCIE_RX = 197, 198
FIELD_RECOVERY_ACTION = 230
ADDRESSING_ATS = 2

RECOVERY_ACTIONS = (
    "none",
    "reset",
    "reboot",
    "drain-p2p",
    "drain-and-reset",
    "imex",
    "bus-reset",
    "system-reboot",
)
COMPUTE_MODES = ("default", "exclusive-thread", "prohibited", "exclusive-process")
#: bit 1, "idle", is left out: nothing holds the clocks of an idle card down
THROTTLE_REASONS = (
    (0x2, "app-clocks"),
    (0x4, "sw-power-cap"),
    (0x8, "hw-slowdown"),
    (0x10, "sync-boost"),
    (0x20, "sw-thermal"),
    (0x40, "hw-thermal"),
    (0x80, "hw-power-brake"),
    (0x100, "display-clocks"),
    (0x200, "board-limit"),
    (0x400, "reliability"),
)
#: integrated GPUs: no memory of their own (nvitop#208, gpustat#179)
INTEGRATED_NAMES = ("GB10", "DGX Spark", "Orin", "Xavier", "Thor", "Tegra", "N1X")

#: field, calls (name, arguments after the handle), lowest, highest, scale
NUMBERS = (
    ("power_w", (("nvmlDeviceGetPowerUsage",),), 0, 5000, 0.001),
    ("energy_j", (("nvmlDeviceGetTotalEnergyConsumption",),), 0, 1e15, 0.001),
    (
        "temperature_c",
        (("nvmlDeviceGetTemperatureV", 0), ("nvmlDeviceGetTemperature", 0)),
        -20,
        150,
        None,
    ),
    # the intended speed: over 100 happens, millions do not
    ("fan_percent", (("nvmlDeviceGetFanSpeed",), ("nvmlDeviceGetFanSpeed_v2", 0)), 0, 200, None),
    ("sm_clock_mhz", (("nvmlDeviceGetClockInfo", 1),), 0, 50000, None),
    ("memory_clock_mhz", (("nvmlDeviceGetClockInfo", 2),), 0, 50000, None),
    ("pcie_generation", (("nvmlDeviceGetCurrPcieLinkGeneration",),), 1, 12, None),
    ("pcie_width", (("nvmlDeviceGetCurrPcieLinkWidth",),), 1, 32, None),
)
SLOW_NUMBERS = (
    ("power_limit_w", (("nvmlDeviceGetEnforcedPowerLimit",),), 1, 5000, 0.001),
    ("max_sm_clock_mhz", (("nvmlDeviceGetMaxClockInfo", 1),), 1, 50000, None),
    ("max_memory_clock_mhz", (("nvmlDeviceGetMaxClockInfo", 2),), 1, 50000, None),
    ("memory_bus_bits", (("nvmlDeviceGetMemoryBusWidth",),), 1, 65536, None),
    ("pcie_generation_max", (("nvmlDeviceGetMaxPcieLinkGeneration",),), 1, 12, None),
    ("pcie_width_max", (("nvmlDeviceGetMaxPcieLinkWidth",),), 1, 32, None),
    # volatile counters: since the driver was loaded
    ("ecc_corrected", (("nvmlDeviceGetTotalEccErrors", 0, 0),), 0, 2**62, None),
    ("ecc_uncorrected", (("nvmlDeviceGetTotalEccErrors", 1, 0),), 0, 2**62, None),
)
MIG_PARENT_FIELDS = ("util_percent", "memory_util_percent", "encoder_percent", "decoder_percent")


class Card(object):
    """A card with its handle, its identity and what is remembered between readings."""

    def __init__(self, driver, handle, index, presence):
        self.driver = driver
        self.handle = handle
        self.index = index
        self.presence = presence
        self.identity = self._read_identity()
        self.mig_mode = None
        self.unified = False
        self._slow = Row()
        self._slow_at = None
        self._pcie_before = None

    @property
    def uuid(self):
        """The key of this card."""
        return self.identity["uuid"]

    def _read_identity(self):
        identity = {"index": self.index}
        try:
            place = self.driver.ask("nvmlDeviceGetPciInfo_v3", self.handle)
            # the numbers, for the text is decoded strictly and has a longer domain than sysfs
            identity["pci_id"] = "%04x:%02x:%02x.0" % (place.domain, place.bus, place.device)
        except RefusedError:
            pass
        for field, symbol in (
            ("uuid", "nvmlDeviceGetUUID"),
            ("name", "nvmlDeviceGetName"),
            ("vbios", "nvmlDeviceGetVbiosVersion"),
        ):
            try:
                identity[field] = self.driver.text(symbol, self.handle)
            except RefusedError as refusal:
                if is_gone(refusal) and field == "uuid":
                    raise
        if not identity.get("uuid"):
            identity["uuid"] = "pci:%s" % identity.get("pci_id", "index-%s" % self.index)
        try:
            identity["compute_capability"] = "%d.%d" % tuple(
                self.driver.ask("nvmlDeviceGetCudaComputeCapability", self.handle)
            )
        except RefusedError:
            pass
        return identity

    def read(self, slow_every_s):
        """A row for now; raise RefusedError where the card is gone."""
        now = time.monotonic()
        if self._slow_at is None or now - self._slow_at >= slow_every_s:
            self._slow = self._read_slow()
            self._slow_at = now
        row = Row()
        row.update(self._slow)
        self._read_numbers(row, NUMBERS)
        self._read_memory(row)
        self._read_utilisation(row)
        self._read_state(row)
        self._read_fields(row)
        if self.mig_mode:
            # 0 here misled people (dask/distributed#8693, DCGM#80): it is no reading
            for field in MIG_PARENT_FIELDS:
                row.miss(field, "mig-parent")
        if self.unified:
            # what GB10 says of its link means nothing (lablup/all-smi#146)
            for field in MEASURED:
                if field.startswith("pcie_"):
                    row.miss(field, "unsupported")
        return row

    def _read_numbers(self, row, table):
        for field, calls, low, high, scale in table:
            full = [(call[0], self.handle) + call[1:] for call in calls]
            row.take(field, lambda calls=full: self.driver.first(*calls), low, high, scale)

    def _read_slow(self):
        row = Row()
        ask, handle = self.driver.ask, self.handle
        self._read_numbers(row, SLOW_NUMBERS)
        row.take("persistence_mode", lambda: bool(ask("nvmlDeviceGetPersistenceMode", handle)))
        row.take(
            "compute_mode", lambda: _named(COMPUTE_MODES, ask("nvmlDeviceGetComputeMode", handle))
        )
        row.take("mig_mode", lambda: bool(ask("nvmlDeviceGetMigMode", handle)[0]))
        if row.unknown.pop("mig_mode", None) is not None:
            row.put("mig_mode", False)
        self.mig_mode = row.values["mig_mode"]
        row.take(
            "retired_pages",
            lambda: sum(len(ask("nvmlDeviceGetRetiredPages", handle, cause)) for cause in (0, 1)),
        )
        try:
            remapped = ask("nvmlDeviceGetRemappedRows", handle)
            row.put("row_remap_pending", bool(remapped[2]))
            row.put("row_remap_failed", bool(remapped[3]))
        except RefusedError as refusal:
            if is_gone(refusal):
                raise
            row.miss("row_remap_pending", refusal.reason)
            row.miss("row_remap_failed", refusal.reason)
        fields = self._fields(FIELD_RECOVERY_ACTION, FIELD_SLOWDOWN_TLIMIT)
        row.take(
            "recovery_action",
            lambda: _named(RECOVERY_ACTIONS, _field(fields, FIELD_RECOVERY_ACTION)),
        )
        row.take("temperature_slowdown_c", lambda: self._slowdown(fields), 20, 200)
        return row

    def _slowdown(self, fields):
        """The temperature at which the hardware slows down.

        Cards before Ada give it. Later ones give distances: the reading now, the margin
        left to the highest working temperature, and where slowdown begins on that scale
        (nvidia-smi's manual, "T.Limit"): temperature + margin - T.Limit of slowdown.
        """
        try:
            return self.driver.ask("nvmlDeviceGetTemperatureThreshold", self.handle, 1)
        except RefusedError as refusal:
            if is_gone(refusal):
                raise
            first = refusal
        try:
            limit = _field(fields, FIELD_SLOWDOWN_TLIMIT)
            margin = self.driver.ask("nvmlDeviceGetMarginTemperature", self.handle)
            now = self.driver.first(
                ("nvmlDeviceGetTemperatureV", self.handle, 0),
                ("nvmlDeviceGetTemperature", self.handle, 0),
            )
        except RefusedError as refusal:
            if is_gone(refusal):
                raise
            raise first
        return now + margin - limit

    def _read_memory(self, row):
        """v2 keeps the driver's reserve apart from what is used; v1 counts it as used.

        v2 came with R510 and gives an unknown error on some WSL (nvitop PR#30): so any
        refusal but a lost card leads to v1.
        """
        info = None
        reason = "unsupported"
        try:
            info = self.driver.ask("nvmlDeviceGetMemoryInfo", self.handle, MEMORY_V2_WORD)
        except RefusedError as refusal:
            if is_gone(refusal):
                raise
            reason = refusal.reason
        reserved = None
        if info is not None:
            reserved = info.reserved
        else:
            try:
                info = self.driver.ask("nvmlDeviceGetMemoryInfo", self.handle)
                reason = "no-symbol"
            except RefusedError as refusal:
                if is_gone(refusal):
                    raise
                reason = refusal.reason
        refused = info is None or info.total == 0
        if refused and (info is not None or reason == "unsupported") and self._is_integrated():
            self._read_shared_memory(row)
            return
        self.unified = False
        if refused:
            for field in ("total", "used", "free", "reserved"):
                row.miss("memory_%s_bytes" % field, reason if info is None else "nonsense")
            return
        total = info.total
        row.put("memory_total_bytes", total, 1, 1024 * 1024 * GIB)
        row.put("memory_used_bytes", info.used, 0, total)
        row.put("memory_free_bytes", info.free, 0, total)
        if reserved is None:
            row.miss("memory_reserved_bytes", reason)
        else:
            row.put("memory_reserved_bytes", reserved, 0, total)

    def _is_integrated(self):
        """A refusal alone is no proof of shared memory: lost cards and vGPUs refuse too."""
        name = self.identity.get("name") or ""
        if any(word.lower() in name.lower() for word in INTEGRATED_NAMES):
            return True
        try:
            mode = self.driver.ask("nvmlDeviceGetAddressingMode", self.handle)
        except RefusedError:
            return False
        return mode == ADDRESSING_ATS

    def _read_shared_memory(self, row):
        self.unified = True
        row.put("unified_memory", True)
        total, available = self.presence.memory()
        row.miss("memory_reserved_bytes", "unsupported")
        if not total or available is None:
            for field in ("total", "used", "free"):
                row.miss("memory_%s_bytes" % field, "unreadable")
            return
        row.put("memory_total_bytes", total)
        row.put("memory_free_bytes", available, 0, total)
        row.put("memory_used_bytes", total - available, 0, total)

    def _read_utilisation(self, row):
        try:
            rates = self.driver.ask("nvmlDeviceGetUtilizationRates", self.handle)
            row.put("util_percent", rates.gpu, 0, 100)
            row.put("memory_util_percent", rates.memory, 0, 100)
        except RefusedError as refusal:
            if is_gone(refusal):
                raise
            row.miss("util_percent", refusal.reason)
            row.miss("memory_util_percent", refusal.reason)
        for field, name in (
            ("encoder_percent", "nvmlDeviceGetEncoderUtilization"),
            ("decoder_percent", "nvmlDeviceGetDecoderUtilization"),
        ):
            row.take(field, lambda name=name: self.driver.ask(name, self.handle)[0], 0, 100)

    def _read_state(self, row):
        row.take(
            "performance_state",
            lambda: self.driver.ask("nvmlDeviceGetPerformanceState", self.handle),
            0,
            32,
        )
        if row.values.get("performance_state") == 32:
            row.miss("performance_state", "no-data")
        row.take("throttle_reasons", self._throttle_reasons)

    def _throttle_reasons(self):
        mask = self.driver.first(
            ("nvmlDeviceGetCurrentClocksEventReasons", self.handle),
            ("nvmlDeviceGetCurrentClocksThrottleReasons", self.handle),
        )
        names = [name for bit, name in THROTTLE_REASONS if mask & bit]
        rest = mask & ~(sum(bit for bit, _ in THROTTLE_REASONS) | 1)
        return names + (["bits-0x%x" % rest] if rest else [])

    def _read_fields(self, row):
        fields = self._fields(FIELD_MEMORY_TEMPERATURE, FIELD_PCIE_TX, FIELD_PCIE_RX)
        now = time.monotonic()
        row.take("memory_temperature_c", lambda: _field(fields, FIELD_MEMORY_TEMPERATURE), -20, 150)
        before, self._pcie_before = self._pcie_before, (now, fields)
        for field, number in (
            ("pcie_tx_bytes_per_s", FIELD_PCIE_TX),
            ("pcie_rx_bytes_per_s", FIELD_PCIE_RX),
        ):
            # a TB/s is more than any link carries: then the counter did not count bytes
            row.take(field, lambda number=number: _rate(before, fields, number, now), 0, 1e12)

    def _fields(self, *numbers):
        """number -> value or RefusedError, by one call for all of them."""
        try:
            answers = self.driver.ask("nvmlDeviceGetFieldValues", self.handle, list(numbers))
        except RefusedError as refusal:
            if is_gone(refusal):
                raise
            return dict((number, refusal) for number in numbers)
        return dict((answer.fieldId, _value_of(answer)) for answer in answers)


def _value_of(answer):
    if answer.nvmlReturn:
        return RefusedError(answer.nvmlReturn)
    names = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    if not 0 <= answer.valueType < len(names):
        return RefusedError(25)
    return getattr(answer.value, names[answer.valueType])


def _field(fields, number):
    value = fields.get(number)
    if value is None:
        raise RefusedError(21)
    if isinstance(value, RefusedError):
        raise value
    return value


def _rate(before, fields, number, now):
    """Bytes a second since the reading before; a counter that went back gives none."""
    value = _field(fields, number)
    if before is None:
        raise RefusedError(21)
    earlier, old = before[0], before[1].get(number)
    if old is None or isinstance(old, RefusedError) or now - earlier < 0.05 or value < old:
        raise RefusedError(21)
    return int((value - old) / (now - earlier))


def _named(names, number):
    return names[number] if 0 <= number < len(names) else "code-%d" % number
