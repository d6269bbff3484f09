"""The ``gpumon`` command as a person runs it: output, exit status, nothing left behind."""

from __future__ import annotations

import csv
import json
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.codec import decode_view
from gpumon.snapshot import Cause, HostState
from gpumon.tui import cli
from gpumon.tui.commands import settings
from gpumon.tui.exit_codes import ExitCode
from tests.rig.need import need
from tests.tui.gpumon_process import COMMAND, ROOT, Home, wait_until

#: a name that no name server may know (RFC 6761)
NOWHERE = "nowhere.invalid"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def tarpit() -> Iterator[str]:
    """A host that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def assert_nothing_left(home: Home) -> None:
    wait_until(lambda: not home.processes_left(), "no process left", 5)


# --- help, version, errors -----------------------------------------------------


def test_version_and_help(home: Home) -> None:
    assert home.run("--version").stdout == "gpumon 0.1.0\n"
    assert home.run("collect", "--version").stdout == "gpumon 0.1.0\n"
    shown = home.run("--help")
    assert shown.returncode == 0
    for command in ("run", "collect", "snapshot", "export", "config", "completion"):
        assert f"\n  {command} " in shown.stdout
    assert not home.state.exists()


def test_an_error_is_one_line_and_status_2(home: Home) -> None:
    for arguments in (["--zzz"], ["snapshot", "a b"], ["--config", "/no/such", "snapshot"]):
        done = home.run(*arguments)
        assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
        assert done.stderr.startswith("gpumon: ")
        assert done.stderr.count("\n") == 1
        assert "; " in done.stderr


def test_debug_shows_where(home: Home) -> None:
    assert "Traceback" in home.run("--debug", "snapshot", "a b").stderr


def test_config_mistakes_come_all_at_once(home: Home) -> None:
    home.write_config("[hosts.a]\nprot = 1\n[defaults]\nintervall_s = 2\n")
    done = home.run("snapshot")
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.splitlines() == [
        f'gpumon: {home.config}:2: hosts.a.prot: unknown key; did you mean "port"?',
        f'gpumon: {home.config}:4: defaults.intervall_s: unknown key; did you mean "interval_s"?',
    ]


def test_a_bug_is_one_line_and_a_traceback_in_the_log_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    before = logging.getLogger().handlers[:], logging.getLogger().level

    def fail(options: Namespace) -> int:
        settings.start_log(options)
        raise RuntimeError("boom\nsecond line")

    monkeypatch.setattr("gpumon.tui.commands.config.run", fail)
    try:
        assert cli.main(["config", "path"]) == 1
    finally:
        logging.getLogger().handlers[:], level = before
        logging.getLogger().setLevel(level)
    said = capsys.readouterr().err
    assert said.startswith("gpumon: this is a mistake in gpumon: RuntimeError: boom;")
    assert said.count("\n") == 1
    assert "Traceback" in (tmp_path / "gpumon" / "gpumon.log").read_text()


def test_a_typo_is_no_host(home: Home) -> None:
    done = home.run("colect")
    assert done.returncode == ExitCode.USAGE
    assert 'did you mean "gpumon collect"?' in done.stderr


def test_a_host_of_the_config_may_look_like_a_command(home: Home) -> None:
    home.write_config('[hosts.colect]\naddress = "local"\n')
    # Past the hint, to what a pipe can't have.
    assert "need a terminal" in home.run("colect", stdin=subprocess.DEVNULL).stderr


def test_ssh_knows_aliases_that_no_name_server_does(home: Home) -> None:
    need("ssh")
    config = home.folder / "ssh_config"
    config.write_text("Host colect\n  HostName 127.0.0.1\n")
    home.environment["GPUMON_SSH_CONFIG"] = str(config)
    assert "need a terminal" in home.run("colect", stdin=subprocess.DEVNULL).stderr


def test_a_closed_pipe_is_quiet(home: Home) -> None:
    with subprocess.Popen(
        [*COMMAND, "completion", "fish"], cwd=ROOT, env=home.environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_a_full_disk_is_told(home: Home) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = home.run("config", "path", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr == "gpumon: No space left on device\n"


# --- config, completion ----------------------------------------------------------


def test_config_init_path_validate(home: Home) -> None:
    missing = home.run("config", "validate")
    assert missing.returncode == ExitCode.USAGE
    assert "no such file; gpumon config init makes one" in missing.stderr
    assert home.run("config", "path").stdout == f"{home.config}\n"
    assert home.run("config", "init").returncode == 0
    assert stat.S_IMODE(home.config.stat().st_mode) == 0o600
    assert home.run("config", "validate").stdout == f"{home.config}: OK, 0 hosts\n"
    home.config.write_text("[hosts.a]\n")
    again = home.run("config", "init")
    assert again.returncode == ExitCode.USAGE
    assert "exists already" in again.stderr
    assert home.config.read_text() == "[hosts.a]\n"
    other = home.folder / "other.toml"
    other.write_text('[defaults]\ntheme = "drak"\n')
    wrong = home.run("config", "validate", "--config", str(other))
    assert wrong.returncode == ExitCode.USAGE
    assert "'dark'" in wrong.stderr


def test_bash_completes(home: Home) -> None:
    bash = need("bash")
    script = f"""
        eval "$({sys.executable} -m gpumon.tui.cli completion bash)"
        complete -p gpumon >&2
        try() {{
            COMP_WORDS=(gpumon "$@"); COMP_CWORD=$#; COMPREPLY=()
            _shtab_gpumon gpumon "${{@: -1}}" "${{@: -2:1}}"
            echo "${{COMPREPLY[*]}}"
        }}
        try sn; try export --ta; try export --table m; try config v
    """
    done = subprocess.run(
        [bash, "--norc", "-c", script], cwd=ROOT, env=home.environment,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["snapshot"], ["--table"], ["model"], ["validate"]
    ]  # fmt: skip


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_command_and_option(home: Home, shell: str) -> None:
    shown = home.run("completion", shell).stdout
    for word in ("snapshot", "json", "table", "completion", "validate", "force", "no-mouse"):
        assert word in shown


# --- snapshot ----------------------------------------------------------------------


def test_snapshot_of_this_machine(home: Home) -> None:
    done = home.run("snapshot", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    (view,) = map(decode_view, document["hosts"])
    assert document["all_answered"] is True
    assert view.status.state is HostState.UP
    assert view.snapshot is not None
    assert view.snapshot.system.memory_total_bytes
    assert view.snapshot.system.cpu_percent is not None, "rates need two samples"
    assert not home.database.exists(), "a snapshot records nothing"
    assert_nothing_left(home)


def test_snapshot_with_dead_hosts_is_valid_and_says_so(home: Home, tarpit: str) -> None:
    home.write_config('[hosts.off]\naddress = "10.0.0.1"\nenabled = false\n')
    began = time.monotonic()
    done = home.run("snapshot", "--json", "--timeout", "3", "localhost", NOWHERE, tarpit)
    assert time.monotonic() - began < 8
    assert done.returncode == ExitCode.HOST_FAILED
    document = json.loads(done.stdout)
    assert document["all_answered"] is False
    here, nowhere, silent = map(decode_view, document["hosts"])
    assert here.snapshot is not None
    assert (nowhere.status.cause, nowhere.snapshot) == (Cause.NAME_NOT_FOUND, None)
    assert nowhere.status.fix
    assert silent.snapshot is None
    assert done.stderr == "", "nothing of a library's: cryptography warns who imports it"
    table = home.run("snapshot", "--table", NOWHERE)
    assert table.returncode == ExitCode.HOST_FAILED
    assert f"{NOWHERE}  down: " in table.stdout
    assert "  next: " in table.stdout
    assert_nothing_left(home)


def test_a_disabled_host_is_no_failure(home: Home) -> None:
    home.write_config("[defaults]\nlocal = false\n[hosts.off]\nenabled = false\n")
    done = home.run("snapshot")
    assert done.returncode == 0
    assert "off  disabled" in done.stdout


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, 143)]
)
def test_a_signal_ends_a_snapshot_with_nothing_left(
    home: Home, tarpit: str, number: int, status: int
) -> None:
    with home.started("snapshot", "localhost", tarpit) as running:
        # Python's own handlers must be there, and the probe of this machine too.
        wait_until(lambda: len(home.processes_left()) > 1, "the probe")
        assert running.end(number) == status
        assert running.err.read_text() == ""
        assert running.out.read_text() == ""
    assert_nothing_left(home)


# --- collect and export ----------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home in which a second or two of this machine were recorded."""
    home = Home(tmp_path_factory.mktemp("recorded"))
    with home.started("collect", "--interval", "0.5", "localhost") as running:
        running.wait_for_stderr("localhost is up")
        assert running.end(signal.SIGTERM) == 0
    return home


def test_collect_writes_and_a_second_one_is_refused(home: Home) -> None:
    with home.started("collect", "--interval", "0.5", "localhost", NOWHERE) as first:
        first.wait_for_stderr("localhost is up")
        first.wait_for_stderr(f"{NOWHERE} is down: ")
        second = home.run("collect", "localhost")
        assert second.returncode == ExitCode.STORE
        assert f"process {first.process.pid} collects" in second.stderr
        assert first.end(signal.SIGINT) == 0
        said = first.err.read_text().splitlines()
    assert said[-1].endswith("stopped; all that was read is written")
    assert sum("localhost is up" in line for line in said) == 1, "one line per change"
    assert stat.S_IMODE(home.database.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.state.stat().st_mode) == 0o700
    assert stat.S_IMODE((home.state / "gpumon.log").stat().st_mode) == 0o600
    rows = list(csv.DictReader(home.run("export", "--table", "host").stdout.splitlines()))
    assert {row["host"] for row in rows} == {"localhost", NOWHERE}
    assert any(row["memory_total_bytes"] for row in rows if row["host"] == "localhost")
    assert_nothing_left(home)


def test_collect_says_why_it_can_not_record(home: Home) -> None:
    home.state.mkdir(parents=True)
    home.database.write_bytes(b"this is no database, and it is long enough to be read" * 99)
    done = home.run("collect", "localhost")
    assert done.returncode == ExitCode.STORE
    assert done.stderr.startswith(f"gpumon: {home.database}: the database is damaged")
    assert done.stderr.count("\n") == 1


def test_hup_ends_collect_but_not_under_nohup(home: Home) -> None:
    with home.started("collect", "--interval", "0.5", "localhost") as running:
        running.wait_for_stderr("localhost is up")
        assert running.end(signal.SIGHUP) == 0
    home.environment["PYTHONUNBUFFERED"] = "1"
    code = (
        "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
        "from gpumon.tui.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    err = home.folder / "err"
    with (
        err.open("wb") as to,
        subprocess.Popen(
            [sys.executable, "-c", code, "collect", "--interval", "0.5", "localhost"],
            cwd=ROOT, env=home.environment, stderr=to,
        ) as process,
    ):  # fmt: skip
        wait_until(lambda: "is up" in err.read_text(), "a sample")
        process.send_signal(signal.SIGHUP)
        samples = home.run("export", "--table", "host").stdout.count("\n")
        wait_until(
            lambda: home.run("export", "--table", "host").stdout.count("\n") > samples, "more rows"
        )
        process.terminate()
        assert process.wait(20) == 0


def test_export_writes_whole_files_and_never_over_one(recorded: Home) -> None:
    target = recorded.folder / "out.csv"
    done = recorded.run("export", "--table", "host", "-o", str(target))
    assert (done.returncode, done.stdout) == (0, "")
    assert "rows written" in done.stderr
    first = target.read_bytes()
    assert first.startswith(b"time,host,")
    assert first.endswith(b"\r\n")
    assert b"localhost" in first
    refused = recorded.run("export", "--table", "host", "-o", str(target))
    assert refused.returncode == ExitCode.USAGE
    assert "exists already; name another file, or add --force" in refused.stderr
    target.write_text("old")
    assert recorded.run("export", "--table", "host", "-o", str(target), "--force").returncode == 0
    assert target.read_bytes() == first
    lines = recorded.folder / "out.jsonl"
    recorded.run("export", "--table", "host", "-o", str(lines))
    assert json.loads(lines.read_text().splitlines()[0])["host"] == "localhost"
    assert [path.name for path in recorded.folder.glob(".out*")] == []


def test_export_to_standard_output_and_devices(recorded: Home) -> None:
    shown = recorded.run("export", "--table", "host", "-o", "-", text=False)
    assert shown.stdout.startswith(b"time,host,")
    assert recorded.run("export", "--table", "host", "-o", "/dev/null").returncode == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)  # noqa: PTH116
    full = recorded.run("export", "--table", "host", "-o", "/dev/full")
    assert full.returncode == ExitCode.USAGE
    assert full.stderr.startswith("gpumon: /dev/full: No space left on device; ")
    folder = recorded.run("export", "--table", "host", "-o", str(recorded.folder / "no" / "x"))
    assert folder.returncode == ExitCode.USAGE
    assert "No such file or directory" in folder.stderr


def test_export_names_what_is_wrong(recorded: Home) -> None:
    for arguments, said in (
        (["--host", "localhsot"], "was never recorded; did you mean"),
        (["--since", "yesterday"], "'yesterday' is no time; write 30m"),
        (["--since", "1h", "--until", "2h"], "--until is not after --since"),
    ):
        done = recorded.run("export", "--table", "host", *arguments)
        assert done.returncode == ExitCode.USAGE
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
    missing = recorded.run("export", "--table", "gpu", "--db", str(recorded.folder / "none.db"))
    assert missing.returncode == ExitCode.STORE
    assert "nothing was recorded there yet" in missing.stderr


def test_a_signal_leaves_no_half_export(recorded: Home, tmp_path: Path) -> None:
    """The writing process is stopped in the middle of its temporary file."""
    code = (
        "import os, signal, sys; from gpumon.tui.commands import export\n"
        "name = sys.argv.pop(1)\n"
        "def half(reader, table, file, **more):\n"
        "    file.write('half'); file.flush()\n"
        "    os.kill(os.getpid(), getattr(signal, name))\n"
        "    return 1\n"
        "export.export = half\n"
        "from gpumon.tui.cli import main; sys.exit(main())"
    )
    for name, status in (("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)):
        done = subprocess.run(
            [sys.executable, "-c", code, name, "export", "--table", "host",
             "-o", str(tmp_path / "x.csv")],
            cwd=ROOT, env=recorded.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (status, "")
        assert list(tmp_path.iterdir()) == []


# --- the log ---------------------------------------------------------------------------


def test_the_log_is_private_also_after_it_was_begun_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(settings, "_LOG_BYTES", 300)
    before = logging.getLogger().handlers[:], logging.getLogger().level
    os.umask(mask := os.umask(0))
    os.umask(0)
    try:
        settings.start_log(Namespace(debug=False))
        for _ in range(20):
            logging.getLogger("gpumon.x").info("a line of the log")
        logging.getLogger("asyncssh").info("what passes through")
        (handler,) = logging.getLogger().handlers
        handler.close()
    finally:
        os.umask(mask)
        logging.getLogger().handlers[:], level = before
        logging.getLogger().setLevel(level)
    files = sorted((tmp_path / "gpumon").iterdir())
    assert [path.name for path in files] == ["gpumon.log", "gpumon.log.1"]
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "passes through" not in path.read_text()
