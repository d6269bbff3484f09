"""Jetson and its like: what the kernel says of the GPU, for NVML says little or lies there.

NVML gives zeros with success on some (wentbackward/nv-monitor#17) and is missing on
others (JetPack 5). Runs on the host under Python 3.6 or newer, standard library only.
"""

import glob
import os

from gpumon_probe_nvml_presence import read_text
from gpumon_probe_nvml_row import blank_row

LOAD_FILES = ("devices/gpu.0/load", "devices/platform/gpu.0/load", "devices/platform/*/*gpu/load")


def read_tegra(presence, known):
    """The integrated GPU's row from sysfs; ``known`` are values that NVML gave."""
    name = read_text(presence.proc_root, "device-tree/model") or "NVIDIA Tegra"
    row = blank_row({"uuid": "tegra", "name": name.rstrip("\0"), "index": 0}, "ok", "unsupported")
    row["unified_memory"] = True
    row.update(known)
    total, available = presence.memory()
    if total and available is not None:
        _set(row, "memory_total_bytes", total)
        _set(row, "memory_free_bytes", available)
        _set(row, "memory_used_bytes", total - available)
    load = _load(presence.sysfs_root)
    if load is not None:
        _set(row, "util_percent", load)
    celsius = _temperature(presence.sysfs_root)
    if celsius is not None:
        _set(row, "temperature_c", celsius)
    return row


def _set(row, field, value):
    row[field] = value
    row["unknown"].pop(field, None)


def _load(sysfs_root):
    """Percent; the file counts in thousandths."""
    for pattern in LOAD_FILES:
        for path in glob.glob(os.path.join(sysfs_root, pattern)):
            text = read_text(path) or ""
            if text.isdigit() and int(text) <= 1000:
                return int(text) / 10.0
    return None


def _temperature(sysfs_root):
    """The zone is called gpu-thermal, GPU-therm or GPU (vllm-playground#11).

    While the unit sleeps it reads -256 (jetson_stats_node_exporter#29): no reading.
    """
    for path in sorted(glob.glob(os.path.join(sysfs_root, "class/thermal/thermal_zone*"))):
        if not (read_text(path, "type") or "").lower().startswith("gpu"):
            continue
        try:
            celsius = int(read_text(path, "temp") or "") / 1000.0
        except ValueError:
            continue
        if -20 <= celsius <= 150:
            return celsius
    return None
