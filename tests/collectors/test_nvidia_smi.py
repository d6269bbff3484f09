"""The fallback without Python: the real shell loop around a made-up nvidia-smi."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpumon.collectors.nvidia_smi import NONCE, SmiReader, fallback_command
from gpumon.collectors.smi_rows import QUERY_FIELDS
from gpumon.collectors.wire import read_bye, read_hello, read_sample
from gpumon.snapshot import GpuState, HostFacts, HostSnapshot, NvmlState
from tests.collectors.probe_process import Lines, wait_until
from tests.collectors.test_smi_rows import VALUES, line

SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]
MIB = 1024 * 1024
FAKE = """\
#!{python} -IS
import os, sys, time
open({log!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
VALUES = {values!r}
REFUSED = {refused!r}
def main():
    query = [a for a in sys.argv[1:] if a.startswith("--query")][0]
    kind, _, names = query.partition("=")
    {before}
    if kind == "--query-compute-apps":
        print({apps!r})
        return 0
    for name in names.split(","):
        if name not in VALUES or name in REFUSED:
            print('Field "%s" is not a valid field to query.\\n' % name)
            return 2
    for index in range({cards}):
        row = dict(VALUES, index=str(index), uuid="GPU-%d" % index)
        print(", ".join(row[name] for name in names.split(",")))
    return 0
sys.exit(main())
"""


def fake_smi(
    folder: Path,
    *,
    refused: tuple[str, ...] = (),
    before: str = "pass",
    apps: str = "GPU-0, 4711, 22016, /usr/bin/python3",
    cards: int = 2,
) -> Path:
    """Put an ``nvidia-smi`` into ``folder/bin``; returns the log of how it was called."""
    log = folder / "calls"
    log.write_text("")
    (folder / "bin").mkdir()
    program = folder / "bin" / "nvidia-smi"
    program.write_text(
        FAKE.format(
            python=os.path.realpath(sys.executable), log=str(log), values=VALUES, refused=refused,
            before=textwrap.indent(before, "    ").strip(), apps=apps, cards=cards,
        )
    )  # fmt: skip
    program.chmod(0o755)
    return log


class Fallback:
    """The running loop and its reader."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.lines = Lines(process)
        self.reader = SmiReader()

    def record(self, kind: str, timeout_s: float = 15.0) -> dict[str, Any]:
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            text = self.lines.next(timeout_s)
            assert text or not self.lines.ended, f"ended without a {kind}"
            found = self.reader.read(text)
            if found is not None and found["t"] == kind:
                return found
        raise AssertionError(f"no {kind} within {timeout_s} s")

    def snapshot(self) -> HostSnapshot:
        return read_sample(
            self.record("sample"),
            host="h",
            received_at=time.time(),
            facts=HostFacts(),
            interval_s=1.0,
        )

    def until_nvml(self, *states: NvmlState) -> HostSnapshot:
        while True:
            snapshot = self.snapshot()
            if snapshot.nvml.state in states:
                return snapshot

    def everyone(self) -> list[int]:
        """All processes of its session."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                rest = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(rest[3]) == self.process.pid and rest[0] not in "ZX":
                found.append(int(path.parent.name))
        return found


@contextmanager
def running(folder: Path, shell: str = "sh", **options: Any) -> Iterator[Fallback]:
    path = f"{folder / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    # the command says /bin/sh; here it is whichever shell is under test
    command = fallback_command(1.0, **options).replace("/bin/sh", shutil.which(shell) or shell)
    process = subprocess.Popen(
        [shell, "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": path},
        start_new_session=True,
    )
    fallback = Fallback(process)
    try:
        yield fallback
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            wait_until(lambda: not fallback.everyone(), 5.0)
        finally:
            for pid in fallback.everyone():
                os.kill(pid, 9)
            process.wait()
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            process.stderr.close()


@pytest.mark.parametrize("shell", SHELLS)
def test_cards_processes_and_machine(shell: str, tmp_path: Path) -> None:
    fake_smi(tmp_path)
    with running(tmp_path, shell) as fallback:
        assert fallback.lines.next() == b"\x1e" + NONCE.encode()
        facts = read_hello(fallback.record("hello"))
        assert facts.hostname == os.uname().nodename
        assert facts.kernel == os.uname().release
        assert facts.cpu_count == os.cpu_count()
        snapshot = fallback.until_nvml(NvmlState.OK)
        while not snapshot.processes or snapshot.system.cpu_percent is None:
            snapshot = fallback.snapshot()
        assert snapshot.source == "nvidia-smi"
        assert [gpu.uuid for gpu in snapshot.gpus] == ["GPU-0", "GPU-1"]
        gpu = snapshot.gpus[1]
        assert gpu.name == VALUES["name"]
        assert gpu.memory_total_bytes == 81559 * MIB
        assert gpu.util_percent == 97.0
        assert gpu.unknown["energy_j"] == "fallback"
        assert snapshot.nvml.driver_version == VALUES["driver_version"]
        assert snapshot.processes[0].pid == 4711
        assert snapshot.processes[0].unknown["user"] == "fallback"
        assert snapshot.system.memory_total_bytes
        assert snapshot.system.load_1 is not None
        assert snapshot.system.network_rx_bytes_per_s is not None
        assert [disk.path for disk in snapshot.system.disks] == ["/"]
        assert snapshot.gpus_monotonic_s is not None
        assert snapshot.gpus_monotonic_s <= snapshot.monotonic_s


@pytest.mark.parametrize("shell", SHELLS)
def test_an_old_drivers_unknown_fields_are_left_out_one_by_one(shell: str, tmp_path: Path) -> None:
    refused = (
        "memory.reserved",
        "utilization.encoder",
        "clocks_event_reasons.active",
        "index",
        "name",
    )
    log = fake_smi(tmp_path, refused=refused[:3])
    with running(tmp_path, shell) as fallback:
        snapshot = fallback.until_nvml(NvmlState.OK)
        assert len(snapshot.gpus) == 2
        gpu = snapshot.gpus[0]
        assert gpu.memory_reserved_bytes is None
        assert gpu.unknown["memory_reserved_bytes"] == "no-symbol"
        assert gpu.throttle_reasons == ("sw-power-cap",)
        assert gpu.name == VALUES["name"]
        # the list is learnt once, not at every round
        calls = [call for call in log.read_text().splitlines() if "--query-gpu" in call]
        assert [len(call.split()[0].split(",")) for call in calls[:4]] == [
            len(QUERY_FIELDS) - n for n in range(4)
        ]
        wait_until(lambda: log.read_text().count("--query-gpu") >= 5, 5.0)
        assert "utilization.encoder" not in log.read_text().splitlines()[-1]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_first_and_the_last_field_can_be_refused_too(shell: str, tmp_path: Path) -> None:
    fake_smi(tmp_path, refused=(QUERY_FIELDS[0], QUERY_FIELDS[-1]))
    with running(tmp_path, shell) as fallback:
        snapshot = fallback.until_nvml(NvmlState.OK)
        assert [gpu.uuid for gpu in snapshot.gpus] == ["GPU-0", "GPU-1"]
        assert snapshot.gpus[0].name is None
        assert snapshot.gpus[0].unknown["name"] == "no-symbol"


@pytest.mark.parametrize("shell", SHELLS)
def test_no_second_one_starts_while_one_hangs_and_the_machine_is_read_on(
    shell: str, tmp_path: Path
) -> None:
    log = fake_smi(tmp_path, before="time.sleep(1e6)")
    with running(tmp_path, shell) as fallback:
        snapshots = [fallback.snapshot() for _ in range(4)]
        assert snapshots[-1].monotonic_s - snapshots[0].monotonic_s > 2.5
        assert snapshots[-1].system.cpu_percent is not None
        assert log.read_text().count("\n") == 1
        assert len(fallback.everyone()) >= 4
        began = time.monotonic()
        assert fallback.process.stdin is not None
        fallback.process.stdin.close()
        wait_until(lambda: not fallback.everyone(), 3.0)
        assert time.monotonic() - began < 3.0


@pytest.mark.parametrize("shell", SHELLS)
def test_end_of_stdin_ends_all_of_it_at_once(shell: str, tmp_path: Path) -> None:
    fake_smi(tmp_path)
    with running(tmp_path, shell) as fallback:
        fallback.until_nvml(NvmlState.OK)
        assert fallback.process.stdin is not None
        fallback.process.stdin.close()
        wait_until(lambda: not fallback.everyone(), 2.0)
        assert read_bye(fallback.record("bye")) == "the client closed the connection"
        assert fallback.process.wait(1.0) == 0


@pytest.mark.parametrize("shell", SHELLS)
def test_no_heartbeat_ends_it_and_a_heartbeat_does_not(shell: str, tmp_path: Path) -> None:
    fake_smi(tmp_path)
    with running(tmp_path, shell, heartbeat_timeout_s=2.0) as fallback:
        assert fallback.process.stdin is not None
        seqs = []
        for _ in range(3):
            seqs.append(fallback.snapshot().seq)
            fallback.process.stdin.write(b"h\n")
            fallback.process.stdin.flush()
        assert seqs == [0, 1, 2]
        assert read_bye(fallback.record("bye", 10.0)) == "no heartbeat for 2 s"
        wait_until(lambda: not fallback.everyone(), 2.0)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_host_without_nvidia_smi_has_its_machine_read(shell: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    if Path("/usr/bin/nvidia-smi").exists():
        pytest.skip("this machine has an nvidia-smi")
    with running(tmp_path, shell) as fallback:
        snapshot = fallback.snapshot()
        assert snapshot.nvml.state is NvmlState.ABSENT
        assert snapshot.gpus == ()
        assert snapshot.processes == ()
        assert snapshot.system.memory_total_bytes


@pytest.mark.parametrize("shell", SHELLS)
def test_a_driver_that_does_not_answer_is_said_in_its_words(shell: str, tmp_path: Path) -> None:
    words = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    fake_smi(tmp_path, before=f"print({words!r}); return 9")
    with running(tmp_path, shell) as fallback:
        snapshot = fallback.until_nvml(NvmlState.NO_DRIVER)
        assert snapshot.nvml.detail == words
        assert snapshot.gpus == ()


def test_the_command_survives_every_shells_quoting() -> None:
    command = fallback_command(2.4, nonce="abc-1")
    assert command.count("'") == 2
    assert "\n" not in command
    # csh takes "!" for its history unless a blank follows
    assert re.findall(r"!.", command) == ["! "] * command.count("!")
    assert "I=2; T=30; N=abc-1;" in command
    with pytest.raises(ValueError, match="nonce"):
        fallback_command(2.0, nonce="a;b")


# --- the reader alone ---------------------------------------------------------------------
class Feed:
    """Lines as the shell would send them, at given uptimes."""

    def __init__(self, hardware: str = "nvidia") -> None:
        self.reader = SmiReader()
        self.seq = -1
        self.say(f"~V /usr/bin/nvidia-smi {hardware}")

    def say(self, *lines: str) -> list[dict[str, Any]]:
        found = (self.reader.read(text.encode()) for text in lines)
        return [record for record in found if record is not None]

    def round(self, uptime: float) -> HostSnapshot:
        self.seq += 1
        (record,) = self.say(f"~R {self.seq}", f"~U {uptime} 5", f"~E {self.seq}")
        return read_sample(record, host="h", received_at=1.0, facts=HostFacts(), interval_s=1.0)

    def smi(self, status: int, *rows: str) -> None:
        self.say(
            "~B gpu", f"~Q {','.join(QUERY_FIELDS)}", *(f"~g {row}" for row in rows), f"~G {status}"
        )


def test_a_hung_nvidia_smi_is_said_with_its_time_and_recovers() -> None:
    feed = Feed()
    assert feed.round(100.0).nvml.state is NvmlState.STARTING
    feed.smi(0, line())
    assert feed.round(101.0).nvml.state is NvmlState.OK
    feed.say("~B gpu")
    assert feed.round(110.0).nvml.state is NvmlState.OK
    hung = feed.round(121.0)
    assert hung.nvml.state is NvmlState.HUNG
    assert hung.nvml.hung_s == 20.0
    assert hung.nvml.hung_call == "nvidia-smi (gpu)"
    # the old reading stays, with its age
    assert len(hung.gpus) == 1
    assert hung.gpus_monotonic_s == 100.0
    feed.say(f"~g {line()}", "~G 0")
    assert feed.round(122.0).nvml.state is NvmlState.OK


@pytest.mark.parametrize(
    ("status", "hardware", "rows", "state"),
    [
        (0, "nvidia", [line()], NvmlState.OK),
        (14, "nvidia", [line(), "WARNING: infoROM is corrupted at gpu 0000:17:00.0"], NvmlState.OK),
        (9, "unbound", ["couldn't communicate"], NvmlState.NO_DRIVER),
        (9, "nouveau", ["couldn't communicate"], NvmlState.NOUVEAU),
        (18, "nvidia", ["Driver/library version mismatch"], NvmlState.MISMATCH),
        (12, "nvidia", ["NVIDIA-SMI couldn't find libnvidia-ml.so"], NvmlState.LIBRARY_MISSING),
        (4, "nvidia", ["Insufficient Permissions"], NvmlState.NO_PERMISSION),
        (127, "nvidia", ["sh: nvidia-smi: not found"], NvmlState.LIBRARY_MISSING),
        (6, "none", ["No devices were found"], NvmlState.ABSENT),
        (6, "nvidia", ["No devices were found"], NvmlState.ERROR),
        (255, "nvidia", [""], NvmlState.ERROR),
        (2, "nvidia", ["Invalid combination of input arguments."], NvmlState.ERROR),
    ],
)  # fmt: skip
def test_exit_status_and_words(
    status: int, hardware: str, rows: list[str], state: NvmlState
) -> None:
    feed = Feed(hardware)
    feed.round(1.0)
    feed.smi(status, *rows)
    snapshot = feed.round(2.0)
    assert snapshot.nvml.state is state
    assert len(snapshot.gpus) == rows.count(line())
    if state is NvmlState.ERROR:
        assert snapshot.nvml.detail


def test_a_lost_card_keeps_its_name_and_key() -> None:
    feed = Feed()
    feed.round(1.0)
    feed.smi(0, line(), line(index="1", uuid="GPU-b", **{"pci.bus_id": "00000000:3B:00.0"}))
    assert [gpu.state for gpu in feed.round(2.0).gpus] == [GpuState.OK, GpuState.OK]
    lost = "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost."
    feed.smi(15, lost)
    (gpu,) = feed.round(3.0).gpus
    assert (gpu.uuid, gpu.state, gpu.detail) == ("GPU-b", GpuState.LOST, "GPU is lost.")
    assert gpu.name == VALUES["name"]
    assert gpu.memory_used_bytes is None


def test_sleeping_cards_are_left_asleep() -> None:
    feed = Feed()
    feed.round(1.0)
    feed.say("~B asleep")
    assert feed.round(2.0).nvml.state is NvmlState.ASLEEP
    # and that is no hang
    assert feed.round(200.0).nvml.state is NvmlState.ASLEEP


@pytest.mark.parametrize(
    ("hardware", "state"),
    [("none", NvmlState.ABSENT), ("nvidia", NvmlState.LIBRARY_MISSING),
     ("nouveau", NvmlState.NOUVEAU), ("unbound", NvmlState.NO_DRIVER)],
)  # fmt: skip
def test_without_the_program_the_cards_in_sys_tell(hardware: str, state: NvmlState) -> None:
    feed = Feed()
    feed.say(f"~V none {hardware}")
    assert feed.round(1.0).nvml.state is state


def test_a_round_without_the_hosts_clock_is_no_sample() -> None:
    feed = Feed()
    assert feed.say("~R 0", "~E 0") == []
    for uptime in ("soon", "inf", "nan", "-5.0 1", "1e5", ""):
        assert feed.say("~R 1", f"~U {uptime}", "~E 1") == []
    assert len(feed.say("~R 1", "~U 12.5 90", "~E 1")) == 1


TAGS = st.sampled_from("HRUCLMNDEVBQgGaAXz~ ")
RAW = st.binary(max_size=80) | st.tuples(TAGS, st.text(max_size=60)).map(
    lambda pair: f"~{pair[0]} {pair[1]}".encode("utf-8", "replace")
)


@given(st.lists(RAW, max_size=40))
@settings(max_examples=300, deadline=None)
@example([b"~U INF"])
@example(["~G ²".encode(), "~E ²".encode()])
def test_fuzz_no_lines_raise_and_every_record_can_be_read(lines: list[bytes]) -> None:
    feed = Feed()
    for raw in [b"~R 0", b"~U 5.0 5", *lines, b"~E 1"]:
        record = feed.reader.read(raw)
        if record is None:
            continue
        if record["t"] == "sample":
            read_sample(record, host="h", received_at=1.0, facts=HostFacts(), interval_s=1.0)
        elif record["t"] == "hello":
            read_hello(record)
        else:
            read_bye(record)
