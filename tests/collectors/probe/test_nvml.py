"""The NVML reader on the mock driver: right numbers, and a reason for each missing one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gpumon.collectors.wire import read_sample
from gpumon.snapshot import REASONS, Gpu, GpuProcess, GpuState, HostFacts, Nvml, NvmlState
from tests.rig.need import need
from tests.rig.nvml_mock import scenarios
from tests.rig.nvml_mock.build import DRIVERS, environment
from tests.rig.nvml_reader import PROBE, ReaderProcess, by_index

MIB, GIB = 1024**2, 1024**3
GPU_FIELDS = {field.name for field in fields(Gpu)}
PROCESS_FIELDS = {field.name for field in fields(GpuProcess)}
#: not measured: identity, and what most cards rightly have nothing of
OPTIONAL = {
    "uuid", "state", "detail", "index", "pci_id", "name", "parent_uuid", "mig_mode",
    "mig_profile", "unified_memory", "xid", "compute_capability", "vbios", "vendor", "unknown",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    need("cc")


def other_pythons() -> list[str]:
    """The oldest and the newest other interpreter."""
    folder = Path.home() / ".pyenv" / "versions"
    found = [folder / f"3.{minor}" for minor in (6, 13)]
    paths = [next(folder.glob(f"{path.name}.*/bin/python"), None) for path in found]
    return [str(path) for path in paths if path is not None]


def check_shape(snapshot: dict[str, Any]) -> None:
    """Every field is one of the record's, and each measured one has a value or a reason."""
    assert set(snapshot) == {"nvml", "gpus", "gpus_mono", "processes"}
    assert set(snapshot["nvml"]) <= {field.name for field in fields(Nvml)}
    NvmlState(snapshot["nvml"]["state"])
    for row in snapshot["gpus"]:
        assert set(row) <= GPU_FIELDS
        GpuState(row.get("state", "ok"))
        assert set(row["unknown"].values()) <= set(REASONS)
        assert set(row["unknown"]) <= GPU_FIELDS
        assert not set(row["unknown"]) & set(row)
        assert set(row["unknown"]) | set(row) >= GPU_FIELDS - OPTIONAL, row
        assert not any(value is None for value in row.values())
    for row in snapshot["processes"] or ():
        assert set(row) <= PROCESS_FIELDS
        assert set(row["unknown"].values()) <= set(REASONS)


def ready(snapshot: dict[str, Any]) -> bool:
    return snapshot["nvml"]["state"] == "ok" and all(
        "pcie_tx_bytes_per_s" in row or row["unknown"]["pcie_tx_bytes_per_s"] != "no-data"
        for row in snapshot["gpus"]
    )


@pytest.mark.parametrize("python", [sys.executable, *other_pythons()])
def test_eight_cards_one_lost_one_with_gaps(tmp_path: Path, python: str) -> None:
    scenario = scenarios.eight_with_lost_and_na(tmp_path / "cards.ini")
    proc = scenarios.proc_tree(tmp_path / "proc", scenario)
    with ReaderProcess(environment(scenario), python=python, proc_root=str(proc)) as reader:
        snapshot = reader.until(ready)
    check_shape(snapshot)
    assert snapshot["nvml"]["driver_version"] == "610.57.04"
    assert snapshot["nvml"]["cuda_version"] == "13.2"
    assert "hung_s" not in snapshot["nvml"]
    assert [row["index"] for row in snapshot["gpus"]] == list(range(8))
    cards = by_index(snapshot)

    assert cards[0]["name"] == "NVIDIA H100 80GB HBM3"
    assert cards[0]["uuid"] == "GPU-7c1d00a2-4b1e-9f30-8d62-0e5f1a9c3b70"
    assert cards[0]["pci_id"] == "0000:18:00.0"
    assert cards[0]["memory_total_bytes"] == 81559 * MIB
    assert cards[0]["memory_reserved_bytes"] == 479 * MIB
    assert cards[0]["memory_used_bytes"] == 64129 * MIB
    assert cards[0]["memory_free_bytes"] == (81559 - 479 - 64129) * MIB
    assert 88 <= cards[0]["util_percent"] <= 99
    assert 540 <= cards[0]["power_w"] <= 689
    assert cards[0]["power_limit_w"] == 700
    assert cards[0]["energy_j"] > 48_000_000
    assert cards[0]["throttle_reasons"] == ["sw-power-cap"]
    assert cards[0]["pcie_tx_bytes_per_s"] == pytest.approx(2_400_000, rel=0.05)
    assert cards[0]["pcie_rx_bytes_per_s"] == pytest.approx(7_100_000, rel=0.05)
    assert cards[0]["memory_temperature_c"] == 61
    assert cards[0]["memory_bus_bits"] == 5120
    assert cards[0]["compute_capability"] == "9.0"
    assert cards[0]["persistence_mode"] is True
    assert cards[0]["recovery_action"] == "none"
    assert cards[0]["unknown"]["fan_percent"] == "unsupported"
    # idle is no throttling
    assert cards[2]["throttle_reasons"] == []
    assert (cards[2]["util_percent"], cards[2]["performance_state"]) == (0, 8)
    assert (cards[3]["ecc_corrected"], cards[3]["row_remap_pending"]) == (12, True)
    assert cards[3]["recovery_action"] == "reset"

    lost = cards[5]
    assert (lost["state"], lost["uuid"]) == ("lost", scenarios.lost_uuid())
    assert (lost["pci_id"], lost["name"]) == ("0000:ab:00.0", "NVIDIA H100 80GB HBM3")
    assert set(lost["unknown"].values()) == {"lost"}
    assert cards[6]["unknown"]["util_percent"] == cards[6]["unknown"]["power_w"] == "unsupported"
    assert cards[6]["memory_used_bytes"] == 41007 * MIB

    by_card = {(row["gpu_uuid"], row["pid"]): row for row in snapshot["processes"]}
    assert len(by_card) == len(snapshot["processes"]) == 5
    first = by_card[cards[0]["uuid"], 31821]
    assert (first["memory_bytes"], first["kind"], first["sm_percent"]) == (
        67_243_081_728,
        "compute",
        7,
    )
    assert by_card[cards[1]["uuid"], 31821]["sm_percent"] == 18


def test_the_wire_takes_the_rows_as_they_are(tmp_path: Path) -> None:
    for write in (scenarios.eight_with_lost_and_na, scenarios.mig, scenarios.bad_names):
        scenario = write(tmp_path / "cards.ini")
        with ReaderProcess(environment(scenario)) as reader:
            rows = reader.until(ready)
        line = {"t": "sample", "seq": 1, "mono": rows["gpus_mono"], "wall": 1.8e9, **rows}
        snapshot = read_sample(
            json.loads(json.dumps(line)),
            host="box",
            received_at=1.8e9,
            facts=HostFacts(),
            interval_s=2,
        )
        assert len(snapshot.gpus) == len(rows["gpus"])
        assert len(snapshot.processes or ()) == len(rows["processes"])
        for gpu, row in zip(snapshot.gpus, rows["gpus"], strict=True):
            for field, value in row.items():
                if field == "unknown":
                    assert value.items() <= gpu.unknown.items()
                elif field not in {"name", "detail"}:
                    found = getattr(gpu, field)
                    assert (list(found) if isinstance(found, tuple) else found) == value, field


def test_a_lost_card_without_proc_is_still_counted(tmp_path: Path) -> None:
    scenario = scenarios.eight_with_lost_and_na(tmp_path / "cards.ini")
    with ReaderProcess(
        environment(scenario), proc_root=str(tmp_path), sysfs_root=str(tmp_path)
    ) as reader:
        cards = by_index(reader.until(ready))
    assert len(cards) == 8
    assert (cards[5]["state"], cards[5]["uuid"]) == ("lost", "index:5")


def test_a_card_lost_while_watched_keeps_its_identity(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini")
    lines = scenario.read_text()
    with ReaderProcess(environment(scenario)) as reader:
        before = reader.until(ready)["gpus"][0]
        scenario.write_text(lines + "rc.*=15\n")
        after = reader.until(lambda found: found["gpus"][0].get("state") == "lost")
        check_shape(after)
        assert after["gpus"][0]["uuid"] == before["uuid"]
        assert after["gpus"][0]["name"] == before["name"]
        assert after["processes"] is None
        # it comes back, which real ones do after a reset
        scenario.write_text(lines)
        reader.until(lambda found: found["gpus"][0].get("memory_total_bytes"))


def test_reset_required_is_a_state_of_its_own(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini")
    with scenario.open("a") as more:
        more.write("rc.*=16\n")
    with ReaderProcess(environment(scenario), proc_root=str(tmp_path)) as reader:
        snapshot = reader.state("ok")
    check_shape(snapshot)
    assert snapshot["gpus"][0]["state"] == "reset-required"
    assert set(snapshot["gpus"][0]["unknown"].values()) == {"reset-required"}


def test_mig_slices_stand_under_their_parent(tmp_path: Path) -> None:
    scenario = scenarios.mig(tmp_path / "cards.ini")
    with ReaderProcess(environment(scenario), interval_s=0.2) as reader:
        snapshot = reader.until(
            lambda found: (
                ready(found) and len(found["gpus"]) > 1 and "util_percent" in found["gpus"][1]
            )
        )
    check_shape(snapshot)
    rows = snapshot["gpus"]
    assert [(row["index"], row.get("mig_profile")) for row in rows] == [
        (0, None), (0, "3g.40gb"), (1, "2g.20gb"), (3, "1g.10gb"), (1, None),
    ]  # fmt: skip
    parent = rows[0]
    assert parent["mig_mode"] is True
    for field in ("util_percent", "memory_util_percent", "encoder_percent", "decoder_percent"):
        assert parent["unknown"][field] == "mig-parent"
    assert [row.get("parent_uuid") for row in rows[1:4]] == [parent["uuid"]] * 3
    assert "parent_uuid" not in rows[4]
    assert rows[1]["memory_total_bytes"] == 40320 * MIB
    assert rows[1]["memory_used_bytes"] == 31987 * MIB
    assert 71 <= rows[1]["util_percent"] <= 83
    assert rows[2]["util_percent"] == 12
    assert rows[3]["util_percent"] == 0
    assert [(row["pid"], row["gpu_uuid"]) for row in snapshot["processes"]] == [
        (2711, rows[1]["uuid"]),
        (2894, rows[1]["uuid"]),
        (3120, rows[2]["uuid"]),
    ]


def test_without_rights_a_mig_parent_is_the_sum_of_its_slices(tmp_path: Path) -> None:
    scenario = scenarios.mig(tmp_path / "cards.ini")
    closed = [f"rc.DeviceGetMemoryInfo{suffix}=4\n" for suffix in ("", "_v2")]
    closed += [
        f"rc.DeviceGet{kind}RunningProcesses{suffix}=4\n"
        for kind in ("Compute", "Graphics", "MPSCompute")
        for suffix in ("", "_v2", "_v3")
    ]
    scenario.write_text(
        scenario.read_text()
        .replace("[gpu0]\n", "[gpu0]\n" + "".join(closed) + "gpm=0\n")
        # the later value wins: take the card's own away
        .replace("\ngpm=1\n", "\n", 1)
    )
    with ReaderProcess(environment(scenario)) as reader:
        snapshot = reader.until(ready)
    rows = snapshot["gpus"]
    assert rows[0]["memory_total_bytes"] == (40320 + 19968 + 9856) * MIB
    assert rows[0]["memory_used_bytes"] == (31987 + 16384 + 4446) * MIB
    assert "MIG" in rows[0]["detail"]
    assert rows[0]["unknown"]["memory_reserved_bytes"] == "no-permission"
    assert rows[1]["unknown"]["util_percent"] == "unsupported"
    assert [row["pid"] for row in snapshot["processes"]] == [2711, 2894, 3120]
    assert snapshot["processes"][2]["gpu_uuid"] == rows[2]["uuid"]


def test_unified_memory_is_the_systems(tmp_path: Path) -> None:
    scenario = scenarios.unified(tmp_path / "cards.ini")
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "meminfo").write_text(
        "MemTotal: 125499136 kB\nMemFree: 9 kB\nMemAvailable: 91226112 kB\n"
    )
    with ReaderProcess(environment(scenario), proc_root=str(proc)) as reader:
        snapshot = reader.until(ready)
    check_shape(snapshot)
    card = snapshot["gpus"][0]
    assert card["unified_memory"] is True
    assert card["pci_id"] == "000f:01:00.0"
    assert card["memory_total_bytes"] == 125499136 * 1024
    assert card["memory_used_bytes"] == (125499136 - 91226112) * 1024
    assert card["unknown"]["pcie_width"] == "unsupported"
    assert snapshot["processes"][0]["memory_bytes"] == 23_622_320_128


@pytest.mark.parametrize("addressing", ["0", "1", "na"])
def test_a_refusal_alone_is_not_unified_memory(tmp_path: Path, addressing: str) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini")
    text = re.sub(r"mem_total=.*\n", f"addressing={addressing}\n", scenario.read_text())
    scenario.write_text(text)
    with ReaderProcess(environment(scenario)) as reader:
        card = reader.until(ready)["gpus"][0]
    assert "unified_memory" not in card
    assert card["unknown"]["memory_total_bytes"] == "unsupported"


def test_a_total_of_zero_is_unknown(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini")
    scenario.write_text(scenario.read_text().replace("mem_total=24564Mi", "mem_total=0"))
    with ReaderProcess(environment(scenario)) as reader:
        card = reader.until(ready)["gpus"][0]
    assert card["unknown"]["memory_total_bytes"] == "nonsense"
    assert card["unknown"]["memory_used_bytes"] == "nonsense"


def test_bad_names_and_nonsense_harm_only_themselves(tmp_path: Path) -> None:
    scenario = scenarios.bad_names(tmp_path / "cards.ini")
    with ReaderProcess(environment(scenario)) as reader:
        snapshot = reader.until(ready)
    check_shape(snapshot)
    broken, other = snapshot["gpus"]
    assert broken["name"] == "NVIDIA \ufffd\ufffd GeForce\ufffd"
    for field in ("util_percent", "power_w", "temperature_c", "fan_percent"):
        assert broken["unknown"][field] == "nonsense", field
    assert broken["memory_used_bytes"] == 1024 * MIB
    # escapes stay raw here: the view makes them visible
    assert other["name"] == '\x1b[31mRED\x1b[0m H100, "PCIe" \u202eder'
    assert other["util_percent"] == 7


def test_each_field_fails_alone(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini")
    with scenario.open("a") as more:
        more.write(
            "rc.DeviceGetTemperatureV=999\nrc.DeviceGetTemperature=999\n"
            "rc.DeviceGetPowerUsage=4\nrc.DeviceGetEncoderUtilization=10\n"
            "rc.DeviceGetFanSpeed=999\nrc.DeviceGetFanSpeed_v2=999\n"
            "rc.DeviceGetMemoryInfo_v2=999\n"
        )
    with ReaderProcess(environment(scenario)) as reader:
        card = reader.until(ready)["gpus"][0]
    assert card["unknown"]["temperature_c"] == "driver-error"
    assert card["unknown"]["power_w"] == "no-permission"
    assert card["unknown"]["encoder_percent"] == "timeout"
    assert card["unknown"]["fan_percent"] == "driver-error"
    # WSL: v2 fails, v1 answers, and counts the reserve as used (nvitop PR#30)
    assert card["memory_used_bytes"] == 9_663_676_416 + 455 * MIB
    assert card["unknown"]["memory_reserved_bytes"] == "no-symbol"
    assert card.get("state", "ok") == "ok"
    # Ada gives distances instead of the slowdown temperature: 52..63 + 21 - (-2)
    assert card["unknown"]["temperature_slowdown_c"] == "unsupported"
    assert card["decoder_percent"] == 0


def test_the_slowdown_temperature_of_newer_cards(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini")
    text = re.sub(r"(?m)^temp=.*$", "temp=61", scenario.read_text())
    scenario.write_text(text)
    with ReaderProcess(environment(scenario)) as reader:
        card = reader.until(ready)["gpus"][0]
    assert card["temperature_slowdown_c"] == 61 + 21 + 2


def test_values_move_and_a_counter_that_went_back_gives_no_rate(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini", util="0>50>100@0.3")
    seen = set()
    with ReaderProcess(environment(scenario)) as reader:
        reader.until(ready)
        reader.until(lambda found: seen.add(found["gpus"][0]["util_percent"]) or len(seen) == 3)
        text = scenario.read_text().replace("field.197=1000+1500000", "field.197=7")
        scenario.write_text(text)
        reader.until(lambda found: found["gpus"][0].get("pcie_tx_bytes_per_s") == 0)
        scenario.write_text(text.replace("field.197=7", "field.197=3>2>1>0@0.2"))
        reader.until(
            lambda found: found["gpus"][0]["unknown"].get("pcie_tx_bytes_per_s") == "no-data"
        )
    assert seen == {0, 50, 100}


# --- processes ------------------------------------------------------------------------------------


def test_process_kinds_merge_and_hidden_memory_is_unknown(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini", processes=[(1200, 3 * GIB)])
    with scenario.open("a") as more:
        more.write(
            "[gpu0.proc1]\npid=1300\ntype=cg\nmem=734003200\nsm=140\n"
            "[gpu0.proc2]\npid=1400\ntype=g\nmem=na\n"
            "[gpu0.proc3]\npid=1500\ntype=m\nmem=1048576\nsm=3\n"
        )
    with ReaderProcess(environment(scenario)) as reader:
        snapshot = reader.until(ready)
    check_shape(snapshot)
    rows = {row["pid"]: row for row in snapshot["processes"]}
    assert [rows[pid]["kind"] for pid in sorted(rows)] == [
        "compute", "compute+graphics", "graphics", "mps",
    ]  # fmt: skip
    assert rows[1300]["memory_bytes"] == 734003200
    # over 100 is garbage (nvtop#110)
    assert rows[1300]["unknown"]["sm_percent"] == "no-data"
    assert rows[1400]["unknown"] == {"memory_bytes": "unsupported", "sm_percent": "no-data"}
    assert (rows[1200]["sm_percent"], rows[1500]["sm_percent"]) == (88, 3)


def test_under_wsl_hidden_memory_is_the_driver_modes_doing(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini", processes=[(1200, 0)])
    scenario.write_text(scenario.read_text().replace("\nmem=0\n", "\nmem=na\n"))
    (tmp_path / "version").write_text("Linux version 6.6.87.2-microsoft-standard-WSL2 (gcc)\n")
    with ReaderProcess(environment(scenario), proc_root=str(tmp_path)) as reader:
        rows = reader.until(ready)["processes"]
    assert rows[0]["unknown"]["memory_bytes"] == "wddm"


def test_no_process_is_an_empty_list_and_a_closed_list_is_none(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini")
    with ReaderProcess(environment(scenario)) as reader:
        assert reader.until(ready)["processes"] == []
        with scenario.open("a") as more:
            for kind in ("Compute", "Graphics", "MPSCompute"):
                for suffix in ("", "_v2", "_v3"):
                    more.write(f"rc.DeviceGet{kind}RunningProcesses{suffix}=3\n")
        reader.until(lambda found: found["processes"] is None)


# --- driver generations ---------------------------------------------------------------------------


@pytest.mark.parametrize("driver", sorted(DRIVERS))
def test_every_driver_generation_gives_the_same_numbers(tmp_path: Path, driver: str) -> None:
    processes = [(4000 + 13 * n, (n + 1) * 1_073_741_824) for n in range(5)]
    scenario = scenarios.single_4090(tmp_path / "cards.ini", processes=processes)
    version = {"535_86": "535.86.05", "450": "450.80.02", "700": "700.10"}.get(
        driver, f"{driver}.90"
    )
    scenario.write_text(re.sub(r"driver=.*", f"driver={version}", scenario.read_text(), count=1))
    with ReaderProcess(environment(scenario, driver)) as reader:
        snapshot = reader.until(ready)
    check_shape(snapshot)
    card = snapshot["gpus"][0]
    assert 52 <= card["temperature_c"] <= 63
    assert card["throttle_reasons"] == []
    reserve = 455 * MIB
    if int(driver[:3]) >= 510:
        assert card["memory_used_bytes"] == 9_663_676_416
        assert card["memory_reserved_bytes"] == reserve
    else:
        assert card["memory_used_bytes"] == 9_663_676_416 + reserve
        assert card["unknown"]["memory_reserved_bytes"] == "no-symbol"
    assert card["memory_free_bytes"] == 24564 * MIB - 9_663_676_416 - reserve
    assert [(row["pid"], row["memory_bytes"]) for row in snapshot["processes"]] == processes
    assert [row["sm_percent"] for row in snapshot["processes"]] == [88, 87, 86, 85, 84]


def test_wide_records_are_seen_even_where_the_version_hides_them(tmp_path: Path) -> None:
    processes = [(4000 + 13 * n, (n + 1) * 1_073_741_824) for n in range(5)]
    scenario = scenarios.single_4090(tmp_path / "cards.ini", processes=processes)
    with ReaderProcess(environment(scenario, "535_86")) as reader:
        rows = reader.until(ready)["processes"]
    assert [(row["pid"], row["memory_bytes"]) for row in rows] == processes


def exported(folder: str) -> set[str]:
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", f"{folder}/libnvidia-ml.so.1"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return set(re.findall(r" T (nvml\w+)", listing))


def test_the_newest_driver_exports_every_symbol_that_is_asked_for(tmp_path: Path) -> None:
    need("nm")
    asked: set[str] = set()
    for write in (scenarios.mig, scenarios.eight_with_lost_and_na, scenarios.unified):
        scenario = write(tmp_path / f"{write.__name__}.ini")
        with ReaderProcess(environment(scenario), interval_s=0.2, trace=True) as reader:
            reader.until(ready)
            reader.until(lambda found: len(found["gpus"]) == 1 or found["gpus_mono"])
            asked |= set(reader.ask("asked"))
    newest = exported(environment(tmp_path, "610")["LD_LIBRARY_PATH"])
    assert len(asked) > 40
    assert asked <= newest
    # and what stands in the sources is a call of nvidia-ml-py, or a symbol
    import pynvml

    text = "".join(path.read_text() for path in PROBE.glob("nvml*.py"))
    named = set(re.findall(r'"(nvml[A-Z]\w+)"', text))
    assert len(named) > 40
    for name in named:
        assert hasattr(pynvml, name) or name in newest, name


def test_agrees_with_nvidia_ml_py(tmp_path: Path) -> None:
    """A second reader, straight through nvidia-ml-py, sees what the reader reports."""
    scenario = scenarios.single_4090(tmp_path / "cards.ini", processes=[(1200, 3 * GIB)], util="63")
    script = """
import json, pynvml as n
n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)
m = n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2)
print(json.dumps([n.nvmlDeviceGetUUID(h), m.total, m.used, m.reserved, m.free,
    n.nvmlDeviceGetUtilizationRates(h).gpu, n.nvmlDeviceGetFanSpeed(h),
    n.nvmlDeviceGetEnforcedPowerLimit(h) / 1000, n.nvmlDeviceGetMaxClockInfo(h, 2),
    [[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses_v3(h)]]))
"""
    told = json.loads(
        subprocess.run(
            [sys.executable, "-c", script],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, **environment(scenario)},
        ).stdout
    )
    with ReaderProcess(environment(scenario)) as reader:
        snapshot = reader.until(ready)
    card = snapshot["gpus"][0]
    assert told == [
        card["uuid"], card["memory_total_bytes"], card["memory_used_bytes"],
        card["memory_reserved_bytes"], card["memory_free_bytes"], card["util_percent"],
        card["fan_percent"], card["power_limit_w"], card["max_memory_clock_mhz"],
        [[row["pid"], row["memory_bytes"]] for row in snapshot["processes"]],
    ]  # fmt: skip


def test_a_card_refused_after_a_new_init_is_known_from_before(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini")
    text = scenario.read_text()
    roots = {"sysfs_root": str(tmp_path), "proc_root": str(tmp_path)}
    with ReaderProcess(environment(scenario), reinit_after_s=0.2, **roots) as reader:
        before = reader.until(ready)["gpus"][0]
        scenario.write_text(text.replace("[system]", "[system]\nepoch=2") + "rc.*=15\n")
        after = reader.until(lambda found: found["gpus"][0].get("state") == "lost")["gpus"][0]
    assert [after[field] for field in ("uuid", "pci_id", "name", "index")] == [
        before[field] for field in ("uuid", "pci_id", "name", "index")
    ]
