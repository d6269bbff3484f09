"""What is wrong with a host's NVIDIA driver, told apart without root and without NVML.

Runs on the host under Python 3.6 or newer, standard library only.
"""

import os

from gpumon_probe_nvml_driver import (
    DRIVER_NOT_LOADED,
    MISMATCH,
    NO_LIBRARY,
    NO_PERMISSION,
    OPERATING_SYSTEM,
    UNKNOWN,
)
from gpumon_probe_nvml_row import blank_row


def without_driver(presence, cards):
    """(state, detail) where no nvidia kernel module answers, from what is bound to the cards."""
    bound = sorted(set(card.driver for card in cards if card.driver))
    if not cards:
        return "absent", None
    if "nouveau" in bound:
        return "nouveau", "the cards are bound to nouveau: it offers no readings"
    if any(name.startswith("vfio") for name in bound):
        return "no-driver", "the cards are bound to %s, given to a virtual machine" % bound[0]
    release = os.uname().release
    if presence.module_built():
        return "no-driver", (
            "the nvidia module is built for kernel %s but not loaded: "
            "see dmesg (Secure Boot?), or sudo modprobe nvidia" % release
        )
    return "no-driver", "no nvidia module is built for the running kernel %s" % release


def without_library(presence, cards, tried):
    """(state, detail) where libnvidia-ml.so.1 can't be loaded."""
    if presence.module_version() is None and "nvidia" not in [card.driver for card in cards]:
        if not presence.wsl() and not presence.tegra():
            return without_driver(presence, cards)
    return "library-missing", "libnvidia-ml.so.1 can't be loaded: %s" % tried


def init_refused(presence, cards, code, library_version):
    """(state, detail) for a code that NVML's init gave."""
    if code == DRIVER_NOT_LOADED:
        if presence.module_version() is None:
            return without_driver(presence, cards)
        return "error", "the nvidia module is loaded, but its library says it is not"
    if code == MISMATCH:
        return "mismatch", (
            "kernel module %s, library %s: the driver was upgraded under it; "
            "reboot, or unload and load the nvidia module"
            % (presence.module_version() or "?", library_version or "another version")
        )
    if code == NO_PERMISSION:
        return "no-permission", "no permission on /dev/nvidia*: see their owner and group"
    if code == OPERATING_SYSTEM:
        return "no-permission", "the operating system blocks the GPU (cgroup, or WSL's host)"
    if code == NO_LIBRARY:
        return "library-missing", "libnvidia-ml.so.1 misses a library of its own driver"
    if code == UNKNOWN:
        return "error", (
            "NVML's init failed with an unknown error; in a container: "
            "it may have lost its device nodes, restart it"
        )
    return "error", "NVML's init failed with code %d" % code


def no_card_found(presence, cards):
    """(state, detail) where init succeeded and the count is 0."""
    mine = [card for card in cards if card.driver == "nvidia"]
    if mine or presence.information():
        return "error", "the driver could bring up none of its cards (RmInitAdapter?): see dmesg"
    return without_driver(presence, cards)


def identity_of(card, information):
    """What is known of a PCI card that NVML does not show."""
    known = information.get(card.pci_id) or {}
    return {
        "uuid": known.get("uuid") or "pci:%s" % card.pci_id,
        "pci_id": card.pci_id,
        "name": known.get("name") or "NVIDIA [10de:%s]" % card.device_id,
    }


def rows_without_nvml(cards, information, state, detail):
    """A row per PCI card where NVML can't be used."""
    rows = []
    for card in cards:
        identity = identity_of(card, information)
        if card.asleep:
            rows.append(blank_row(identity, "asleep", "asleep"))
        elif state in ("no-driver", "nouveau", "absent"):
            bound = "driver %s" % card.driver if card.driver else "no driver"
            rows.append(blank_row(identity, "no-driver", "no-driver", bound))
        else:
            rows.append(blank_row(identity, "error", "driver-error", detail))
    return rows
