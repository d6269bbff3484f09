"""The mock driver is what it claims: the real layout, the real codes, the real gaps."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.rig.need import need
from tests.rig.nvml_mock import scenarios
from tests.rig.nvml_mock.build import DRIVERS, build, environment


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    need("cc")


def run(given: dict[str, str], body: str) -> Any:
    """What ``body`` leaves in ``out``, run with nvidia-ml-py on the mock."""
    script = (
        "import json, time, pynvml as n\n"
        "def rc(f, *a):\n"
        "    try:\n        f(*a)\n        return 0\n"
        "    except n.NVMLError as e:\n        return e.value\n"
        f"n.nvmlInit()\n{body}\nprint(json.dumps(out))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": "/usr/bin:/bin", **given},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


#: record of nvidia-ml-py -> bytes on x86-64, which nvml_abi.h asserts for the mock's own
SIZES = {
    "c_nvmlMemory_t": 24,
    "c_nvmlMemory_v2_t": 40,
    "c_nvmlBAR1Memory_t": 24,
    "c_nvmlUtilization_t": 8,
    "nvmlPciInfo_t": 68,
    "c_nvmlTemperature_v1_t": 12,
    "c_nvmlMarginTemperature_v1_t": 8,
    "c_nvmlFanSpeedInfo_t": 12,
    "c_nvmlDeviceAddressingMode_t": 8,
    "c_nvmlProcessInfo_v2_t": 24,
    "c_nvmlProcessInfo_v3_t": 24,
    "c_nvmlProcessUtilizationSample_t": 32,
    "c_nvmlProcessUtilizationInfo_v1_t": 40,
    "c_nvmlProcessesUtilizationInfo_v1_t": 24,
    "c_nvmlFieldValue_t": 40,
    "c_nvmlDeviceAttributes": 40,
    "c_nvmlEventData_t": 32,
    "c_nvmlAccountingStats_t": 56,
    "c_nvmlGpmMetric_t": 40,
    "c_nvmlSample_t": 16,
    "c_nvmlViolationTime_t": 16,
    "c_nvmlEccErrorCounts_t": 32,
}
WORDS = {
    "nvmlMemory_v2": 0x02000028,
    "nvmlTemperature_v1": 0x0100000C,
    "nvmlMarginTemperature_v1": 0x01000008,
    "nvmlFanSpeedInfo_v1": 0x0100000C,
    "ProcessesUtilizationInfo_v1": 0x01000018,
    "NVML_GPM_METRICS_GET_VERSION": 1,
}


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_record_sizes(name: str, size: int) -> None:
    assert ctypes.sizeof(getattr(pynvml, name)) == size


def test_record_sizes_are_asserted_in_the_mock() -> None:
    text = (Path(__file__).parent / "nvml_mock/nvml_abi.h").read_text()
    asserted = re.findall(r"SIZE\((\w+), (\d+)\)", text)
    assert len(asserted) >= 18
    assert {"Memory2": "40", "ProcessWide": "32", "FieldValue": "40"}.items() <= dict(
        asserted
    ).items()


@pytest.mark.parametrize(("name", "word"), WORDS.items())
def test_version_words(name: str, word: int) -> None:
    assert getattr(pynvml, name) == word


def exports(driver: str) -> set[str]:
    need("nm")
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(build(driver) / "libnvidia-ml.so.1")],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found = set(re.findall(r" T (\w+)", listing))
    assert all(name.startswith("nvml") for name in found)
    return found


def test_generations_export_what_they_had() -> None:
    of = {driver: exports(driver) for driver in DRIVERS}
    assert len(of["610"]) >= 95
    assert of["525"] < of["535_86"] < of["550"] < of["610"]
    assert "nvmlDeviceGetMemoryInfo_v2" in of["525"] - of["470"]
    assert "nvmlDeviceGetComputeRunningProcesses_v3" in of["525"] - of["470"]
    assert "nvmlDeviceGetComputeRunningProcesses_v2" in of["470"] - of["450"]
    assert "nvmlDeviceGetCurrentClocksEventReasons" in of["535_86"] - of["525"]
    assert "nvmlDeviceGetTemperatureV" in of["610"] - of["550"]
    gone = {"nvmlDeviceGetTemperature", "nvmlDeviceGetCurrentClocksThrottleReasons"}
    assert of["610"] - of["700"] == gone


def test_codes_and_gaps(tmp_path: Path) -> None:
    scenario = scenarios.mig(tmp_path / "cards.ini")
    with scenario.open("a") as more:
        more.write("[gpu2]\nrc.*=15\nname=gone\n")
    out = run(
        environment(scenario),
        """
h = [n.nvmlDeviceGetHandleByIndex(i) for i in (0, 1)]
m = n.c_nvmlMemory_v2_t(); m.version = 2
out = {
  "count": n.nvmlDeviceGetCount(),
  "lost": rc(n.nvmlDeviceGetHandleByIndex, 2),
  "beyond": rc(n.nvmlDeviceGetHandleByIndex, 3),
  "fan": rc(n.nvmlDeviceGetFanSpeed, h[0]),
  "word": n._nvmlGetFunctionPointer("nvmlDeviceGetMemoryInfo_v2")(h[0], n.byref(m)),
  "slices": [rc(n.nvmlDeviceGetMigDeviceHandleByIndex, h[0], i) for i in range(5)],
  "samples": rc(n.nvmlDeviceGetProcessUtilization, h[1], 0),
  "empty": len(n.nvmlDeviceGetComputeRunningProcesses_v3(h[1])),
  "event": rc(n.nvmlEventSetWait_v2, n.nvmlEventSetCreate(), 10),
  "memory": [n.nvmlDeviceGetMemoryInfo(h[1], v).used for v in (None, n.nvmlMemory_v2)],
}
n.nvmlShutdown()
out["after"] = rc(n.nvmlDeviceGetCount)
""",
    )
    assert out == {
        "count": 3,
        "lost": 15,
        "beyond": 2,
        "fan": 3,
        "word": 25,
        "slices": [0, 0, 6, 0, 6],
        "samples": 6,
        "empty": 0,
        "event": 10,
        "memory": [(6 + 479) * 1024**2, 6 * 1024**2],
        "after": 1,
    }


def test_old_drivers_fail_as_nvidia_ml_py_knows_them_to(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini", processes=[(4000, 1), (4013, 2)])
    body = """
h = n.nvmlDeviceGetHandleByIndex(0)
out = [rc(n.nvmlDeviceGetTemperatureV, h, 0), rc(n.nvmlDeviceGetTemperature, h, 0)]
"""
    assert run(environment(scenario, "550"), body) == [13, 0]
    assert run(environment(scenario, "700"), body) == [0, 13]
    # 535.86: the second record is read in the middle of the first
    body = """
h = n.nvmlDeviceGetHandleByIndex(0)
out = [p.pid for p in n.nvmlDeviceGetComputeRunningProcesses_v3(h)]
"""
    assert run(environment(scenario, "535_86"), body) != [4000, 4013]
    assert run(environment(scenario, "550"), body) == [4000, 4013]


def test_the_file_is_read_again_and_values_move(tmp_path: Path) -> None:
    scenario = scenarios.single_4090(tmp_path / "cards.ini", util="10..90/0.2")
    out = run(
        environment(scenario),
        f"""
h = n.nvmlDeviceGetHandleByIndex(0)
seen = set()
end = time.monotonic() + 5
while len(seen) < 5 and time.monotonic() < end:
    seen.add(n.nvmlDeviceGetUtilizationRates(h).gpu)
path = {str(scenario)!r}
text = open(path).read()
open(path, "w").write(text.replace("fan=41", "fan=87\\ndelay_ms.DeviceGetName=150"))
fan = n.nvmlDeviceGetFanSpeed(h)
start = time.monotonic()
n.nvmlDeviceGetName(h)
out = [sorted(seen), fan, time.monotonic() - start]
""",
    )
    assert len(out[0]) >= 5
    assert min(out[0]) >= 10
    assert max(out[0]) <= 90
    assert out[1] == 87
    assert out[2] >= 0.15


def test_a_build_is_kept(tmp_path: Path) -> None:
    first = build("610") / "libnvidia-ml.so.1"
    made = first.stat().st_mtime_ns
    build.cache_clear()
    assert (build("610") / "libnvidia-ml.so.1").stat().st_mtime_ns == made
    assert not first.is_relative_to(Path(__file__).parents[2])
    into = build("550", tmp_path / "lib")
    assert sorted(path.name for path in into.iterdir()) == ["libnvidia-ml.so.1"]
