"""A pseudo-terminal with the application in it, read by a terminal emulator."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyte

__all__ = ["Terminal", "terminal"]

ROOT = Path(__file__).resolve().parents[2]
LEAVES_ALTERNATE_SCREEN = b"\x1b[?1049l"
ENTERS_ALTERNATE_SCREEN = b"\x1b[?1049h"
MOUSE_OFF = b"\x1b[?1003l"
SHOWS_CURSOR = b"\x1b[?25h"


class Terminal:
    """The master side: what the application wrote, as bytes and as a screen."""

    def __init__(self, pid: int, descriptor: int, columns: int, lines: int) -> None:
        self.pid = pid
        self.descriptor = descriptor
        self.written = b""
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._status: int | None = None

    def read(self, seconds: float) -> bytes:
        """What is written within the time; less where the process ends."""
        until = time.monotonic() + seconds
        got = b""
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self.descriptor], [], [], left)
            if not ready:
                break
            try:
                chunk = os.read(self.descriptor, 65536)
            except OSError:
                break
            if not chunk:
                break
            got += chunk
            self._stream.feed(chunk)
        self.written += got
        return got

    def wait_for(self, condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
        """Read until the condition holds."""
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, f"no {what}:\n" + "\n".join(self.screen.display)
            self.read(0.05)

    def shows(self, text: str) -> bool:
        """True where the screen holds the text."""
        return any(text in line for line in self.screen.display)

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.descriptor, keys)

    def resize(self, columns: int, lines: int) -> None:
        """Another size of the window."""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, size)
        self.screen.resize(lines, columns)

    def signal(self, number: int) -> None:
        """Send a signal to the application."""
        os.kill(self.pid, number)

    def exit_status(self, seconds: float = 10) -> int:
        """How it ended; what it wrote until then is read."""
        until = time.monotonic() + seconds
        while self._status is None:
            assert time.monotonic() < until, "the process did not end"
            self.read(0.05)
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self._status = os.waitstatus_to_exitcode(status)
        self.read(0.05)
        return self._status

    def is_stopped(self) -> bool:
        """True where job control has stopped it."""
        state = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state == "T"

    def is_raw(self) -> bool:
        """True while the terminal does not echo."""
        return not termios.tcgetattr(self.descriptor)[3] & termios.ECHO

    def close(self) -> None:
        """End the process, whatever it does."""
        with suppress(OSError):
            os.close(self.descriptor)
        if self._status is None:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)


@contextmanager
def terminal(columns: int = 120, lines: int = 40, **environment: str) -> Iterator[Terminal]:
    """``tests.tui.fake_gpumon`` in a terminal of its own."""
    pid, descriptor = pty.fork()
    if pid == 0:
        env = {
            **{name: value for name, value in os.environ.items() if name != "NO_COLOR"},
            "TERM": "xterm-256color", "GPUMON_THEME": "ansi", "COLUMNS": "", "LINES": "",
            **environment,
        }  # fmt: skip
        env = {name: value for name, value in env.items() if value}
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        os.chdir(ROOT)
        os.execve(sys.executable, [sys.executable, "-m", "tests.tui.fake_gpumon"], env)
    running = Terminal(pid, descriptor, columns, lines)
    try:
        running.wait_for(lambda: running.shows("node-00"), "first paint")
        yield running
    finally:
        running.close()
