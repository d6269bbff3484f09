"""AMD cards from a fake sysfs: values, reasons, sleep, processes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gpumon.snapshot import REASONS, Gpu
from tests.rig.nvml_mock import scenarios
from tests.rig.nvml_reader import ReaderProcess

GIB = 1024**3
READER = "gpumon_probe_amd.AmdReader"


@pytest.fixture
def roots(tmp_path: Path) -> dict[str, str]:
    for name in ("sys", "proc"):
        (tmp_path / name).mkdir()
    return {"sysfs_root": str(tmp_path / "sys"), "proc_root": str(tmp_path / "proc")}


def add_card(roots: dict[str, str], pci_id: str = "0000:03:00.0", **more: Any) -> Path:
    """An RX 7900 XTX as amdgpu shows it."""
    card = scenarios.card_tree(
        Path(roots["sysfs_root"]), pci_id, driver="amdgpu", device="0x744c", vendor="0x1002", **more
    )
    values = {
        "unique_id": "1f2a9c0b77d4e613",
        "product_name": "Radeon RX 7900 XTX",
        "vbios_version": "113-D7020100-102",
        "mem_info_vram_total": str(24 * GIB),
        "mem_info_vram_used": str(9_812_312_064),
        "gpu_busy_percent": "87",
        "mem_busy_percent": "42",
        "current_link_speed": "16.0 GT/s PCIe",
        "current_link_width": "16",
        "max_link_speed": "16.0 GT/s PCIe",
        "max_link_width": "16",
        "hwmon/hwmon4/temp1_input": "61000",
        "hwmon/hwmon4/temp1_crit": "110000",
        "hwmon/hwmon4/temp3_label": "mem",
        "hwmon/hwmon4/temp3_input": "82000",
        "hwmon/hwmon4/power1_average": "291000000",
        "hwmon/hwmon4/power1_cap": "339000000",
        "hwmon/hwmon4/freq1_input": "2482000000",
        "hwmon/hwmon4/freq2_input": "1249000000",
        "hwmon/hwmon4/pwm1": "102",
    }
    for name, value in values.items():
        path = card / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value + "\n")
    return card


def rows_of(roots: dict[str, str]) -> list[dict[str, Any]]:
    with ReaderProcess({}, reader=READER, **roots) as reader:
        found = reader.until(lambda snapshot: snapshot["gpus_mono"])["gpus"]
    assert isinstance(found, list)
    known = {field.name for field in fields(Gpu)}
    for row in found:
        assert set(row) <= known
        assert set(row["unknown"]) <= known
        assert set(row["unknown"].values()) <= set(REASONS)
        assert not set(row) & set(row["unknown"])
    return found


def test_a_cards_values(roots: dict[str, str]) -> None:
    add_card(roots)
    (row,) = rows_of(roots)
    unknown = row.pop("unknown")
    assert row == {
        "vendor": "amd",
        "index": 0,
        "uuid": "AMD-1f2a9c0b77d4e613",
        "pci_id": "0000:03:00.0",
        "name": "Radeon RX 7900 XTX",
        "vbios": "113-D7020100-102",
        "memory_total_bytes": 24 * GIB,
        "memory_used_bytes": 9_812_312_064,
        "memory_free_bytes": 24 * GIB - 9_812_312_064,
        "util_percent": 87,
        "memory_util_percent": 42,
        "pcie_generation": 4,
        "pcie_generation_max": 4,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "temperature_c": 61.0,
        "temperature_slowdown_c": 110.0,
        "memory_temperature_c": 82.0,
        "power_w": 291.0,
        "power_limit_w": 339.0,
        "sm_clock_mhz": 2482,
        "memory_clock_mhz": 1249,
        "fan_percent": 40.0,
    }
    assert unknown["ecc_corrected"] == "unsupported"


def test_files_that_are_missing_or_wrong_harm_only_their_field(roots: dict[str, str]) -> None:
    card = add_card(roots)
    (card / "gpu_busy_percent").unlink()
    (card / "product_name").unlink()
    (card / "unique_id").write_text("0\n")
    (card / "hwmon/hwmon4/power1_average").unlink()
    (card / "hwmon/hwmon4/power1_input").write_text("38000000\n")
    (card / "hwmon/hwmon4/temp1_input").write_text("-273150\n")
    (card / "mem_info_vram_used").write_text("nonsense\n")
    (row,) = rows_of(roots)
    assert row["unknown"]["util_percent"] == "unsupported"
    assert row["unknown"]["temperature_c"] == "nonsense"
    assert (
        row["unknown"]["memory_used_bytes"] == row["unknown"]["memory_free_bytes"] == "unsupported"
    )
    assert row["power_w"] == 38
    assert row["uuid"] == "pci:0000:03:00.0"
    assert row["name"]


def test_a_sleeping_card_is_only_named(roots: dict[str, str]) -> None:
    add_card(roots, status="suspended", control="auto")
    (row,) = rows_of(roots)
    assert (row["state"], row["name"]) == ("asleep", "Radeon RX 7900 XTX")
    assert set(row["unknown"].values()) == {"asleep"}
    assert "power_w" not in row


def test_a_card_without_amdgpu_and_other_vendors(roots: dict[str, str]) -> None:
    sysfs = Path(roots["sysfs_root"])
    scenarios.card_tree(sysfs, "0000:05:00.0", driver=None, vendor="0x1002", device="0x74a1")
    (sysfs / "bus/pci/devices/0000:05:00.0/class").write_text("0x120000\n")
    scenarios.card_tree(sysfs, "0000:01:00.0")
    (row,) = rows_of(roots)
    assert (row["state"], row["name"]) == ("no-driver", "AMD [1002:74a1]")


def test_processes_of_kfd_and_of_render_nodes(roots: dict[str, str]) -> None:
    add_card(roots)
    kfd = Path(roots["sysfs_root"]) / "class/kfd/kfd"
    for node, gpu_id, place in ((0, 0, 0), (1, 41273, 0x300)):
        folder = kfd / f"topology/nodes/{node}"
        folder.mkdir(parents=True)
        (folder / "gpu_id").write_text(f"{gpu_id}\n")
        (folder / "properties").write_text(f"cpu_cores_count 0\nlocation_id {place}\ndomain 0\n")
    (kfd / "proc/2711").mkdir(parents=True)
    (kfd / "proc/2711/vram_41273").write_text("9663676416\n")
    process = Path(roots["proc_root"]) / "3120"
    (process / "fd").mkdir(parents=True)
    (process / "fdinfo").mkdir()
    for descriptor, client in (("7", 33), ("8", 33), ("9", 34)):
        (process / "fd" / descriptor).symlink_to("/dev/dri/renderD128")
        (process / "fdinfo" / descriptor).write_text(
            f"pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t{client}\n"
            "drm-pdev:\t0000:03:00.0\ndrm-memory-vram:\t262144 KiB\n"
        )
    with ReaderProcess({}, reader=READER, **roots) as reader:
        rows = reader.until(lambda snapshot: snapshot["processes"])["processes"]
    assert rows == [
        {
            "pid": 2711,
            "gpu_uuid": "AMD-1f2a9c0b77d4e613",
            "kind": "compute",
            "memory_bytes": 9_663_676_416,
            "unknown": {"sm_percent": "unsupported"},
        },
        {
            "pid": 3120,
            "gpu_uuid": "AMD-1f2a9c0b77d4e613",
            "kind": "graphics",
            "memory_bytes": 2 * 262144 * 1024,
            "unknown": {"sm_percent": "unsupported"},
        },
    ]
