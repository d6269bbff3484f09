"""AMD cards by the files of the amdgpu driver: no library, no privilege.

Meanings and traps of the files: Documentation/gpu/amdgpu of the kernel, nvtop's
extract_gpuinfo_amdgpu.c, aristocratos/btop#1794 (busy absent), lm-sensors#349 (reading
hwmon wakes a sleeping card: runtime_status is read first).
Runs on the host under Python 3.6 or newer, standard library only.
"""

import glob
import os
import threading
import time

from gpumon_probe_amd_processes import read_processes
from gpumon_probe_nvml_presence import Presence, read_text
from gpumon_probe_nvml_row import Row, blank_row

AMD_VENDOR = "0x1002"
IDS_FILE = "/usr/share/libdrm/amdgpu.ids"
#: GT/s of a link -> PCIe generation
GENERATIONS = {"2.5": 1, "5": 2, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
#: what amdgpu has no file for that could be read without harm
NEVER = (
    "memory_reserved_bytes",
    "encoder_percent",
    "decoder_percent",
    "energy_j",
    "max_sm_clock_mhz",
    "max_memory_clock_mhz",
    "memory_bus_bits",
    "performance_state",
    "throttle_reasons",
    # pcie_bw sleeps for a second in the kernel (nvtop#208)
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


class AmdCards(object):
    """The AMD cards of a host; which there are is looked up once in ``look_every_s``."""

    def __init__(self, sysfs_root=None, proc_root=None, look_every_s=10.0):
        self.presence = Presence(sysfs_root, proc_root)
        self._look_every_s = look_every_s
        self._cards = []
        self._looked_at = None

    def read(self):
        """A row per card, in the order of their PCI ids."""
        now = time.monotonic()
        if self._looked_at is None or now - self._looked_at >= self._look_every_s:
            # a server has hundreds of PCI devices: not at every tick
            self._cards, self._looked_at = self.presence.cards(AMD_VENDOR), now
        return [_read_card(card, index) for index, card in enumerate(self._cards)]


class AmdReader(object):
    """Reads the AMD cards in a thread of its own: a sick card hangs its files too.

    The same shape as ``NvmlReader``: start, set, stop, snapshot.
    """

    def __init__(self, sysfs_root=None, proc_root=None):
        self.cards = AmdCards(sysfs_root, proc_root)
        self.interval_s = 2.0
        self._wake = threading.Event()
        self._stopped = False
        self._reads_processes_at = 0.0
        self._slow_every_s = 10.0
        self._published = {"gpus": [], "gpus_mono": None, "processes": None}

    def start(self, interval_s, slow_every_s=10.0):
        """Begin to read."""
        self.set(interval_s, slow_every_s)
        thread = threading.Thread(target=self._run, name="amd")
        thread.daemon = True
        thread.start()

    def set(self, interval_s=None, slow_every_s=None):
        """Change the cadence; takes effect after the present wait."""
        if interval_s:
            self.interval_s = float(interval_s)
        if slow_every_s:
            self._slow_every_s = float(slow_every_s)

    def stop(self):
        """End after the present round."""
        self._stopped = True
        self._wake.set()

    def snapshot(self):
        """{"gpus": rows, "gpus_mono": float or None, "processes": rows or None}."""
        return dict(self._published)

    def _run(self):
        while not self._stopped:
            started = time.monotonic()
            gpus = self.cards.read()
            processes = self._published["processes"]
            if started >= self._reads_processes_at:
                self._reads_processes_at = started + self._slow_every_s
                processes = read_processes(self.cards.presence, gpus)
            self._published = {
                "gpus": gpus,
                "gpus_mono": time.monotonic(),
                "processes": processes,
            }
            self._wake.wait(max(0.05, self.interval_s - (time.monotonic() - started)))


_CARDS = []


def read_gpus():
    """A row per AMD card of this host; the caller minds that it may hang."""
    if not _CARDS:
        _CARDS.append(AmdCards())
    return _CARDS[0].read()


def _read_card(card, index):
    identity = {
        "vendor": "amd",
        "index": index,
        "pci_id": card.pci_id,
        "uuid": "pci:%s" % card.pci_id,
        "name": "AMD [1002:%s]" % card.device_id,
    }
    if card.driver != "amdgpu":
        bound = "driver %s" % card.driver if card.driver else "no driver"
        return blank_row(identity, "no-driver", "no-driver", bound)
    # identity files are answered by the driver's memory, not by the card
    unique = read_text(card.path, "unique_id")
    if unique and unique.strip("0"):
        identity["uuid"] = "AMD-%s" % unique
    identity["name"] = _name(card) or identity["name"]
    if card.asleep:
        return blank_row(identity, "asleep", "asleep")
    identity["vbios"] = read_text(card.path, "vbios_version")
    row = Row()
    for field in NEVER:
        row.miss(field, "unsupported")
    _read_memory(row, card.path)
    _number(row, "util_percent", 1, 100, card.path, "gpu_busy_percent")
    _number(row, "memory_util_percent", 1, 100, card.path, "mem_busy_percent")
    _read_link(row, card.path)
    monitors = sorted(glob.glob(os.path.join(card.path, "hwmon/hwmon*")))
    _read_monitor(row, monitors[0] if monitors else os.path.join(card.path, "hwmon"))
    return row.as_dict(**identity)


def _name(card):
    """product_name where the board has one, else the name in libdrm's table."""
    product = read_text(card.path, "product_name")
    if product:
        return product
    revision = (read_text(card.path, "revision") or "")[2:]
    wanted = (card.device_id.lower(), revision.lower())
    for line in (read_text(IDS_FILE) or "").splitlines():
        parts = [part.strip() for part in line.split(",", 2)]
        if len(parts) == 3 and (parts[0].lower(), parts[1].lower()) == wanted:
            return parts[2]
    return None


def _number(row, field, divisor, highest, *places, **bounds):
    """The first of several files that holds a number, in the field's unit."""
    names = places[1:]
    for name in names:
        text = read_text(places[0], name)
        if text is None:
            continue
        try:
            value = int(text)
        except ValueError:
            continue
        lowest = bounds.get("lowest", 0)
        row.put(field, value if divisor == 1 else value / float(divisor), lowest, highest)
        return
    row.miss(field, "unsupported")


def _read_memory(row, path):
    _number(row, "memory_total_bytes", 1, 2**50, path, "mem_info_vram_total", lowest=1)
    total = row.values.get("memory_total_bytes", 0)
    _number(row, "memory_used_bytes", 1, total, path, "mem_info_vram_used")
    if "memory_used_bytes" in row.values:
        row.put("memory_free_bytes", total - row.values["memory_used_bytes"])
    else:
        row.miss("memory_free_bytes", row.unknown["memory_used_bytes"])


def _read_link(row, path):
    for field, name in (
        ("pcie_generation", "current_link_speed"),
        ("pcie_generation_max", "max_link_speed"),
    ):
        speed = (read_text(path, name) or "").partition(" ")[0]
        if speed in GENERATIONS:
            row.put(field, GENERATIONS[speed])
        else:
            row.miss(field, "unsupported")
    _number(row, "pcie_width", 1, 32, path, "current_link_width", lowest=1)
    _number(row, "pcie_width_max", 1, 32, path, "max_link_width", lowest=1)


def _read_monitor(row, path):
    _number(row, "temperature_c", 1000, 150, path, "temp1_input", lowest=-20)
    _number(row, "temperature_slowdown_c", 1000, 200, path, "temp1_crit", lowest=20)
    # average on most, input on some (MangoHud#1620); both in microwatts
    _number(row, "power_w", 1000000, 5000, path, "power1_average", "power1_input")
    _number(row, "power_limit_w", 1000000, 5000, path, "power1_cap", lowest=1)
    _number(row, "sm_clock_mhz", 1000000, 50000, path, "freq1_input")
    _number(row, "memory_clock_mhz", 1000000, 50000, path, "freq2_input")
    for field in ("sm_clock_mhz", "memory_clock_mhz"):
        if field in row.values:
            row.put(field, int(row.values[field]))
    _number(row, "fan_percent", 2.55, 101, path, "pwm1")
    if "fan_percent" in row.values:
        row.put("fan_percent", round(row.values["fan_percent"], 1))
    memory = [
        label for label in glob.glob(os.path.join(path, "temp*_label")) if read_text(label) == "mem"
    ]
    if memory:
        name = os.path.basename(memory[0]).replace("_label", "_input")
        _number(row, "memory_temperature_c", 1000, 150, path, name, lowest=-20)
    else:
        row.miss("memory_temperature_c", "unsupported")
