"""Real processes found, joined and described."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.collectors.payload import install_probe_modules
from gpumon.collectors.wire import read_watched
from gpumon.snapshot import GpuProcess
from tests.collectors.probe_process import wait_until

install_probe_modules()
import gpumon_probe_processes as processes  # noqa: E402
from gpumon_probe_listening import listening_ports, listening_sockets  # noqa: E402
from gpumon_probe_process_files import ProcessFiles, parse_stat, split_command  # noqa: E402

MARK = "gpumon-test-engine"
#: Says a word, then waits for its stdin to end.
WAITS = "import sys; print(1, flush=True); sys.stdin.read()"


@contextlib.contextmanager
def child(*arguments: str, script: str = WAITS, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ready when this returns."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **env},
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def table(watch: tuple[str, ...] = (MARK,), env: tuple[str, ...] = ()) -> Any:
    made = processes.ProcessTable()
    made.configure(watch, env, 10.0)
    return made


def test_an_engine_is_found_with_all_that_is_known_of_it() -> None:
    script = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); "
        "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, MARK, "--api-key", "S3cretS3cret", "--port", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "OLLAMA_HOST": "http://u:S3cretS3cret@h:1", "OLLAMA_TOKEN": "S3cret",
             "OTHER": "x"},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        rows, gpu_rows, changed, _ = table(env=("OLLAMA_.*",)).read(100.0, None)
        assert gpu_rows is None
        assert changed is True
        (row,) = rows
        assert row["pid"] == process.pid
        assert row["ppid"] == os.getpid()
        assert row["cmd"][3:] == [MARK, "--api-key", "***", "--port", "1"]
        assert row["ports"] == [port]
        assert row["env"] == {"OLLAMA_HOST": "http://***@h:1"}
        assert row["rss_bytes"] > 1_000_000
        assert row["cpu_percent"] is None
        assert row["ancestors"][0]["pid"] == os.getpid()
        assert row["ancestors"][-1]["pid"] == 1 or len(row["ancestors"]) == 16
        age = time.clock_gettime(7) - row["start_ticks"] / os.sysconf("SC_CLK_TCK")
        assert -1 < age < 60
        (read,) = read_watched({"watched": rows})
        assert (read.pid, read.ports, read.env_readable) == (process.pid, (port,), True)
    finally:
        process.kill()
        process.communicate()


def test_matching_looks_at_comm_base_name_and_joined_arguments() -> None:
    with child(MARK, "two words") as process:
        for pattern, found in (
            (f"^{Path(sys.executable).name}$", True),  # base name of argv[0]
            (f"{MARK} two words$", True),
            ("^python", True),
            (f"^{MARK}", False),
        ):
            rows = table((pattern,)).read(1.0, None)[0]
            assert (process.pid in [row["pid"] for row in rows]) is found, pattern


#: Says a word, waits for a line, and becomes a shell with that command line.
BECOMES = (
    "import os, sys; print(1, flush=True); line = sys.stdin.readline().strip(); "
    "os.execv('/bin/sh', ['sh', '-c', line + '; read -r x'])"
)


def become(process: subprocess.Popen[bytes], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line.encode() + b"\n")
    process.stdin.flush()
    command = Path(f"/proc/{process.pid}/cmdline")
    wait_until(lambda: command.read_bytes().startswith(b"sh\0"), 5.0)


def test_a_process_that_execs_later_or_ends_is_noticed_and_told() -> None:
    watching = table(("^sh -c : late",))
    watching.read(100.0, None)
    with child(script=BECOMES) as process:
        assert watching.read(101.0, None)[0] == []
        become(process, ": late")
        rows, _, changed, _ = watching.read(102.0, None)
        assert [row["pid"] for row in rows] == [process.pid]
        assert changed is True
        assert watching.read(103.0, None)[2] is False
    rows, _, changed, _ = watching.read(104.0, None)
    assert rows == []
    assert changed is True


def test_an_old_process_that_changes_its_title_is_found_in_turn() -> None:
    with child(script=BECOMES) as process:
        watching = table(("^sh -c : later",))
        assert watching.read(0.0, None)[0] == []
        become(process, ": later")
        rounds = next(n for n in range(1, 40) if watching.read(float(n * 2), None)[0])
        assert rounds <= processes.ROUNDS + 1


def test_cpu_percent_is_of_one_core_between_two_rounds() -> None:
    burn = "print(1, flush=True)\nwhile True: pass"
    with child(MARK, script=burn) as process:
        watching = table()
        began = time.monotonic()
        watching.read(began, None)
        wait_until(lambda: time.monotonic() - began > 0.5, 5.0)
        rows, _, _, percents = watching.read(time.monotonic(), None)
        assert 20 < rows[0]["cpu_percent"] < 130
        assert percents == {process.pid: rows[0]["cpu_percent"]}


def test_other_pids_are_measured_on_request() -> None:
    with child() as process:
        watching = table(())
        watching.read(1.0, None, {process.pid, 2**22 - 1})
        percents = watching.read(2.0, None, {process.pid})[3]
    assert percents == {process.pid: 0.0}


def gpu_row(pid: int, **fields: Any) -> dict[str, Any]:
    return {
        "pid": pid,
        "gpu_uuid": "GPU-1",
        "kind": "compute",
        "memory_bytes": 5,
        "unknown": {},
        **fields,
    }


def test_a_gpu_process_is_described_on_each_of_its_cards() -> None:
    given = []
    with child("--token", "S3cretS3cret") as process:
        given = [gpu_row(process.pid), gpu_row(process.pid, gpu_uuid="GPU-2")]
        watching = table(())
        watching.read(100.0, given)
        _, rows, _, _ = watching.read(101.0, given)
        assert [row["gpu_uuid"] for row in rows] == ["GPU-1", "GPU-2"]
        row = rows[0]
        assert set(row) == set(GpuProcess.__dataclass_fields__) - {"sm_percent"}
        assert row["name"] == Path(sys.executable).name
        assert row["command"].endswith("--token ***")
        assert row["parent_pid"] == os.getpid()
        assert row["cpu_percent"] == 0.0
        assert 0 <= row["started_s_ago"] < 60
        assert row["user"] in ("root", os.environ.get("USER"), str(os.getuid()))
        assert row["unknown"] == {}
        assert rows[1]["rss_bytes"] == row["rss_bytes"]
    assert given[0] == gpu_row(process.pid), "the driver's rows stay as they were"


def test_a_pid_that_is_not_here_keeps_its_row_and_says_why() -> None:
    files = ProcessFiles()
    for nested, reason in ((False, "unreadable"), (True, "not-visible")):
        files.nested = nested
        watching = processes.ProcessTable(files)
        _, (row,), _, _ = watching.read(1.0, [gpu_row(2**22 + 5, unknown={"memory_bytes": "wddm"})])
        assert row["memory_bytes"] == 5
        assert row["user"] is None
        assert row["unknown"] == {
            "memory_bytes": "wddm",
            **dict.fromkeys(processes.GPU_FIELDS, reason),
        }


def test_hidepid_is_named(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    for options, reason in (
        ("rw,nosuid,hidepid=2,gid=5", "hidden"),
        ("rw,hidepid=invisible", "hidden"),
        ("rw,hidepid=0", "unreadable"),
        ("rw", "unreadable"),
    ):
        (tmp_path / "self/mounts").write_text(f"proc /proc proc {options} 0 0\n")
        assert ProcessFiles(str(tmp_path)).why_absent() == reason


def test_a_foreign_pid_is_not_described_as_its_namesake() -> None:
    """In a container the driver's number may belong to another process outside."""
    with child() as process:
        files = ProcessFiles()
        files.nested = files.verify = True
        watching = processes.ProcessTable(files)
        _, (row,), _, _ = watching.read(1.0, [gpu_row(process.pid)])
        assert row["name"] is None
        assert row["unknown"]["name"] == "not-visible"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_users_process_has_unknown_ports_and_environment() -> None:
    with child(MARK) as process:
        pid = os.fork()
        if pid == 0:
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                (row,) = table().read(1.0, None)[0]
                good = row["pid"] == process.pid and row["ports"] is None and row["env"] is None
                good = good and row["cmd"][-1] == MARK and row["user"] == "root"
                os._exit(0 if good else 3)
            finally:
                os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_it_does_not_find_itself() -> None:
    rows = table((".",)).read(1.0, None)[0]
    assert os.getpid() not in [row["pid"] for row in rows]
    assert len(rows) <= processes.MOST_WATCHED


@pytest.mark.parametrize("pattern", ["(", None, 5, "[", "*"])
def test_a_pattern_that_does_not_compile_is_left_out(pattern: Any) -> None:
    assert len(processes.compile_all([pattern, "ok"])) == 1


def test_stat_with_an_odd_name() -> None:
    text = "77 (a) S 1 (b)) R 5 77 77 0 -1 4194304 1 0 0 0 30 12 0 0 20 0 1 0 4242 1000 250 99 0\n"
    stat = parse_stat(text)
    assert stat is not None
    assert (stat.comm, stat.state, stat.ppid, stat.ticks) == ("a) S 1 (b)", "R", 5, 42)
    assert stat.start_ticks == 4242
    assert stat.rss_bytes == 250 * os.sysconf("SC_PAGE_SIZE")
    for bad in ("", "77", "77 (a", "77 (a) S x", "77 (a) S " + "x " * 30):
        assert parse_stat(bad) is None


def test_split_command() -> None:
    assert split_command(b"a\0b c\0\0d\0") == ["a", "b c", "", "d"]
    assert split_command(b"VLLM::EngineCore\0\0\0\0") == ["VLLM::EngineCore"]
    assert split_command(b"caf\xe9\0") == ["caf\ufffd"]
    assert split_command(b"") == []


def test_listening_sockets_stop_at_the_first_that_does_not_listen(tmp_path: Path) -> None:
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid ...\n"
    row = "   {n}: 0100007F:{port:04X} 00000000:0000 {st} 0:0 00:0 00000000 0 0 {inode} 1\n"
    lines = [row.format(n=n, port=5000 + n, st="0A", inode=900 + n) for n in range(300)]
    lines += [row.format(n=1, port=22, st="01", inode=1), row.format(n=2, port=9, st="0A", inode=2)]
    path = tmp_path / "tcp"
    path.write_text(head + "".join(lines))
    found = listening_sockets(str(path))
    assert len(found) == 300
    assert found["905"] == 5005
    assert listening_sockets(str(tmp_path / "none")) == {}
    path.write_text("garbage\n\0\0\n x y z\n")
    assert listening_sockets(str(path)) == {}


def test_listening_ports_of_this_process() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as two,
        socket.create_connection(one.getsockname()[:2]) as client,
    ):
        ports = listening_ports(f"/proc/{os.getpid()}")
        assert ports is not None
        assert {one.getsockname()[1], two.getsockname()[1]} <= set(ports)
        assert client.getsockname()[1] not in ports
    assert listening_ports("/proc/nothing") is None
