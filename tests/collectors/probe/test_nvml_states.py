"""The driver as a whole: absent, broken, hung, asleep; told apart without root."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.rig.need import need
from tests.rig.nvml_mock import scenarios
from tests.rig.nvml_mock.build import environment
from tests.rig.nvml_reader import ReaderProcess, by_index

MIB = 1024**2
NO_LIBRARY = {"PATH": "/usr/bin:/bin"}


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    need("cc")


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    folder = tmp_path / "sys"
    folder.mkdir()
    return folder


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    folder.mkdir()
    return folder


def roots(sysfs: Path, proc: Path) -> dict[str, str]:
    return {"sysfs_root": str(sysfs), "proc_root": str(proc)}


def module_loaded(proc: Path, version: str) -> None:
    (proc / "driver/nvidia").mkdir(parents=True)
    (proc / "driver/nvidia/version").write_text(
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n"
        "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
    )


def test_no_card_no_driver_is_absent(sysfs: Path, proc: Path) -> None:
    with ReaderProcess(NO_LIBRARY, **roots(sysfs, proc)) as reader:
        snapshot = reader.state("absent")
    assert (snapshot["gpus"], snapshot["processes"]) == ([], [])


@pytest.mark.parametrize(
    ("bound", "state", "words"),
    [
        (None, "no-driver", "kernel"),
        ("nouveau", "nouveau", "nouveau"),
        ("vfio-pci", "no-driver", "vfio-pci"),
    ],
)
def test_a_card_without_nvidias_driver(
    sysfs: Path, proc: Path, bound: str | None, state: str, words: str
) -> None:
    scenarios.card_tree(sysfs, "0000:01:00.0", driver=bound)
    with ReaderProcess(NO_LIBRARY, **roots(sysfs, proc)) as reader:
        snapshot = reader.state(state)
    assert words in snapshot["nvml"]["detail"]
    (card,) = snapshot["gpus"]
    assert (card["state"], card["uuid"]) == ("no-driver", "pci:0000:01:00.0")
    assert card["name"] == "NVIDIA [10de:2684]"
    assert set(card["unknown"].values()) == {"no-driver"}
    assert snapshot["processes"] is None


def test_a_driver_without_its_library(sysfs: Path, proc: Path) -> None:
    scenarios.card_tree(sysfs, "0000:01:00.0")
    module_loaded(proc, "560.35.03")
    with ReaderProcess(NO_LIBRARY, **roots(sysfs, proc)) as reader:
        snapshot = reader.state("library-missing")
    assert "libnvidia-ml.so.1" in snapshot["nvml"]["detail"]
    assert snapshot["nvml"]["driver_version"] == "560.35.03"
    assert snapshot["gpus"][0]["state"] == "error"


def test_a_library_that_cannot_be_loaded_is_named(sysfs: Path, proc: Path, tmp_path: Path) -> None:
    broken = tmp_path / "lib"
    broken.mkdir()
    (broken / "libnvidia-ml.so.1").write_bytes(b"not a library")
    module_loaded(proc, "560.35.03")
    with ReaderProcess(NO_LIBRARY, extra_paths=[str(broken)], **roots(sysfs, proc)) as reader:
        detail = reader.state("library-missing")["nvml"]["detail"]
    assert str(broken) in detail


def test_the_library_is_found_where_the_config_says(
    sysfs: Path, proc: Path, tmp_path: Path
) -> None:
    given = environment(scenarios.single_4090(tmp_path / "cards.ini"))
    folder = given.pop("LD_LIBRARY_PATH")
    with ReaderProcess(given, extra_paths=[folder], **roots(sysfs, proc)) as reader:
        assert len(reader.state("ok")["gpus"]) == 1


def test_the_toolkits_stub_is_passed_over(sysfs: Path, proc: Path, tmp_path: Path) -> None:
    given = environment(scenarios.single_4090(tmp_path / "cards.ini"))
    stubs = tmp_path / "cuda/lib64/stubs"
    stubs.mkdir(parents=True)
    (stubs / "libnvidia-ml.so.1").write_bytes(
        (Path(given["LD_LIBRARY_PATH"]) / "libnvidia-ml.so.1").read_bytes()
    )
    given["LD_LIBRARY_PATH"] = str(stubs)
    module_loaded(proc, "560.35.03")
    with ReaderProcess(given, **roots(sysfs, proc)) as reader:
        assert "stub" in reader.state("library-missing")["nvml"]["detail"]


def test_mismatch_names_both_versions(sysfs: Path, proc: Path, tmp_path: Path) -> None:
    given = environment(scenarios.mismatch(tmp_path / "cards.ini"))
    versioned = tmp_path / "lib"
    versioned.mkdir()
    real = Path(given["LD_LIBRARY_PATH"]) / "libnvidia-ml.so.1"
    (versioned / "libnvidia-ml.so.550.90.07").write_bytes(real.read_bytes())
    (versioned / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.550.90.07")
    given["LD_LIBRARY_PATH"] = str(versioned)
    scenarios.card_tree(sysfs, "0000:01:00.0")
    module_loaded(proc, "550.54.14")
    with ReaderProcess(given, retry_s=0.2, **roots(sysfs, proc)) as reader:
        snapshot = reader.state("mismatch")
        assert "550.54.14" in snapshot["nvml"]["detail"]
        assert "550.90.07" in snapshot["nvml"]["detail"]
        assert snapshot["gpus"][0]["state"] == "error"
        # the module is loaded anew: the same reader goes on
        scenarios.single_4090(tmp_path / "cards.ini")
        assert len(reader.state("ok")["gpus"]) == 1


@pytest.mark.parametrize(
    ("code", "loaded", "state"),
    [
        (9, False, "no-driver"),
        (9, True, "error"),
        (4, True, "no-permission"),
        (17, True, "no-permission"),
        (12, True, "library-missing"),
        (999, True, "error"),
        (8, True, "error"),
    ],
)
def test_what_init_refuses_with(
    sysfs: Path, proc: Path, tmp_path: Path, code: int, loaded: bool, state: str
) -> None:
    scenario = scenarios.write_scenario(
        tmp_path / "cards.ini", {"system": {"rc.InitWithFlags": code}}
    )
    scenarios.card_tree(sysfs, "0000:01:00.0", driver="nvidia" if loaded else None)
    if loaded:
        module_loaded(proc, "560.35.03")
    with ReaderProcess(environment(scenario), **roots(sysfs, proc)) as reader:
        snapshot = reader.state(state)
    assert snapshot["nvml"]["detail"]
    assert len(snapshot["gpus"]) == 1


def test_a_driver_that_brings_up_no_card(sysfs: Path, proc: Path, tmp_path: Path) -> None:
    scenario = scenarios.write_scenario(tmp_path / "cards.ini", {"system": {"driver": "560.1"}})
    scenarios.card_tree(sysfs, "0000:01:00.0")
    module_loaded(proc, "560.35.03")
    with ReaderProcess(environment(scenario), **roots(sysfs, proc)) as reader:
        snapshot = reader.state("error")
    assert "dmesg" in snapshot["nvml"]["detail"]
    assert snapshot["gpus"][0]["state"] == "error"


def test_unknown_errors_only_speak_for_lost_device_nodes(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini")
    with ReaderProcess(environment(scenario)) as reader:
        reader.state("ok")
        with scenario.open("a") as more:
            more.write("rc.*=999\n")
        snapshot = reader.until(lambda found: found["gpus"][0].get("state") == "error")
    assert "container" in snapshot["gpus"][0]["detail"]
    assert snapshot["gpus"][0]["name"] == "NVIDIA GeForce RTX 4090"


def test_a_reloaded_driver_is_initialised_again(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini")
    log = tmp_path / "calls"
    given = {**environment(scenario), "GPUMON_FAKE_NVML_LOG": str(log)}
    with ReaderProcess(given, reinit_after_s=0.3) as reader:
        reader.state("ok")
        scenario.write_text(scenario.read_text().replace("[system]", "[system]\nepoch=2"))
        reader.until(lambda found: found["gpus"][0].get("state") == "error")
        reader.until(lambda found: found["gpus"][0].get("state", "ok") == "ok")
    calls = log.read_text().split("\n")
    assert calls.count("system InitWithFlags") == 2
    assert calls.count("system Shutdown") == 1


# --- hanging --------------------------------------------------------------------------------------


def test_a_hung_call_is_named_and_the_rows_grow_old(tmp_path: Path) -> None:
    scenario = scenarios.hang(tmp_path / "cards.ini", hung=False)
    log = tmp_path / "calls"
    given = {**environment(scenario), "GPUMON_FAKE_NVML_LOG": str(log)}
    with ReaderProcess(given, hung_after_s=0.4) as reader:
        before = reader.state("ok")
        assert len(before["gpus"]) == 2
        scenarios.hang(scenario)
        started = time.monotonic()
        hung = reader.state("hung")
        assert time.monotonic() - started < 5
        assert hung["nvml"]["hung_call"] == "nvmlDeviceGetUtilizationRates"
        assert hung["nvml"]["hung_s"] >= 0.4
        assert "nvmlDeviceGetUtilizationRates" in hung["nvml"]["detail"]
        assert [row["uuid"] for row in hung["gpus"]] == [row["uuid"] for row in before["gpus"]]
        later = reader.until(lambda found: found["nvml"]["hung_s"] > hung["nvml"]["hung_s"] + 0.5)
        assert later["gpus_mono"] == hung["gpus_mono"]
        # no second reader goes beside it: the one call stands, nothing else is asked
        calls = log.read_text().splitlines()
        assert calls[-1].endswith("DeviceGetUtilizationRates") or "EventSetWait" in calls[-1]
        assert calls.count("system InitWithFlags") == 1
        scenarios.hang(scenario, hung=False)
        again = reader.state("ok")
        assert "hung_s" not in again["nvml"]
        reader.until(lambda found: found["gpus_mono"] > later["gpus_mono"])


def test_an_init_that_hangs_shows_the_cards_by_name(
    sysfs: Path, proc: Path, tmp_path: Path
) -> None:
    scenario = scenarios.hang(tmp_path / "cards.ini", call="InitWithFlags")
    scenarios.card_tree(sysfs, "0000:18:00.0")
    scenarios.information(proc, "0000:18:00.0", "NVIDIA H100 80GB HBM3", "GPU-1-2-3")
    with ReaderProcess(
        environment(scenario), hung_init_after_s=0.3, **roots(sysfs, proc)
    ) as reader:
        assert reader.snapshot()["nvml"]["state"] in {"starting", "hung"}
        snapshot = reader.state("hung")
    assert snapshot["nvml"]["hung_call"] == "nvmlInitWithFlags"
    assert snapshot["gpus_mono"] is None
    (card,) = snapshot["gpus"]
    assert (card["uuid"], card["name"], card["state"]) == (
        "GPU-1-2-3",
        "NVIDIA H100 80GB HBM3",
        "error",
    )
    assert set(card["unknown"].values()) == {"hung"}


def test_a_slow_init_is_told(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini")
    text = scenario.read_text().replace("[system]", "[system]\ndelay_ms.InitWithFlags=700")
    scenario.write_text(text)
    with ReaderProcess(environment(scenario)) as reader:
        assert reader.snapshot()["nvml"]["state"] == "starting"
        assert reader.state("ok")["nvml"]["init_s"] >= 0.7


# --- asleep ---------------------------------------------------------------------------------------


def test_a_sleeping_card_is_not_woken(sysfs: Path, proc: Path, tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini")
    card = scenarios.asleep(sysfs)
    log = tmp_path / "calls"
    given = {**environment(scenario), "GPUMON_FAKE_NVML_LOG": str(log)}
    given |= {"GPUMON_SYSFS_ROOT": str(sysfs), "GPUMON_PROC_ROOT": str(proc)}
    with ReaderProcess(given) as reader:
        snapshot = reader.state("asleep")
        assert [row["state"] for row in snapshot["gpus"]] == ["asleep"]
        assert set(snapshot["gpus"][0]["unknown"].values()) == {"asleep"}
        first = snapshot["gpus_mono"]
        reader.until(lambda found: found["gpus_mono"] > first + 0.5)
        assert not log.exists(), "the library was called"
        (card / "power/runtime_status").write_text("active\n")
        assert reader.state("ok")["gpus"][0]["util_percent"] >= 0


def test_one_sleeping_card_beside_one_awake(sysfs: Path, proc: Path, tmp_path: Path) -> None:
    scenario = scenarios.eight_with_lost_and_na(tmp_path / "cards.ini")
    text = scenario.read_text()
    scenario.write_text(text[: text.index("[gpu2]")])
    scenarios.card_tree(sysfs, "0000:18:00.0")
    card = scenarios.card_tree(sysfs, "0000:2a:00.0", status="suspended", control="auto")
    log = tmp_path / "calls"
    given = {**environment(scenario), "GPUMON_FAKE_NVML_LOG": str(log)}
    with ReaderProcess(given, **roots(sysfs, proc)) as reader:
        snapshot = reader.until(
            lambda found: found["nvml"]["state"] == "ok" and len(found["gpus"]) == 2
        )
        rows = {row["pci_id"]: row for row in snapshot["gpus"]}
        assert rows["0000:18:00.0"]["index"] == 0
        assert rows["0000:18:00.0"]["power_w"] > 0
        assert rows["0000:2a:00.0"]["state"] == "asleep"
        assert not re.search(r"^gpu1 ", log.read_text(), re.M), "the sleeping card was asked"
        (card / "power/runtime_status").write_text("active\n")
        reader.until(lambda found: by_index(found).get(1, {}).get("power_w"))
        (card / "power/runtime_status").write_text("suspended\n")
        reader.until(lambda found: by_index(found)[1].get("state") == "asleep")


def test_an_idle_laptop_on_battery_lets_its_card_sleep(
    sysfs: Path, proc: Path, tmp_path: Path
) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini", util="0")
    card = scenarios.card_tree(sysfs, "0000:01:00.0", control="auto")
    battery = sysfs / "class/power_supply/BAT0"
    battery.mkdir(parents=True)
    (battery / "type").write_text("Battery\n")
    (battery / "status").write_text("Charging\n")
    log = tmp_path / "calls"
    given = {**environment(scenario), "GPUMON_FAKE_NVML_LOG": str(log)}
    with ReaderProcess(given, release_after_s=0.3, **roots(sysfs, proc)) as reader:
        first = reader.state("ok")["gpus_mono"]
        reader.until(lambda found: found["gpus_mono"] > first + 0.6)
        assert "Shutdown" not in log.read_text()
        (battery / "status").write_text("Discharging\n")
        reader.until(lambda _: "system Shutdown" in log.read_text())
        # the open handles were all that kept it awake
        (card / "power/runtime_status").write_text("suspended\n")
        asleep = reader.state("asleep")["gpus"][0]
        assert asleep["uuid"].startswith("GPU-"), "the key must not change"
        assert asleep["name"] == "NVIDIA GeForce RTX 4090"
        (card / "power/runtime_status").write_text("active\n")
        reader.state("ok")


def test_a_busy_laptop_keeps_its_reader(sysfs: Path, proc: Path, tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini", util="0", processes=[(1200, MIB)])
    scenarios.card_tree(sysfs, "0000:01:00.0", control="auto")
    battery = sysfs / "class/power_supply/BAT0"
    battery.mkdir(parents=True)
    (battery / "type").write_text("Battery\n")
    (battery / "status").write_text("Discharging\n")
    log = tmp_path / "calls"
    given = {**environment(scenario), "GPUMON_FAKE_NVML_LOG": str(log)}
    with ReaderProcess(given, release_after_s=0.2, **roots(sysfs, proc)) as reader:
        first = reader.state("ok")["gpus_mono"]
        reader.until(lambda found: found["gpus_mono"] > first + 0.6)
    assert "Shutdown" not in log.read_text()


# --- events ---------------------------------------------------------------------------------------


def test_an_xid_is_seen_once_it_happens(tmp_path: Path) -> None:
    scenario = scenarios.eight_with_lost_and_na(tmp_path / "cards.ini")
    text = scenario.read_text()
    with ReaderProcess(environment(scenario)) as reader:
        snapshot = reader.until(lambda found: len(found["gpus"]) == 8)
        assert all("xid" not in row for row in snapshot["gpus"])
        scenario.write_text(text.replace("[gpu3]\n", "[gpu3]\nxid=79\n"))
        snapshot = reader.until(lambda found: any("xid" in row for row in found["gpus"]))
        assert {row["index"]: row["xid"] for row in snapshot["gpus"] if "xid" in row} == {3: 79}
        scenario.write_text(text.replace("[gpu3]\n", "[gpu3]\nxid=31\n"))
        reader.until(lambda found: by_index(found)[3].get("xid") == 31)


def test_cards_without_events_say_so(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini")
    with scenario.open("a") as more:
        more.write("rc.DeviceRegisterEvents=3\n")
    with ReaderProcess(environment(scenario)) as reader:
        assert reader.state("ok")["gpus"][0]["unknown"]["xid"] == "unsupported"


def test_stop_lets_go_of_the_driver(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini")
    log = tmp_path / "calls"
    given = {**environment(scenario), "GPUMON_FAKE_NVML_LOG": str(log)}
    with ReaderProcess(given) as reader:
        reader.state("ok")
        reader.ask("stop")
        reader.until(lambda _: "system Shutdown" in log.read_text())


def test_a_jetson_is_read_from_sysfs(sysfs: Path, proc: Path) -> None:
    (proc / "device-tree").mkdir()
    (proc / "device-tree/compatible").write_bytes(b"nvidia,p3737-0000\0nvidia,tegra234\0")
    (proc / "device-tree/model").write_bytes(b"NVIDIA Jetson AGX Orin Developer Kit\0")
    (proc / "meminfo").write_text("MemTotal: 31459468 kB\nMemAvailable: 25459468 kB\n")
    zone = sysfs / "class/thermal/thermal_zone1"
    zone.mkdir(parents=True)
    (zone / "type").write_text("gpu-thermal\n")
    (zone / "temp").write_text("47281\n")
    load = sysfs / "devices/platform/bus@0/17000000.gpu"
    load.mkdir(parents=True)
    (load / "load").write_text("373\n")
    with ReaderProcess(NO_LIBRARY, **roots(sysfs, proc)) as reader:
        (card,) = reader.state("library-missing")["gpus"]
    assert card["name"] == "NVIDIA Jetson AGX Orin Developer Kit"
    assert (card["util_percent"], card["temperature_c"]) == (37.3, pytest.approx(47.281))
    assert card["unified_memory"] is True
    assert card["memory_used_bytes"] == 6_000_000 * 1024
