"""The ``gpumon`` command in processes of its own, with a home of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.tui.terminal_rig import Terminal

__all__ = ["Home", "wait_until"]

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "gpumon.tui.cli"]
_MARK = "GPUMON_TEST_MARK"


class Home:
    """Folders of a user who never ran gpumon, and what was started with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state" / "gpumon"
        self.config = folder / "config" / "gpumon" / "config.toml"
        self.database = self.state / "gpumon.db"
        self._mark = uuid.uuid4().hex
        gone = ("GPUMON_DEBUG", "GPUMON_THEME", "GPUMON_SSH_CONFIG", "NO_COLOR", "COLORTERM")
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in gone},
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            _MARK: self._mark,
        }

    def write_config(self, text: str) -> None:
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(text)

    def run(self, *arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            [*COMMAND, *arguments], check=False, cwd=ROOT, env=self.environment,
            **{"capture_output": True, "text": True, "timeout": 60, **more},
        )  # fmt: skip

    @contextmanager
    def started(self, *arguments: str) -> Iterator[Running]:
        """Run it beside the test; it is killed at the end if it still runs."""
        out, err = self.folder / uuid.uuid4().hex, self.folder / uuid.uuid4().hex
        with out.open("wb") as to_out, err.open("wb") as to_err:
            process = subprocess.Popen(
                [*COMMAND, *arguments], cwd=ROOT, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=to_out, stderr=to_err,
            )  # fmt: skip
        try:
            yield Running(process, out, err)
        finally:
            process.kill()
            process.wait()

    @contextmanager
    def in_terminal(self, *arguments: str, before: str = "") -> Iterator[Terminal]:
        """Run it in a terminal of 120x40; it is killed at the end if it still runs.

        ``before``: Python code that is run in its process first.
        """
        code = f"{before}\nimport sys; from gpumon.tui.cli import main; sys.exit(main())"
        pid, descriptor = pty.fork()
        if pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
            os.chdir(ROOT)
            environment = {**self.environment, "TERM": "xterm-256color"}
            os.execve(sys.executable, [sys.executable, "-c", code, *arguments], environment)
        running = Terminal(pid, descriptor, 120, 40)
        try:
            yield running
        finally:
            running.close()

    def processes_left(self) -> list[str]:
        """Command lines of processes, also of probes, that were started from this home."""
        found = []
        mark = f"{_MARK}={self._mark}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    found.append(line.decode(errors="replace"))
            except OSError:
                continue
        # A process that has ended and is not waited for yet has no command line.
        return [line for line in found if line]


class Running:
    """A gpumon that runs."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.process = process
        self.out = out
        self.err = err

    def wait_for_stderr(self, text: str) -> None:
        """Wait until it has said something."""

        def said() -> bool:
            assert self.process.poll() is None, self.err.read_text()
            return text in self.err.read_text()

        wait_until(said, f"{text!r} on stderr")

    def end(self, number: int) -> int:
        """Send a signal, and wait for the exit status."""
        self.process.send_signal(number)
        return self.process.wait(20)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
    """Wait for a condition."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        time.sleep(0.02)
