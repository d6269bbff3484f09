"""Scenario files for the mock driver, and fake /sys and /proc trees to go with them."""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

__all__ = [
    "Section",
    "asleep",
    "bad_names",
    "card_tree",
    "eight_with_lost_and_na",
    "hang",
    "information",
    "lost_uuid",
    "mig",
    "mismatch",
    "proc_tree",
    "single_4090",
    "unified",
    "write_scenario",
]

Section = Mapping[str, object]
MIB, GIB = 1024**2, 1024**3

SYSTEM_610: Section = {"driver": "610.57.04", "nvml": "13.610.57.04", "cuda": 13020}

H100: Section = {
    "name": "NVIDIA H100 80GB HBM3",
    "vbios": "96.00.A5.00.01",
    "device_id": "0x233010de",
    "capability": "9.0",
    "mem_total": "81559Mi",
    "mem_reserved": "479Mi",
    "bus_bits": 5120,
    "limit_mw": 700000,
    "temp_slowdown": 87,
    "max_clock_sm": 1980,
    "max_clock_mem": 2619,
    "clock_mem": 2619,
    "pcie_gen": 5,
    "pcie_gen_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "persistence": 1,
    "compute_mode": 0,
    "ecc": 1,
    "ecc_corr": 0,
    "ecc_unc": 0,
    "remap_pending": 0,
    "remap_failed": 0,
    "enc": 0,
    "dec": 0,
    "mig": 0,
    "mig_max": 7,
    "gpm": 1,
    "addressing": 0,
    "field.230": 0,
}


def write_scenario(path: Path, sections: Mapping[str, Section]) -> Path:
    """Write sections as INI, whole or not at all: a reader may look at any moment."""
    lines: list[str] = []
    for name, values in sections.items():
        lines.append(f"[{name}]")
        lines += [f"{key}={value}" for key, value in values.items()]
    half_done = path.with_name(path.name + ".new")
    half_done.write_text("\n".join(lines) + "\n", encoding="utf-8")
    half_done.replace(path)
    return path


def _h100(
    index: int, *, used_mib: int, util: str, power: str, temp: str, **more: object
) -> Section:
    buses = (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB)
    return {
        **H100,
        "uuid": f"GPU-7c1d0{index}a2-4b1e-9f3{index}-8d62-0e5f1a9c3b7{index}",
        "pci": f"0000:{buses[index]:02x}:00.0",
        "minor": index,
        "mem_used": f"{used_mib}Mi",
        "util": util,
        "mem_util": f"{20 + 3 * index}..{41 + 3 * index}/{17 + index}",
        "power_mw": power,
        "energy_mj": f"{48_000_000_000 + index * 917_000_000}+{310_000 + index * 9000}",
        "temp": temp,
        "clock_sm": f"{1700 - 15 * index}..{1980 - 15 * index}/{11 + index}",
        "pstate": 0,
        "reasons": "0x0",
        "field.82": 61 + index,
        "field.197": f"1000000+{2_400_000 + index * 100_000}",
        "field.198": f"5000000+{7_100_000 + index * 300_000}",
        **more,
    }


def eight_with_lost_and_na(
    path: Path, *, processes: Mapping[int, Sequence[tuple[int, int]]] | None = None
) -> Path:
    """Eight H100: number 5 fell off the bus (rc 15), number 6 has no util and power.

    ``processes``: index -> (pid, bytes) on that card; without, made-up pids on four cards.
    """
    by_card = processes or {
        0: [(31821, 67_243_081_728)],
        1: [(31821, 66_120_056_832)],
        3: [(40233, 21_118_320_640), (40977, 3_221_225_472)],
        7: [(51002, 512 * MIB)],
    }
    loads = (
        (64129, "88..99/23", "540000..689000/23", "61..68/40"),
        (63058, "84..97/19", "520000..671000/19", "59..66/37"),
        (0, "0", "71230", "31"),
        (23212, "0>0>37>88>91>12@3", "118400..402000/18", "44..55/60"),
        (0, "0", "69874", "29"),
        (11125, "50", "300000", "50"),
        (41007, "na", "na", "47..49/90"),
        (512, "3", "92311", "35"),
    )
    sections: dict[str, Section] = {"system": SYSTEM_610}
    for index, (used, util, power, temp) in enumerate(loads):
        more: dict[str, object] = {}
        if index == 0:
            more = {"reasons": "0x4"}
        if index == 3:
            more = {"ecc_corr": 12, "remap_pending": 1, "field.230": 1}
        if index == 5:
            more = {"rc.*": 15}
        if index in (2, 4):
            more = {"reasons": "0x1", "pstate": 8, "clock_sm": 345}
        sections[f"gpu{index}"] = _h100(
            index, used_mib=used, util=util, power=power, temp=temp, **more
        )
        for place, (pid, size) in enumerate(by_card.get(index, ())):
            sections[f"gpu{index}.proc{place}"] = {
                "pid": pid,
                "type": "c",
                "mem": size,
                "sm": 7 + 11 * (index + place),
            }
    return write_scenario(path, sections)


def lost_uuid() -> str:
    """UUID of the lost card of ``eight_with_lost_and_na``."""
    return str(_h100(5, used_mib=0, util="0", power="0", temp="0")["uuid"])


def mig(path: Path, *, pids: Sequence[int] = (2711, 2894, 3120)) -> Path:
    """An H100 cut into 3g.40gb, 2g.20gb and 1g.10gb (indexes 0, 1, 3), beside a whole one."""
    sections: dict[str, Section] = {
        "system": SYSTEM_610,
        "gpu0": {
            **_h100(0, used_mib=52817, util="na", power="412345", temp="57"),
            "mig": 1,
            "enc": "na",
            "dec": "na",
        },
        "gpu1": _h100(1, used_mib=6, util="0", power="73002", temp="33"),
    }
    slices = (
        (0, "3g.40gb", 1, "40320Mi", "31987Mi", 3, "71..83/20"),
        (1, "2g.20gb", 3, "19968Mi", "16384Mi", 2, "12"),
        (3, "1g.10gb", 9, "9856Mi", "4446Mi", 1, "0"),
    )
    for index, profile, instance, total, used, count, util in slices:
        sections[f"gpu0.mig{index}"] = {
            "name": f"NVIDIA H100 80GB HBM3 MIG {profile}",
            "uuid": f"MIG-0f7a5c1{index}-6d0b-5be4-a3d9-{index}b8e4c92f610",
            "gi": instance,
            "ci": 0,
            "mem_total": total,
            "mem_used": used,
            "gpu_slices": count,
            "util": util,
        }
    for place, (pid, index, size) in enumerate(
        zip(pids, (0, 0, 1), (19_327_352_832, 13_958_643_712, 16_911_433_728), strict=False)
    ):
        sections[f"gpu0.proc{place}"] = {
            "pid": pid,
            "type": "c",
            "mem": size,
            "gi": slices[index][2],
            "ci": 0,
        }
    return write_scenario(path, sections)


def hang(path: Path, *, call: str = "DeviceGetUtilizationRates", hung: bool = True) -> Path:
    """Two H100 where one call never returns while ``hung``."""
    return write_scenario(
        path,
        {
            "system": {**SYSTEM_610, f"hang.{call}": int(hung)},
            "gpu0": _h100(0, used_mib=64129, util="91", power="633500", temp="66"),
            "gpu1": _h100(1, used_mib=0, util="0", power="70110", temp="30"),
        },
    )


def unified(path: Path, *, pid: int = 4242) -> Path:
    """A GB10: no memory of its own, but processes with memory (nvitop#208)."""
    return write_scenario(
        path,
        {
            "system": {"driver": "580.95.05", "nvml": "13.580.95.05", "cuda": 13000},
            "gpu0": {
                "name": "NVIDIA GB10",
                "uuid": "GPU-c2a9e41d-77f0-1b3c-5a86-93d04f6be218",
                "pci": "000f:01:00.0",
                "capability": "12.1",
                "addressing": 2,
                "util": "96",
                "mem_util": 0,
                "temp": 64,
                "power_mw": 38211,
                "clock_sm": 2405,
                "max_clock_sm": 3003,
                "pstate": 0,
                "reasons": "0x0",
                "pcie_gen": 1,
                "pcie_width": 1,
                "persistence": 1,
                "energy_mj": "812000000+38000",
            },
            "gpu0.proc0": {"pid": pid, "type": "c", "mem": 23_622_320_128, "sm": 95},
        },
    )


def bad_names(path: Path) -> Path:
    """Names that are not UTF-8 (555.85, gpustat#170) or hold escapes, and values out of bounds."""
    escape = "\\x1b[31mRED\\x1b[0m"
    return write_scenario(
        path,
        {
            "system": SYSTEM_610,
            "gpu0": {
                **_h100(0, used_mib=1024, util="250", power="4294967295", temp="-256"),
                "name": "NVIDIA \\xff\\xfe GeForce\\xe9",
                "fan": 4000000,
            },
            "gpu1": {
                **_h100(1, used_mib=2048, util="7", power="91000", temp="40"),
                "name": f'{escape} H100, "PCIe" \\xe2\\x80\\xaeder',
            },
        },
    )


def single_4090(
    path: Path,
    *,
    used_bytes: int | str = 9_663_676_416,
    processes: Iterable[tuple[int, int]] = (),
    util: str = "71..97/13",
) -> Path:
    """One RTX 4090 as a desktop has it, with given processes (pid, bytes)."""
    sections: dict[str, Section] = {
        "system": {"driver": "580.95.05", "nvml": "13.580.95.05", "cuda": 13000},
        "gpu0": {
            "name": "NVIDIA GeForce RTX 4090",
            "uuid": "GPU-5b0f2c77-1e6d-4a90-bb23-6c98d1f0a4e5",
            "pci": "0000:01:00.0",
            "vbios": "95.02.3C.40.A8",
            "device_id": "0x268410de",
            "capability": "8.9",
            "mem_total": "24564Mi",
            "mem_reserved": "455Mi",
            "mem_used": used_bytes,
            "util": util,
            "mem_util": "31..58/13",
            "enc": 0,
            "dec": 0,
            "power_mw": "211000..344000/13",
            "limit_mw": 450000,
            "energy_mj": "977000000+260000",
            "temp": "52..63/70",
            "margin": 21,
            "field.194": -2,
            "fan": 41,
            "clock_sm": 2730,
            "max_clock_sm": 3105,
            "clock_mem": 10501,
            "max_clock_mem": 10501,
            "bus_bits": 384,
            "pstate": 2,
            "reasons": "0x0",
            "pcie_gen": 4,
            "pcie_gen_max": 4,
            "pcie_width": 16,
            "pcie_width_max": 16,
            "field.197": "1000+1500000",
            "field.198": "1000+4200000",
            "persistence": 0,
            "compute_mode": 0,
        },
    }
    for place, (pid, size) in enumerate(processes):
        sections[f"gpu0.proc{place}"] = {"pid": pid, "type": "c", "mem": size, "sm": 88 - place}
    return write_scenario(path, sections)


def mismatch(path: Path) -> Path:
    """Kernel module and library of different versions: init answers 18."""
    return write_scenario(path, {"system": {"rc.InitWithFlags": 18, "rc.Init_v2": 18}})


def card_tree(
    root: Path,
    pci_id: str,
    *,
    driver: str | None = "nvidia",
    status: str = "active",
    control: str = "on",
    device: str = "0x2684",
    vendor: str = "0x10de",
) -> Path:
    """A display-class PCI device in a fake sysfs under ``root``; the device's folder."""
    folder = root / "bus/pci/devices" / pci_id
    (folder / "power").mkdir(parents=True, exist_ok=True)
    (folder / "vendor").write_text(vendor + "\n")
    (folder / "device").write_text(device + "\n")
    (folder / "class").write_text("0x030000\n")
    (folder / "power/runtime_status").write_text(status + "\n")
    (folder / "power/control").write_text(control + "\n")
    link = folder / "driver"
    if link.is_symlink():
        link.unlink()
    if driver is not None:
        target = root / "bus/pci/drivers" / driver
        target.mkdir(parents=True, exist_ok=True)
        # what a glob over the driver's folder also yields (omen-space#191)
        (target / "bind").touch()
        link.symlink_to(os.path.relpath(target, folder))
    return folder


def asleep(root: Path, pci_id: str = "0000:01:00.0") -> Path:
    """A laptop's card that the kernel has suspended; its folder in the fake sysfs."""
    return card_tree(root, pci_id, status="suspended", control="auto", device="0x28a0")


def information(proc: Path, pci_id: str, name: str, uuid: str) -> Path:
    """What the kernel module says of one card under /proc/driver/nvidia/gpus."""
    folder = proc / "driver/nvidia/gpus" / pci_id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "information").write_text(
        f"Model: \t\t {name}\nIRQ:   \t\t 147\nGPU UUID: \t {uuid}\n"
        f"Video BIOS: \t 96.00.a5.00.01\nBus Type: \t PCIe\nBus Location: \t {pci_id}\n"
        "Device Minor: \t 0\nGPU Excluded:\t No\n"
    )
    return folder


def proc_tree(proc: Path, scenario: Path, version: str = "610.57.04") -> Path:
    """A fake /proc that lists a scenario's cards as the kernel module does."""
    cards = configparser.ConfigParser(interpolation=None, strict=False)
    cards.read(scenario)
    for section in cards.sections():
        if re.fullmatch(r"gpu\d+", section):
            card = cards[section]
            information(proc, card["pci"], card["name"], card["uuid"])
    (proc / "driver/nvidia/version").write_text(
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Thu Nov  6 22:01:53 UTC 2026\n"
    )
    return proc
