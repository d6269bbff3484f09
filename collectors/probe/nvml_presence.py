"""What /sys and /proc say of NVIDIA cards, before and without the driver's library.

Nothing here opens a device node: reading these files never wakes a card that
sleeps (runtime_status is answered by the kernel's PCI core, not by the card).
Runs on the host under Python 3.6 or newer, standard library only.
"""

import glob
import os
import re

NVIDIA_VENDOR = "0x10de"
ASLEEP = ("suspended", "suspending")


def read_text(*parts):
    """The text of a file, stripped; None where it can't be read."""
    try:
        with open(os.path.join(*parts), "rb") as source:
            return source.read(65536).decode("utf-8", "replace").strip()
    except OSError:
        return None


def pci_key(text):
    """(domain, bus, device, function) of a PCI id, or None.

    NVML writes an eight-digit domain, sysfs a four-digit one: only numbers compare.
    """
    match = re.match(r"^([0-9a-fA-F]+):([0-9a-fA-F]+):([0-9a-fA-F]+)(?:\.([0-9a-fA-F]+))?$", text)
    if not match:
        return None
    return tuple(int(part or "0", 16) for part in match.groups())


def pci_text(text):
    """A PCI id as sysfs writes it (``0000:17:00.0``); the text itself if it is none."""
    key = pci_key(text)
    return "%04x:%02x:%02x.%x" % key if key else text


class PciCard(object):
    """One graphics card or accelerator on PCI, as sysfs shows it."""

    def __init__(self, path):
        self.path = path
        self.pci_id = pci_text(os.path.basename(path))
        self.device_id = (read_text(path, "device") or "")[2:]
        try:
            self.driver = os.path.basename(os.readlink(os.path.join(path, "driver")))
        except OSError:
            self.driver = None

    @property
    def asleep(self):
        """True while the kernel has the card suspended: a reading would wake it."""
        status = read_text(self.path, "power", "runtime_status")
        if status is None or status == "unsupported":
            return (read_text(self.path, "power_state") or "").startswith("D3cold")
        return status in ASLEEP

    @property
    def may_sleep(self):
        """True where the kernel is allowed to suspend the card (laptops, mostly)."""
        return read_text(self.path, "power", "control") == "auto"


class Presence(object):
    """The NVIDIA side of /sys and /proc.

    ``sysfs_root`` and ``proc_root`` default to GPUMON_SYSFS_ROOT and
    GPUMON_PROC_ROOT, then to the real ones: tests show a tree of their own.
    """

    def __init__(self, sysfs_root=None, proc_root=None):
        self.sysfs_root = sysfs_root or os.environ.get("GPUMON_SYSFS_ROOT") or "/sys"
        self.proc_root = proc_root or os.environ.get("GPUMON_PROC_ROOT") or "/proc"

    def cards(self, vendor=NVIDIA_VENDOR):
        """Graphics cards and accelerators of a vendor in the order of their PCI ids."""
        found = []
        for path in glob.glob(os.path.join(self.sysfs_root, "bus/pci/devices/*")):
            if read_text(path, "vendor") != vendor:
                continue
            # display controllers, and processing accelerators (MI300X)
            if (read_text(path, "class") or "").startswith(("0x03", "0x12")):
                found.append(PciCard(path))
        return sorted(found, key=lambda card: pci_key(card.pci_id) or (0,))

    def information(self):
        """pci_id -> {"name", "uuid"} of the cards that the kernel module lists.

        A card that was never opened shows its UUID as question marks: then None.
        """
        found = {}
        for path in glob.glob(os.path.join(self.proc_root, "driver/nvidia/gpus/*")):
            text = read_text(path, "information") or ""
            fields = dict(
                (key.strip(), value.strip())
                for key, _, value in (line.partition(":") for line in text.splitlines())
            )
            uuid = fields.get("GPU UUID") or ""
            found[pci_text(os.path.basename(path))] = {
                "name": fields.get("Model") or None,
                "uuid": uuid if uuid.startswith("GPU-") and "?" not in uuid else None,
            }
        return found

    def module_version(self):
        """Version of the loaded kernel module, or None."""
        first = (read_text(self.proc_root, "driver/nvidia/version") or "").partition("\n")[0]
        match = re.search(r"(?<![\w.])(\d{3}\.\d+(?:\.\d+)?)(?![\w.])", first)
        return match.group(1) if match else None

    def module_built(self):
        """True where an nvidia module exists for the running kernel, loaded or not."""
        base = "/lib/modules/%s" % os.uname().release
        places = (
            "updates/dkms",
            "extra",
            "updates",
            "kernel/drivers/video",
            "video",
            "weak-updates",
        )
        return any(
            glob.glob("%s/%s/%s" % (base, place, pattern))
            for place in places
            for pattern in ("nvidia.ko*", "nvidia/nvidia.ko*")
        )

    def wsl(self):
        """True under WSL, where Windows owns the card and hides the processes."""
        return "microsoft" in (read_text(self.proc_root, "version") or "").lower()

    def tegra(self):
        """True on Jetson and its like: the GPU is no PCI device there."""
        return "nvidia,tegra" in (read_text(self.proc_root, "device-tree/compatible") or "")

    def memory(self):
        """(total, available) bytes of the system; None where unreadable."""
        found = {}
        for line in (read_text(self.proc_root, "meminfo") or "").splitlines():
            parts = line.split()
            if len(parts) >= 2 and parts[1].isdigit():
                found[parts[0].rstrip(":")] = int(parts[1]) * 1024
        return found.get("MemTotal"), found.get("MemAvailable")

    def on_battery(self):
        """True while a laptop runs on its battery."""
        supplies = glob.glob(os.path.join(self.sysfs_root, "class/power_supply/*"))
        return any(
            read_text(path, "type") == "Battery"
            and read_text(path, "scope") != "Device"
            and read_text(path, "status") == "Discharging"
            for path in supplies
        )
