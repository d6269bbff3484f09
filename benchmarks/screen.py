"""A program in a pseudo-terminal: what it writes, when, and what the screen shows."""

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyte

__all__ = ["Screen", "gpumon_command"]


def gpumon_command() -> list[str]:
    """The installed ``gpumon`` beside this Python, or its module."""
    script = Path(sys.executable).with_name("gpumon")
    return [str(script)] if script.exists() else [sys.executable, "-m", "gpumon.tui.cli"]


class Screen:
    """One running program; ``with Screen([...], env) as screen``."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        columns: int = 120,
        lines: int = 40,
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.bytes = 0
        self.started = time.perf_counter()
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            os.execve(command[0], list(command), dict(environment))

    def read(self, seconds: float) -> None:
        """Take in what is written within the time."""
        until = time.perf_counter() + seconds
        while (left := until - time.perf_counter()) > 0:
            if not select.select([self._descriptor], [], [], left)[0]:
                return
            try:
                chunk = os.read(self._descriptor, 65536)
            except OSError:
                return
            if not chunk:
                return
            self.bytes += len(chunk)
            self._stream.feed(chunk)

    def wait_for(self, shown: Callable[[str], bool], seconds: float = 20) -> float:
        """Seconds from the start until the screen's text is as wanted; RuntimeError if never."""
        while True:
            # one chunk at a time, so that the moment is exact
            select.select([self._descriptor], [], [], 0.2)
            now = time.perf_counter()
            self.read(0.001)
            if shown(self.text()):
                return now - self.started
            if now - self.started > seconds:
                raise RuntimeError(f"waited {seconds} s in vain; the screen:\n{self.text()}")

    def text(self) -> str:
        """The screen as lines."""
        return "\n".join(self.screen.display)

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._descriptor, keys)

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        until = time.perf_counter() + 5
        with suppress(ChildProcessError):
            while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                self.read(0.05)
                if time.perf_counter() > until:
                    os.kill(self.pid, signal.SIGKILL)
        with suppress(OSError):
            os.close(self._descriptor)
