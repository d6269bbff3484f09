"""A row of readings: values within bounds, and a reason for each that is missing.

Runs on the host under Python 3.6 or newer, standard library only.
"""

from gpumon_probe_nvml_driver import RefusedError, is_gone

#: every measured field of a card: what is unknown of one that cannot be read
MEASURED = (
    "memory_total_bytes",
    "memory_used_bytes",
    "memory_free_bytes",
    "memory_reserved_bytes",
    "util_percent",
    "memory_util_percent",
    "encoder_percent",
    "decoder_percent",
    "temperature_c",
    "temperature_slowdown_c",
    "memory_temperature_c",
    "power_w",
    "power_limit_w",
    "energy_j",
    "fan_percent",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "max_sm_clock_mhz",
    "max_memory_clock_mhz",
    "memory_bus_bits",
    "performance_state",
    "throttle_reasons",
    "pcie_generation",
    "pcie_width",
    "pcie_generation_max",
    "pcie_width_max",
    "pcie_tx_bytes_per_s",
    "pcie_rx_bytes_per_s",
    "ecc_corrected",
    "ecc_uncorrected",
    "retired_pages",
    "row_remap_pending",
    "row_remap_failed",
    "recovery_action",
    "persistence_mode",
    "compute_mode",
)


class Row(object):
    """Values and reasons of one card or slice; a field is in one of the two."""

    def __init__(self):
        self.values = {}
        self.unknown = {}

    def put(self, field, value, low=None, high=None):
        """Keep a value, or its being nonsense.

        A success is no proof: a 32-bit library told of millions of watts
        (flightlessmango/MangoHud#1607), utilisation went over 100 (dcgm-exporter#418).
        """
        if low is not None and not low <= value <= high:
            self.miss(field, "nonsense")
            return
        self.values[field] = value
        self.unknown.pop(field, None)

    def miss(self, field, reason):
        """The field has no value, for that reason."""
        self.values.pop(field, None)
        self.unknown[field] = reason

    def take(self, field, read, low=None, high=None, scale=None):
        """Keep what ``read()`` returns, times ``scale``; a card that is gone raises."""
        try:
            value = read()
        except RefusedError as refusal:
            if is_gone(refusal):
                raise
            self.miss(field, refusal.reason)
            return
        self.put(field, value if scale is None else value * scale, low, high)

    def update(self, other):
        """Take over all of another row."""
        for field, value in other.values.items():
            self.put(field, value)
        for field, reason in other.unknown.items():
            self.miss(field, reason)

    def as_dict(self, **more):
        """The row as it travels: known values, and ``unknown`` for the others."""
        row = dict(self.values)
        row.update((key, value) for key, value in more.items() if value is not None)
        row["unknown"] = dict(self.unknown)
        return row


def blank_row(identity, state, reason, detail=None):
    """A card that is there but can't be read: its identity, and one reason for all."""
    row = dict((key, value) for key, value in identity.items() if value is not None)
    row["state"] = state
    if detail:
        row["detail"] = detail
    row["unknown"] = dict((field, reason) for field in MEASURED)
    return row
