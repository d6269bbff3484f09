"""nvidia-smi's CSV rows: values, the many words for "no value", and names with commas."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.collectors.smi_rows import (
    QUERY_FIELDS,
    gpu_row,
    lost_gpu,
    process_row,
    token_reason,
)
from gpumon.snapshot import REASONS, Gpu, GpuProcess

MIB = 1024 * 1024
#: One value per field of a busy card.
VALUES = {
    "index": "0", "uuid": "GPU-11111111-2222-3333-4444-555555555555",
    "pci.bus_id": "00000000:17:00.0", "memory.total": "81559", "memory.used": "11125",
    "memory.free": "69956", "memory.reserved": "478", "utilization.gpu": "97",
    "utilization.memory": "41", "utilization.encoder": "0", "utilization.decoder": "0",
    "temperature.gpu": "55", "temperature.memory": "61", "power.draw": "412.53",
    "enforced.power.limit": "700.00", "fan.speed": "30", "clocks.sm": "1980", "clocks.mem": "2619",
    "clocks.max.sm": "1980", "clocks.max.mem": "2619", "pstate": "P0",
    "clocks_throttle_reasons.active": "0x0000000000000004",
    "clocks_event_reasons.active": "0x0000000000000004", "pcie.link.gen.current": "5",
    "pcie.link.width.current": "16", "pcie.link.gen.max": "5", "pcie.link.width.max": "16",
    "ecc.errors.corrected.volatile.total": "3", "ecc.errors.uncorrected.volatile.total": "0",
    "persistence_mode": "Enabled", "compute_mode": "Exclusive_Process", "compute_cap": "9.0",
    "vbios_version": "96.00.74.00.01", "mig.mode.current": "Disabled",
    "driver_version": "550.127.08", "name": "NVIDIA H100, the big one, 80GB HBM3",
}  # fmt: skip


def line(fields: tuple[str, ...] = QUERY_FIELDS, **changes: str) -> str:
    return ", ".join({**VALUES, **changes}[field] for field in fields)


def row(text: str, fields: tuple[str, ...] = QUERY_FIELDS) -> dict[str, Any]:
    found = gpu_row(text, fields)
    assert found is not None
    return found[0]


def test_a_full_row() -> None:
    found = gpu_row(line(), QUERY_FIELDS)
    assert found is not None
    got, version = found
    assert version == "550.127.08"
    assert got["name"] == "NVIDIA H100, the big one, 80GB HBM3"
    assert got["pci_id"] == "0000:17:00.0"
    assert got["memory_total_bytes"] == 81559 * MIB
    assert got["power_w"] == 412.53
    assert got["performance_state"] == 0
    assert got["throttle_reasons"] == ["sw-power-cap"]
    assert got["persistence_mode"] is True
    assert got["mig_mode"] is False
    assert got["compute_mode"] == "exclusive-process"
    assert got["ecc_corrected"] == 3
    assert got["state"] == "ok"
    # all that the record wants is there, or has its reason
    for name in got["unknown"]:
        assert got["unknown"][name] == "fallback"
        assert name not in got
    measured = set(Gpu.__dataclass_fields__) - {
        "detail", "parent_uuid", "mig_profile", "unified_memory", "vendor",
    }  # fmt: skip
    assert measured == (set(got) | set(got["unknown"])) & measured


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("[N/A]", "unsupported"), ("N/A", "unsupported"), ("[Not Supported]", "unsupported"),
        ("-", "unsupported"), ("", "unsupported"), ("[Unknown Error]", "driver-error"),
        ("ERR!", "driver-error"), ("[Insufficient Permissions]", "no-permission"),
        ("[GPU requires reset]", "reset-required"), ("[GPU is lost]", "lost"),
        ("[Function Not Found]", "no-symbol"),
        ("[Requested functionality has been deprecated]", "no-symbol"),
        ("Not available in WDDM driver model", "wddm"), ("[Something new]", "driver-error"),
        ("many", "nonsense"), ("0x", "nonsense"), ("12 MiB", "nonsense"),
    ],
)  # fmt: skip
def test_a_cell_without_a_value_has_a_reason(cell: str, reason: str) -> None:
    got = row(line(**{"memory.used": cell, "fan.speed": cell}))
    assert "memory_used_bytes" not in got
    assert "fan_percent" not in got
    assert got["unknown"]["memory_used_bytes"] == reason
    assert got["unknown"]["fan_percent"] == reason
    assert reason in REASONS
    assert got["util_percent"] == 97.0
    assert got["state"] == "ok"


def test_zero_is_a_value() -> None:
    assert token_reason("0") is None
    got = row(line(**{"memory.used": "0", "utilization.gpu": "0", "power.draw": "0.00"}))
    assert (got["memory_used_bytes"], got["util_percent"], got["power_w"]) == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("cell", "state"), [("[GPU requires reset]", "reset-required"), ("[GPU is lost]", "lost")]
)
def test_many_such_cells_are_a_state_of_the_card(cell: str, state: str) -> None:
    bad = dict.fromkeys(("memory.used", "utilization.gpu", "temperature.gpu", "power.draw"), cell)
    assert row(line(**bad))["state"] == state


def test_fields_that_the_driver_does_not_know() -> None:
    fields = tuple(
        field
        for field in QUERY_FIELDS
        if field not in ("memory.reserved", "clocks_event_reasons.active", "utilization.encoder")
    )
    got = row(line(fields), fields)
    assert got["unknown"]["memory_reserved_bytes"] == "no-symbol"
    assert got["unknown"]["encoder_percent"] == "no-symbol"
    assert got["throttle_reasons"] == ["sw-power-cap"]  # by its older name


def test_a_card_split_by_mig_has_no_utilisation_of_its_own() -> None:
    got = row(line(**{"mig.mode.current": "Enabled", "utilization.gpu": "[N/A]"}))
    assert got["mig_mode"] is True
    assert got["unknown"]["util_percent"] == "mig-parent"
    plain = row(line(**{"mig.mode.current": "[N/A]"}))
    assert "mig_mode" not in plain["unknown"]


def test_throttle_bits() -> None:
    assert (
        row(line(**{"clocks_event_reasons.active": "0x0000000000000001"}))["throttle_reasons"] == []
    )
    got = row(line(**{"clocks_event_reasons.active": "0x0000000000010048"}))["throttle_reasons"]
    assert got == ["hw-slowdown", "hw-thermal", "bits-0x10000"]


@pytest.mark.parametrize(
    "text",
    [
        "", "No devices were found", "Unable to determine the device handle for GPU0000:05:00.0",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. So, x",
        "0, GPU-1", "a, b, c",
    ],
)  # fmt: skip
def test_what_is_no_row(text: str) -> None:
    assert gpu_row(text, QUERY_FIELDS) is None
    assert gpu_row(text, ()) is None


@pytest.mark.parametrize(
    ("text", "pci_id", "what"),
    [
        ("Unable to determine the device handle for GPU0000:05:00.0: GPU is lost.  Reboot",
         "0000:05:00.0", "GPU is lost.  Reboot"),
        ("Unable to determine the device handle for GPU1: 0000:3B:00.0: Unknown Error",
         "0000:3b:00.0", "Unknown Error"),
        ("Unable to determine the device handle for GPU 0000:C1:00.0: Unknown Error",
         "0000:c1:00.0", "Unknown Error"),
    ],
)  # fmt: skip
def test_a_lost_card_is_named(text: str, pci_id: str, what: str) -> None:
    assert lost_gpu(text) == (pci_id, what)
    assert lost_gpu("No devices were found") is None


def test_process_rows() -> None:
    got = process_row("GPU-1, 4711, 22016, /opt/my tools, v2/llama-server")
    assert got is not None
    assert (got["pid"], got["gpu_uuid"], got["memory_bytes"]) == (4711, "GPU-1", 22016 * MIB)
    assert got["name"] == "llama-server"
    assert got["unknown"]["user"] == "fallback"
    assert set(got) | set(got["unknown"]) == set(GpuProcess.__dataclass_fields__)
    hidden = process_row("GPU-1, 5, [N/A], [Insufficient Permissions]")
    assert hidden is not None
    assert hidden["unknown"]["memory_bytes"] == "unsupported"
    assert hidden["unknown"]["name"] == "no-permission"
    for bad in ("", "No running processes found", "GPU-1, x, 5, y", "5, 5, 5, 5", "GPU-1, 5"):
        assert process_row(bad) is None


@given(st.text(max_size=300), st.lists(st.sampled_from(QUERY_FIELDS), max_size=8))
def test_property_no_text_raises(text: str, fields: list[str]) -> None:
    gpu_row(text, fields)
    gpu_row("0, " + text, ["index", *fields])
    lost_gpu(text)
    process_row(text)
