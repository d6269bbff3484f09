"""The last words of a process on stderr."""

from __future__ import annotations

__all__ = ["StderrTail"]

_KEPT_BYTES = 4096


class StderrTail:
    """Keeps the last 4 KiB."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._data += data
        if len(self._data) > 2 * _KEPT_BYTES:
            del self._data[:-_KEPT_BYTES]

    def text(self) -> str:
        """What is kept; bytes that are no UTF-8 are replaced."""
        return bytes(self._data[-_KEPT_BYTES:]).decode("utf-8", "replace")
