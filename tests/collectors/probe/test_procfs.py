"""The machine's numbers from /proc: made-up files for the arithmetic, real ones for the rest."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gpumon.collectors.payload import install_probe_modules
from gpumon.snapshot import System
from tests.collectors.probe_process import wait_until

install_probe_modules()
import gpumon_probe_cgroup as cgroup  # noqa: E402
import gpumon_probe_disks as disks  # noqa: E402
import gpumon_probe_identity as identity  # noqa: E402
import gpumon_probe_procfs as procfs  # noqa: E402
import gpumon_probe_user_names as user_names  # noqa: E402
from gpumon_probe_worker import Worker  # noqa: E402

MEMINFO = """MemTotal:       131072 kB
MemFree:         10240 kB
MemAvailable:    65536 kB
Buffers:          1024 kB
Cached:          20480 kB
SwapTotal:        4096 kB
SwapFree:         1024 kB
HugePages_Total:     0
"""
NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs
    lo: {lo} 58 0 0 0 0 0 0 {lo} 58 0 0 0 0 0 0
  eth0:{rx} 4327 0 0 0 0 0 0 {tx} 1821 0 0 0 0 0 0
docker0: {rx} 1 0 0 0 0 0 0 {tx} 1 0 0 0 0 0 0
"""


def fake_host(tmp_path: Path, *, physical: bool = True) -> tuple[Path, Path]:
    proc, sysfs = tmp_path / "proc", tmp_path / "sys"
    (proc / "net").mkdir(parents=True)
    sysfs.mkdir()
    if physical:
        (sysfs / "class/net/eth0/device").mkdir(parents=True)
    write(proc, cpu="100 0 100 800 0 0 0 0 0 0", lo=5, rx=1000, tx=2000)
    (proc / "meminfo").write_text(MEMINFO)
    (proc / "loadavg").write_text("1.50 2.25 3.00 2/300 1234\n")
    (proc / "uptime").write_text("1234.56 999.0\n")
    return proc, sysfs


def write(proc: Path, *, cpu: str, lo: int, rx: int, tx: int) -> None:
    (proc / "stat").write_text(f"cpu  {cpu}\ncpu0 {cpu}\n")
    (proc / "net/dev").write_text(NET.format(lo=lo, rx=rx, tx=tx))


def test_two_readings_give_shares_and_rates(tmp_path: Path) -> None:
    proc, sysfs = fake_host(tmp_path)
    reader = procfs.SystemReader(str(proc), str(sysfs))
    first = reader.read(100.0)
    assert set(first) | {"disks"} == set(System.__dataclass_fields__)
    assert first["cpu_percent"] is None
    assert first["unknown"] == dict.fromkeys(
        ["cpu_percent", "network_rx_bytes_per_s", "network_tx_bytes_per_s"], "not-read"
    )
    assert first["memory_total_bytes"] == 131072 * 1024
    assert first["memory_available_bytes"] == 65536 * 1024
    assert first["swap_total_bytes"] == 4096 * 1024
    assert first["swap_used_bytes"] == 3072 * 1024
    assert (first["load_1"], first["load_5"], first["load_15"]) == (1.5, 2.25, 3.0)
    assert first["uptime_s"] == 1234.56
    # 60 busy of 200 ticks; only the card with hardware behind it counts
    write(proc, cpu="140 0 120 900 40 0 0 0 0 0", lo=500, rx=5000, tx=2500)
    second = reader.read(102.0)
    assert second["cpu_percent"] == 30.0
    assert second["network_rx_bytes_per_s"] == 2000.0
    assert second["network_tx_bytes_per_s"] == 250.0
    assert second["unknown"] == {}


def test_a_counter_that_went_back_is_a_restart_and_no_rate(tmp_path: Path) -> None:
    proc, sysfs = fake_host(tmp_path)
    reader = procfs.SystemReader(str(proc), str(sysfs))
    reader.read(100.0)
    write(proc, cpu="10 0 10 80 0 0 0 0 0 0", lo=0, rx=10, tx=20)
    found = reader.read(102.0)
    assert found["cpu_percent"] is None
    assert found["network_rx_bytes_per_s"] is None
    assert found["unknown"]["cpu_percent"] == "not-read"
    assert found["unknown"]["network_rx_bytes_per_s"] == "not-read"


def test_without_hardware_all_but_loopback_count(tmp_path: Path) -> None:
    proc, sysfs = fake_host(tmp_path, physical=False)
    reader = procfs.SystemReader(str(proc), str(sysfs))
    reader.read(100.0)
    write(proc, cpu="140 0 120 900 40 0 0 0 0 0", lo=10**9, rx=1100, tx=2000)
    assert reader.read(101.0)["network_rx_bytes_per_s"] == 200.0


def test_an_old_kernel_has_no_available_memory_of_its_own() -> None:
    text = MEMINFO.replace("MemAvailable:    65536 kB\n", "")
    assert procfs.parse_memory(text)["memory_available_bytes"] == (10240 + 1024 + 20480) * 1024


def test_guest_time_is_not_counted_twice_and_waiting_is_idle() -> None:
    #                        user nice sys idle iowait irq soft steal guest nice
    assert procfs.parse_cpu("cpu  50 10 20 100 30 1 2 7 50 10\n") == (90, 220)


@pytest.mark.parametrize(
    "text", ["", "cpu\n", "cpu a b c d e\n", "intr 5 5 5 5 5\n", "cpu 1 2 3\n"]
)
def test_a_stat_that_makes_no_sense_is_none(text: str) -> None:
    assert procfs.parse_cpu(text) is None


def test_a_host_without_proc_has_reasons_and_no_numbers(tmp_path: Path) -> None:
    found = procfs.SystemReader(str(tmp_path / "none"), str(tmp_path)).read(1.0)
    assert found["cpu_percent"] is None
    assert found["uptime_s"] is None
    assert found["unknown"]["cpu_percent"] == "unreadable"
    assert found["unknown"]["memory_available_bytes"] == "unreadable"
    # what the C library knows is known all the same
    assert found["memory_total_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert found["load_1"] is not None


def test_real_files_agree_with_the_system(tmp_path: Path) -> None:
    reader = procfs.SystemReader()
    reader.read(time.monotonic())
    busy_until = time.monotonic() + 0.2
    while time.monotonic() < busy_until:
        pass
    found = reader.read(time.monotonic())
    assert 0 < found["cpu_percent"] <= 100
    assert found["memory_total_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < found["memory_available_bytes"] <= found["memory_total_bytes"]
    assert found["uptime_s"] > 0


def test_disks_are_named_once_and_missing_ones_are_unknown(tmp_path: Path) -> None:
    rows = disks.read_disks(["/", str(tmp_path), "/no/such/place"], stores=[str(tmp_path), "/nope"])
    assert [row["path"] for row in rows] == ["/", str(tmp_path), "/no/such/place"]
    real = os.statvfs("/")
    assert rows[0]["total_bytes"] == real.f_blocks * real.f_frsize
    assert rows[2] == {"path": "/no/such/place", "total_bytes": None, "free_bytes": None}


def test_a_model_store_on_another_device_is_added() -> None:
    if Path("/dev/shm").stat().st_dev == Path("/").stat().st_dev:
        pytest.skip("/dev/shm is no device of its own here")
    assert [row["path"] for row in disks.read_disks([], stores=["/dev/shm", "/dev/shm"])] == [
        "/",
        "/dev/shm",
    ]


ID = "4f" * 32


@pytest.mark.parametrize(
    ("text", "container", "group"),
    [
        ("0::/system.slice/ollama.service\n", None, "/system.slice/ollama.service"),
        (f"0::/system.slice/docker-{ID}.scope\n", ID[:12], f"/system.slice/docker-{ID}.scope"),
        (f"12:cpu:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/\n", ID[:12], f"/docker/{ID}"),
        (
            f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1234_ab.slice/"
            f"cri-containerd-{ID}.scope\n",
            ID[:12],
            None,
        ),
        (f"5:memory:/kubepods/burstable/pod12-34/{ID}\n", ID[:12], None),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", ID[:12], None),
        ("0::/lxc/101/ns/init.scope\n", "101", None),
        ("0::/lxc.payload.web/system.slice\n", "web", None),
        ("0::/machine.slice/machine-build.scope\n", "build", None),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None, None),
        ("0::/\n", None, "/"),
        ("", None, None),
        ("nonsense\n", None, None),
    ],
)
def test_control_groups(text: str, container: str | None, group: str | None) -> None:
    assert cgroup.container_of(text) == container
    if group is not None:
        assert cgroup.group_of(text) == group


def test_identity_of_a_made_up_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    proc, etc = tmp_path / "proc", tmp_path / "etc"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "self").mkdir()
    etc.mkdir()
    (proc / "cpuinfo").write_text("processor\t: 0\nmodel name\t: AMD  EPYC 9654\n")
    (proc / "sys/kernel/random/boot_id").write_text("abc\n")
    (etc / "os-release").write_text('NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12"\n')
    found = identity.describe_host(str(proc), str(etc), str(tmp_path))
    assert found["os"] == "Debian GNU/Linux 12"
    assert found["cpu_model"] == "AMD EPYC 9654"
    assert found["boot_id"] == "abc"
    assert found["container"] is None
    for mark, kind in (("run/.containerenv", "podman"), (".dockerenv", "docker")):
        (tmp_path / mark).parent.mkdir(exist_ok=True)
        (tmp_path / mark).write_text("")
        assert identity.container_kind(str(proc), str(tmp_path)) == kind
    (tmp_path / ".dockerenv").unlink()
    (tmp_path / "run/.containerenv").unlink()
    (proc / "version").write_text("Linux version 5.15.0-microsoft-standard-WSL2\n")
    assert identity.container_kind(str(proc), str(tmp_path)) == "wsl"
    (proc / "self/cgroup").write_text(f"0::/docker/{ID}\n")
    assert identity.container_kind(str(proc), str(tmp_path)) == "container"


def test_an_arm_board_says_its_name_in_the_device_tree(tmp_path: Path) -> None:
    (tmp_path / "device-tree").mkdir()
    (tmp_path / "cpuinfo").write_text("processor : 0\nBogoMIPS : 48.00\n")
    (tmp_path / "device-tree/model").write_bytes(b"NVIDIA Jetson AGX Orin\0")
    assert identity.cpu_model(str(tmp_path)) == "NVIDIA Jetson AGX Orin"


def test_user_names_answer_at_once(tmp_path: Path) -> None:
    passwd = tmp_path / "passwd"
    passwd.write_text("root:x:0:0::/:/bin/sh\nollama:x:998:998::/:/bin/false\nbroken\n")
    names = user_names.UserNames(str(passwd))
    assert names.name(998) == "ollama"
    assert names.name(54321) == "54321"
    # what only the directory service knows comes later
    names.names.pop(0)
    assert names.name(0) == "0"
    wait_until(lambda: names.name(0) == "root", 5.0)


def test_a_worker_that_hangs_keeps_nobody_waiting() -> None:
    gate = threading.Event()
    calls: list[Any] = []

    def work(argument: Any) -> Any:
        calls.append(argument)
        gate.wait(10)
        return argument

    worker = Worker(work, lambda error: None)
    assert worker.result(0.0) == (None, 0.0)
    assert worker.ask(1)
    began = time.monotonic()
    value, stuck_s = worker.result(0.05)
    assert value is None
    assert stuck_s >= 0.05
    assert time.monotonic() - began < 1.0
    assert not worker.ask(2)  # never a second call beside one that hangs
    gate.set()
    assert worker.result(5.0) == (1, 0.0)
    assert calls == [1]


def test_a_worker_survives_what_it_calls() -> None:
    told: list[BaseException] = []

    def work(argument: int) -> float:
        return 1 / argument

    worker = Worker(work, told.append)
    worker.ask(0)
    assert worker.result(5.0) == (None, 0.0)
    assert isinstance(told[0], ZeroDivisionError)
    worker.ask(2)
    assert worker.result(5.0) == (0.5, 0.0)
