"""The application in a real terminal: signals, job control, bytes on the line."""

from __future__ import annotations

import os
import re
import signal
import time

import pytest

from tests.tui import terminal_rig as rig
from tests.tui.terminal_rig import Terminal, terminal


def assert_sane(used: Terminal) -> None:
    """Alternate screen left, mouse off, cursor shown, in this order of importance."""
    for sequence in (rig.LEAVES_ALTERNATE_SCREEN, rig.MOUSE_OFF, rig.SHOWS_CURSOR):
        assert used.written.rfind(sequence) > used.written.rfind(rig.ENTERS_ALTERNATE_SCREEN)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_sane(number: signal.Signals) -> None:
    with terminal() as used:
        assert used.is_raw()
        used.signal(number)
        assert used.exit_status() == 128 + number
        assert_sane(used)


@pytest.mark.parametrize("keys", [b"q", b"\x03"])
def test_q_and_ctrl_c_leave_with_status_0(keys: bytes) -> None:
    with terminal() as used:
        used.type(keys)
        assert used.exit_status() == 0
        assert_sane(used)
        assert b"Traceback" not in used.written


def test_ctrl_z_stops_and_fg_comes_back() -> None:
    with terminal() as used:
        used.type(b"\x1a")
        used.wait_for(used.is_stopped, "stop")
        used.read(0.2)
        assert_sane(used)
        assert not used.is_raw()
        used.screen.reset()
        used.signal(signal.SIGCONT)
        used.wait_for(lambda: used.shows("node-00"), "screen after SIGCONT")
        used.type(b"q")
        assert used.exit_status() == 0


def test_a_vanished_terminal_ends_the_process() -> None:
    with terminal() as used:
        os.close(used.descriptor)
        until = time.monotonic() + 10
        while os.waitpid(used.pid, os.WNOHANG) == (0, 0):
            assert time.monotonic() < until, "it runs on without a terminal"
            time.sleep(0.05)
        used._status = 0


def test_a_small_window_gets_one_line_and_the_screen_returns() -> None:
    with terminal(80, 24) as used:
        used.resize(50, 12)
        used.wait_for(lambda: used.shows("needs 60x15, has 50x12"), "size message")
        used.resize(80, 24)
        used.wait_for(lambda: used.shows("node-00"), "fleet after growing")


def test_bytes_on_the_line_are_few_and_none_while_paused() -> None:
    with terminal(120, 40) as used:
        used.read(0.5)
        moving = len(used.read(2.5))
        used.type(b" ")
        used.wait_for(lambda: used.shows("PAUSED"), "badge")
        used.read(0.5)
        paused = len(used.read(2.0))
    assert 0 < moving / 2.5 < 10_000
    assert paused == 0


def test_stderr_in_a_file_holds_no_screen(tmp_path: object) -> None:
    log = f"{tmp_path}/log"
    with terminal(80, 24, GPUMON_TEST_STDERR=log) as used:
        used.type(b"q")
        assert used.exit_status() == 0
    with open(log, "rb") as written:  # noqa: PTH123
        assert b"\x1b[" not in written.read()


def test_no_color_sends_no_colour() -> None:
    with terminal(80, 24, GPUMON_THEME="", NO_COLOR="1", COLORTERM="truecolor") as used:
        used.type(b"q")
        assert used.exit_status() == 0
        codes = {
            code
            for sequence in re.findall(rb"\x1b\[([0-9;]*)m", used.written)
            for code in sequence.split(b";")
        }
    assert not codes & {b"38", b"48", *(b"%d" % n for n in (*range(30, 38), *range(40, 48)))}


def test_the_linux_console_gets_no_eighths_of_blocks() -> None:
    with terminal(80, 24, TERM="linux") as used:
        assert used.shows("####")
        assert not {character for line in used.screen.display for character in line} & set("█▌▏▇▅")
