"""``gpumon`` itself in a terminal, over this machine: screens, store and collectors as one."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from gpumon.tui.exit_codes import ExitCode
from tests.tui import terminal_rig as rig
from tests.tui.gpumon_process import Home, wait_until

HERE = socket.gethostname()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def assert_nothing_left(home: Home) -> None:
    wait_until(lambda: not home.processes_left(), "no process left", 5)


def shows_sample(used: rig.Terminal) -> bool:
    """True once the row of this machine holds values."""
    return used.shows(f" {HERE} ") and used.shows("1 host") and not used.shows("connecting")


@pytest.mark.parametrize(
    ("number", "status"), [(None, 0), (signal.SIGTERM, 143), (signal.SIGINT, ExitCode.INTERRUPTED)]
)
def test_it_shows_this_machine_and_leaves_nothing(
    home: Home, number: signal.Signals | None, status: int
) -> None:
    with home.in_terminal() as used:
        used.wait_for(lambda: shows_sample(used), "a sample of this machine")
        if number is None:
            used.type(b"q")
        else:
            used.signal(number)
        assert used.exit_status() == status
        assert rig.LEAVES_ALTERNATE_SCREEN in used.written
        assert b"Traceback" not in used.written
    assert_nothing_left(home)
    assert home.database.exists()
    shown = home.run("export", "--table", "host").stdout
    assert f",{HERE}," in shown, "what was read is written at the end"


def test_the_first_screen_comes_from_the_store(home: Home) -> None:
    with home.started("collect", "--interval", "0.5") as collecting:
        collecting.wait_for_stderr(f"{HERE} is up")
        collecting.end(signal.SIGTERM)
    with home.in_terminal("--interval", "3600") as used:
        used.wait_for(lambda: used.shows("stored"), "stored values")
        used.type(b"\x03")
        assert used.exit_status() == 0


def test_beside_a_collector_it_views_and_takes_over(home: Home) -> None:
    with home.started("collect", "--interval", "0.5") as collecting:
        collecting.wait_for_stderr(f"{HERE} is up")
        with home.in_terminal() as used:
            used.wait_for(lambda: used.shows(f"viewing pid {collecting.process.pid}"), "badge")
            used.wait_for(lambda: shows_sample(used), "the collector's sample")
            collecting.end(signal.SIGKILL)
            used.wait_for(lambda: used.shows("ORPHANED"), "the collector's death")
            used.type(b"t")
            used.wait_for(lambda: not used.shows("ORPHANED"), "taking over")
            assert home.run("collect").returncode == ExitCode.STORE
            used.type(b"q")
            assert used.exit_status() == 0
    assert_nothing_left(home)


def test_a_wrong_theme_is_told_before_the_screen_is_touched(home: Home) -> None:
    with home.in_terminal("--theme", "drak") as used:
        assert used.exit_status() == ExitCode.USAGE
        assert used.shows("gpumon: no theme 'drak'; did you mean 'dark'?")
        assert rig.ENTERS_ALTERNATE_SCREEN not in used.written
    assert not home.database.exists()


def test_the_option_goes_before_the_variable_and_that_before_the_config(home: Home) -> None:
    home.write_config('[defaults]\ntheme = "config-theme"\n')
    for arguments, variable, named in (
        ((), None, "config-theme"),
        ((), "variable-theme", "variable-theme"),
        (("--theme", "option-theme"), "variable-theme", "option-theme"),
    ):
        home.environment.pop("GPUMON_THEME", None)
        if variable:
            home.environment["GPUMON_THEME"] = variable
        with home.in_terminal(*arguments) as used:
            assert used.exit_status() == ExitCode.USAGE
            assert used.shows(f"no theme '{named}'")


def test_a_bug_on_screen_is_one_line_and_a_traceback_in_the_log_only(home: Home) -> None:
    break_it = (
        "from gpumon.tui.app import GpumonApp\n"
        "def tick(self):\n"
        "    secret = 'hunter2'\n"
        "    raise RuntimeError('boom')\n"
        "GpumonApp._tick = tick\n"
    )
    with home.in_terminal(before=break_it) as used:
        assert used.exit_status() == 1
        assert used.shows("gpumon: this is a mistake in gpumon: RuntimeError: boom; run it again")
        after = used.written.rpartition(rig.LEAVES_ALTERNATE_SCREEN)[2]
        assert b"Traceback" not in used.written
        assert b"hunter2" not in used.written
        assert after.count(b"\n") == 1
    assert "RuntimeError: boom" in (home.state / "gpumon.log").read_text()
    assert_nothing_left(home)


@pytest.mark.parametrize(("arguments", "on"), [((), True), (("--no-mouse",), False)])
def test_the_mouse(home: Home, arguments: tuple[str, ...], on: bool) -> None:
    with home.in_terminal(*arguments) as used:
        used.wait_for(lambda: used.shows(HERE), "first paint")
        assert (b"\x1b[?1003h" in used.written) is on
        used.type(b"q")
        assert used.exit_status() == 0
