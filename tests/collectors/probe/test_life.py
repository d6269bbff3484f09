"""A probe's life as a real child: its lines, its settings, and above all its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import zlib
from pathlib import Path

import pytest

from gpumon.collectors.bootstrap import bootstrap_command
from gpumon.collectors.payload import HEARTBEAT, ProbeConfig, build_payload
from gpumon.snapshot import ProbeCost, System
from tests.collectors.probe_process import NONCE, RunningProbe, is_gone, wait_until

ROOT = Path(__file__).resolve().parents[3]


def test_lines_have_the_records_field_names_and_count_up() -> None:
    with RunningProbe(disks=("/tmp",)) as probe:
        assert set(probe.hello()) == {
            "t", "v", "hostname", "os", "kernel", "cpu_model", "cpu_count", "python",
            "container", "pid", "boot_id",
        }  # fmt: skip
        records = [probe.record() for _ in range(4)]
    assert [one["seq"] for one in records] == [0, 1, 2, 3]
    monos = [one["mono"] for one in records]
    assert monos == sorted(monos)
    last = records[-1]
    assert set(last["system"]) == set(System.__dataclass_fields__)
    assert set(last["probe"]) == set(ProbeCost.__dataclass_fields__)
    assert {disk["path"] for disk in last["system"]["disks"]} >= {"/", "/tmp"}
    assert set(records[0]["system"]["unknown"]) == {
        "cpu_percent",
        "network_rx_bytes_per_s",
        "network_tx_bytes_per_s",
    }
    assert last["system"]["unknown"] == {}
    assert abs(last["wall"] - time.time()) < 60


def test_samples_keep_a_monotonic_grid() -> None:
    with RunningProbe(interval_s=0.25) as probe:
        probe.hello()
        monos = [probe.record()["mono"] for _ in range(9)]
    start = monos[0]
    offsets = [((mono - start) / 0.25) % 1 for mono in monos[1:]]
    # a busy machine may be late, but lateness does not add up
    late = sorted(min(offset, 1 - offset) for offset in offsets)
    assert late[len(late) // 2] < 0.2


def test_the_second_sample_comes_early() -> None:
    with RunningProbe(interval_s=30.0) as probe:
        probe.hello()
        first, second = probe.record(), probe.record(timeout_s=10.0)
    assert 0.2 < second["mono"] - first["mono"] < 5.0
    assert second["system"]["cpu_percent"] is not None


def test_end_of_stdin_ends_it_within_a_second() -> None:
    with RunningProbe(interval_s=60.0) as probe:
        pid = probe.hello()["pid"]
        probe.record()
        probe.close_stdin()
        assert wait_until(lambda: is_gone(pid), 1.0) < 1.0
        records = []
        while line := probe.lines.next():
            records.append(json.loads(line))
        assert records[-1] == {"t": "bye", "reason": "the client closed the connection"}


def test_end_of_stdin_ends_it_although_nobody_reads_its_lines() -> None:
    with RunningProbe(interval_s=0.1, watch=(".",)) as probe:
        pid = probe.hello()["pid"]
        # the pipe fills up and the probe blocks within a write
        wait_until(lambda: "pipe" in Path(f"/proc/{pid}/wchan").read_text() or blocked(pid), 60.0)
        probe.close_stdin()
        wait_until(lambda: is_gone(pid), 1.0)


def blocked(pid: int) -> bool:
    """True while the main thread sits in write(1, ...) (system call 1 on x86-64, 64 on arm64)."""
    call = Path(f"/proc/{pid}/syscall").read_text().split()[:2]
    return call in (["1", "0x1"], ["64", "0x1"])


def test_end_of_stdin_ends_it_although_a_reader_hangs() -> None:
    """The driver's thread and a file system hang in code that holds no lock of ours."""
    hang = "import time\nclass NvmlReader:\n    def __init__(self, paths): time.sleep(1e6)\n"
    payload = _with_module("gpumon_probe_nvml", hang, interval_s=0.1, pynvml=True)
    with RunningProbe(payload=payload) as probe:
        pid = probe.hello()["pid"]
        assert [probe.record()["nvml"]["state"] for _ in range(3)] == ["starting"] * 3
        probe.close_stdin()
        wait_until(lambda: is_gone(pid), 1.0)


def test_a_driver_call_that_holds_the_processes_up_does_not_stop_the_samples() -> None:
    """A process stuck in the driver blocks whoever reads its command line."""
    hang = (
        "import time\n"
        "class ProcessTable:\n"
        "    def configure(self, *_): pass\n"
        "    def read(self, mono, rows, others=()): time.sleep(1e6)\n"
    )
    payload = _with_module("gpumon_probe_processes", hang, interval_s=0.1)
    with RunningProbe(payload=payload) as probe:
        probe.hello()
        records = [probe.record() for _ in range(3)]
    assert all(record["system"]["memory_total_bytes"] for record in records)
    assert all(record["watched"] == [] for record in records)


def test_a_reader_that_raises_is_said_once_and_the_rest_goes_on() -> None:
    broken = "class NvmlReader:\n    def __init__(self, paths): raise RuntimeError('no luck')\n"
    payload = _with_module("gpumon_probe_nvml", broken, interval_s=0.1, pynvml=True)
    with RunningProbe(payload=payload) as probe:
        probe.hello()
        record = probe.until(lambda one: one["nvml"]["state"] == "error")
        assert record["nvml"]["detail"] == "RuntimeError: no luck"
        text = probe.stderr()
    assert text.count("\n") == 1
    assert "RuntimeError: no luck" in text


def _with_module(name: str, source: str, **config: object) -> bytes:
    """A payload in which one module is another."""
    text = zlib.decompress(build_payload(ProbeConfig(nonce=NONCE, **config))).decode()  # type: ignore[arg-type]
    swap = f"sys.meta_path[0].sources[{name!r}] = {source!r}\nfrom gpumon_probe_main import run"
    assert text.count("from gpumon_probe_main import run") == 1
    head, _, tail = text.rpartition("from gpumon_probe_main import run")
    return zlib.compress((head + swap + tail).encode())


def test_no_heartbeat_ends_it() -> None:
    with RunningProbe(heartbeat_timeout_s=0.5, interval_s=60.0) as probe:
        pid = probe.hello()["pid"]
        probe.record()
        began = time.monotonic()
        for _ in range(4):
            probe.write(HEARTBEAT)
            assert not is_gone(pid)
            # each heartbeat buys half a second
            with pytest.raises(subprocess.TimeoutExpired):
                probe.process.wait(0.25)
        wait_until(lambda: is_gone(pid), 5.0)
        assert time.monotonic() - began > 1.0
        bye = probe.until(lambda record: record["t"] == "bye")
        assert bye["reason"] == "no heartbeat for 0.5 s"


def test_kill_9_of_the_client_ends_it() -> None:
    script = textwrap.dedent(
        f"""
        import subprocess, sys
        from gpumon.collectors.bootstrap import bootstrap_command
        from gpumon.collectors.payload import ProbeConfig, build_payload
        data = build_payload(ProbeConfig(nonce={NONCE!r}, interval_s=60.0, pynvml=False))
        child = subprocess.Popen(["sh", "-c", bootstrap_command()], stdin=subprocess.PIPE)
        child.stdin.write(b"%d\\n" % len(data) + data)
        child.stdin.flush()
        child.wait()
        """
    )
    client = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert client.stdout is not None
    assert client.stdout.readline() == b"\x1e" + NONCE.encode() + b"\n"
    pid = json.loads(client.stdout.readline())["pid"]
    assert not is_gone(pid)
    client.kill()
    client.wait()
    wait_until(lambda: is_gone(pid), 1.0)
    client.stdout.close()


def test_ctrl_c_in_the_terminal_is_left_to_the_client() -> None:
    with RunningProbe(interval_s=0.1) as probe:
        pid = probe.hello()["pid"]
        probe.record()
        os.kill(pid, signal.SIGINT)
        assert probe.record()["t"] == "sample"
        assert probe.record()["t"] == "sample"


def test_set_changes_interval_and_watch_while_it_runs() -> None:
    with RunningProbe(interval_s=60.0) as probe:
        probe.hello()
        assert probe.record()["watched"] == []
        probe.set(interval_s=0.1, watch=("^sh -c :gpumon-test-mark",))
        child = subprocess.Popen(
            ["sh", "-c", ":gpumon-test-mark; read -r x"], stdin=subprocess.PIPE
        )
        try:
            record = probe.until(lambda one: one["watched"])
            assert [row["pid"] for row in record["watched"]] == [child.pid]
            probe.set(watch=())
            probe.until(lambda one: one["watched"] == [])
        finally:
            child.communicate(b"\n")


@pytest.mark.parametrize(
    "line",
    [
        b"{\n",
        b"nonsense\n",
        b'{"set": 5}\n',
        b'{"set": {"interval_s": "soon", "watch": 3, "requests": {"a": 1}, "new_field": 1}}\n',
        b'{"set": {"interval_s": -1e308, "heartbeat_timeout_s": NaN}}\n',
        b'{"set": {"requests": [null, 5, {}, {"id": "x"}, {"id": "x", "port": 99999}]}}\n',
        b'{"set": {"watch": ["(", null, "ok"]}}\n',
        b"\xff\xfe\x00\n",
        b'{"set":' + b"[" * 5000 + b"\n",
    ],
)
def test_no_line_from_the_client_upsets_it(line: bytes) -> None:
    with RunningProbe(interval_s=0.1) as probe:
        probe.hello()
        probe.write(line)
        records = [probe.record() for _ in range(3)]
        assert [record["t"] for record in records] == ["sample"] * 3
        assert probe.process.poll() is None


def test_bootstrap_reads_not_one_byte_too_many() -> None:
    """What follows the payload in the same write is the probe's own input."""
    settings = b'{"set":{"interval_s":0.1}}\n'
    data = build_payload(ProbeConfig(nonce=NONCE, interval_s=60.0, pynvml=False))
    with subprocess.Popen(
        ["sh", "-c", bootstrap_command()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"%d\n" % len(data) + data + settings)
        child.stdin.flush()
        seqs = []
        while len(seqs) < 4:
            line = child.stdout.readline()
            assert line
            if line.startswith(b'{"t":"sample"'):
                seqs.append(json.loads(line)["seq"])
        assert seqs == [0, 1, 2, 3]
        child.stdin.close()


#: A process whose main thread has ended while another lives on: what a probe looks like
#: that was killed within a driver call. System call 60 (arm64: 93) ends one thread.
DEAD_LEADER = """
import ctypes, platform, sys, threading, time
libc = ctypes.CDLL(None)
libc.prctl(15, b"gpumon-probe", 0, 0, 0)
threading.Thread(target=time.sleep, args=(600,)).start()
print(1, flush=True)
libc.syscall(93 if platform.machine() == "aarch64" else 60, 0)
"""


def test_the_driver_is_left_alone_while_an_earlier_probe_is_stuck_in_it() -> None:
    stuck = subprocess.Popen([sys.executable, "-c", DEAD_LEADER], stdout=subprocess.PIPE)
    assert stuck.stdout is not None
    try:
        stuck.stdout.readline()
        wait_until(lambda: is_gone(stuck.pid), 5.0)
        with RunningProbe(interval_s=0.1, pynvml=True) as probe:
            pid = probe.hello()["pid"]
            record = probe.until(lambda one: one["nvml"]["state"] == "hung")
            assert record["nvml"]["detail"] == (
                f"an earlier probe (pid {stuck.pid}) is stuck in the driver"
            )
            assert record["system"]["memory_total_bytes"]
            assert Path(f"/proc/{pid}/comm").read_text() == "gpumon-probe\n"
            stuck.kill()
            stuck.wait()
            probe.until(lambda one: one["nvml"]["state"] not in ("hung", "starting"))
    finally:
        stuck.kill()
        stuck.communicate()
