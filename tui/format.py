"""Numbers as text of a steady width. Units stand in the column's header or follow here."""

from __future__ import annotations

import time
from collections.abc import Mapping

from gpumon.snapshot import REASONS
from gpumon.text import safe

__all__ = [
    "GIB",
    "age",
    "at_least",
    "clock",
    "count",
    "duration",
    "gib",
    "gib_tenths",
    "mebibytes",
    "percent",
    "rate",
    "reason_of",
    "reason_text",
    "watts",
]

GIB = 1024**3
MIB = 1024**2


def reason_text(code: str | None) -> str:
    """What a person reads for a reason code; an unknown code is shown as it is."""
    if code is None:
        return REASONS["no-reading"]
    return REASONS.get(code, safe(code, 60))


def gib(size_bytes: float) -> str:
    """GiB for sums: one decimal below 10, none above; a little is never a bare 0."""
    value = size_bytes / GIB
    if 0 < value < 9.95:
        return f"{max(value, 0.1):.1f}"
    return f"{value:.0f}"


def gib_tenths(size_bytes: float) -> str:
    """GiB with one decimal, for columns whose decimal points stand under each other."""
    return f"{size_bytes / GIB:.1f}"


def mebibytes(size_bytes: float) -> str:
    """MiB without decimals, with the unit, for small things in running text."""
    return f"{size_bytes / MIB:.0f} MiB"


def percent(value: float) -> str:
    """Whole percent with its sign: ``71 %``."""
    return f"{value:.0f} %"


def watts(value: float) -> str:
    """Watts; from 10 kW on in kW: ``3900``, ``12.3k``."""
    return f"{value:.0f}" if value < 9999.5 else f"{value / 1000:.1f}k"


def count(value: float) -> str:
    """A whole number with thousands set off: ``1,284``."""
    return f"{value:,.0f}"


def rate(value: float) -> str:
    """Something a second: one decimal below 10, else whole and set off."""
    return f"{value:.1f}" if 0 < value < 9.95 else f"{value:,.0f}"


def at_least(text: str, complete: bool) -> str:
    """The text, marked ``≥`` where parts of a sum are unknown."""
    return text if complete else f"≥{text}"


def age(seconds: float) -> str:
    """An age in at most four cells: ``41s``, ``12m``, ``31h``, ``12d``."""
    if seconds < 99.5:
        return f"{seconds:.0f}s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f}m"
    if seconds < 47.5 * 3600:
        return f"{seconds / 3600:.0f}h"
    return f"{min(seconds / 86400, 999):.0f}d"


_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def duration(seconds: float) -> str:
    """A span of time in words of two units at most: ``6 h 10 min``, ``41 s``."""
    whole = int(max(seconds, 0))
    for place, (unit, size) in enumerate(_UNITS):
        if whole < size and unit != "s":
            continue
        high, low = divmod(whole, size)
        if unit in ("s", "min") or place + 1 == len(_UNITS):
            return f"{high} {unit}"
        next_unit, next_size = _UNITS[place + 1]
        low //= next_size
        return f"{high} {unit} {low} {next_unit}" if low else f"{high} {unit}"
    return "0 s"


def clock(epoch_s: float) -> str:
    """Local time of day, ``14:02:07``."""
    return time.strftime("%H:%M:%S", time.localtime(epoch_s))


def reason_of(unknown: Mapping[str, str], field: str) -> str:
    """Why a field of a record is None: its reason code, or ``no-reading``."""
    return unknown.get(field, "no-reading")
