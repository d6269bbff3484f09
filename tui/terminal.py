"""The terminal: where output goes, how full its queue is, and when it is gone."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, TextIO, cast

from textual.drivers.linux_driver import LinuxDriver

__all__ = ["TerminalDriver", "is_terminal_gone"]


class _Lasting:
    """A file that takes what is written though its terminal is gone.

    An error would end the writer's thread, and its queue of 30, once full, would hold
    up the application for ever: it could not even end.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write, or drop the text."""
        with contextlib.suppress(OSError, ValueError):
            return self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or drop what is buffered."""
        with contextlib.suppress(OSError, ValueError):
            self._file.flush()

    def fileno(self) -> int:
        """The terminal's descriptor."""
        return self._file.fileno()

    def isatty(self) -> bool:
        """As the file says."""
        return self._file.isatty()


class TerminalDriver(LinuxDriver):
    """Textual's driver, which draws on stdout where stderr is no terminal.

    The base class draws on stderr always, so that ``gpumon 2>log`` would fill the log
    with escape sequences and leave the screen empty.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        out, err = sys.__stdout__, sys.__stderr__
        if out is not None and out.isatty() and not (err is not None and err.isatty()):
            self._file = out
        if self._file is not None:
            self._file = cast("Any", _Lasting(self._file))

    @property
    def is_behind(self) -> bool:
        """True while the terminal has not taken what was drawn before.

        A slow line: a tick that is skipped costs nothing, one that is queued delays
        the answer to a key.
        """
        writer = self._writer_thread
        return writer is not None and writer._queue.qsize() > 0


def is_terminal_gone(driver: object) -> bool:
    """True where the driver had a terminal for input and has it no longer."""
    return isinstance(driver, LinuxDriver) and driver.input_tty and not os.isatty(driver.fileno)
