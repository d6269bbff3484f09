"""What goes wrong in a way a person must be told: the cause, and the next step."""

from __future__ import annotations

__all__ = ["GpumonError"]


class GpumonError(Exception):
    """Shown as one line, never as a traceback. ``fix`` is the next step, where one is known."""

    #: exit status of the command that meets it
    exit_code = 2

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.fix = fix
