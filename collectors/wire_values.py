"""Single values from a probe's line: of the right type and within reason, or None.

A host may be broken or hostile: nothing here raises, and nothing gets through that a
later ``sum`` or an encoder would choke on (NaN, infinities, half surrogates, integers of
a thousand digits). Bounds: what the named quantity can be at all, with room to spare
(32-bit libraries report millions of watts, MangoHud#1607; idle thermal zones -256 C,
jetson_stats_node_exporter#29).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from gpumon.snapshot import REASONS

__all__ = [
    "NONSENSE",
    "Field",
    "Reader",
    "field_readers",
    "read_flag",
    "read_float",
    "read_int",
    "read_reasons",
    "read_record",
    "read_text",
    "read_texts",
]

#: Takes a raw value that is not None; gives None for one that is no good.
Reader = Callable[[object], object]

#: The reason code of a value that was there but can't be true.
NONSENSE = "nonsense"

_EXBIBYTE = 2.0**60
_SURROGATES = re.compile("[\ud800-\udfff]")
_DEFAULT_TEXT_CHARACTERS = 512
_TEXT_CHARACTERS = {"command": 4096, "detail": 1000, "body": 4 * 1024 * 1024}

#: Bounds of single fields; all others follow their suffix.
_BY_NAME: Mapping[str, tuple[float, float]] = {
    # of one core: a process may use many
    "cpu_percent": (0.0, 1e6),
    # the intended speed may exceed 100 (nvml.h at nvmlDeviceGetFanSpeed)
    "fan_percent": (0.0, 255.0),
    # one process's share is a sample, and samples overshoot
    "sm_percent": (0.0, 100.0),
    "energy_j": (0.0, 1e15),
    "index": (0, 65535),
    "performance_state": (0, 15),
    "memory_bus_bits": (1, 65536),
    "pcie_generation": (1, 16),
    "pcie_generation_max": (1, 16),
    "pcie_width": (1, 64),
    "pcie_width_max": (1, 64),
    "ecc_corrected": (0, 2.0**63),
    "ecc_uncorrected": (0, 2.0**63),
    "retired_pages": (0, 2.0**32),
    "xid": (0, 65535),
    "pid": (1, 2.0**31),
    "ppid": (0, 2.0**31),
    "parent_pid": (0, 2.0**31),
    "start_ticks": (0, 2.0**63),
    "cpu_count": (1, 65536),
    "load_1": (0.0, 1e7),
    "load_5": (0.0, 1e7),
    "load_15": (0.0, 1e7),
}
_BY_SUFFIX: tuple[tuple[str, tuple[float, float]], ...] = (
    ("_bytes_per_s", (0.0, 1e13)),
    ("_bytes", (0, _EXBIBYTE)),
    ("_percent", (0.0, 100.0)),
    ("_c", (-60.0, 200.0)),
    ("_w", (0.0, 20000.0)),
    ("_mhz", (0, 100000)),
    ("_ms", (0.0, 1e9)),
    ("_s", (0.0, 1e10)),
    ("_s_ago", (0.0, 1e10)),
)
_ANY = (-_EXBIBYTE, _EXBIBYTE)


def _bounds(name: str) -> tuple[float, float]:
    if name in _BY_NAME:
        return _BY_NAME[name]
    for suffix, bounds in _BY_SUFFIX:
        if name.endswith(suffix):
            return bounds
    return _ANY


def read_float(value: object, bounds: tuple[float, float] = _ANY) -> float | None:
    """A finite number within ``bounds``; None for anything else, also for True and "1"."""
    # NaN and infinities are within no bounds; an integer of any length can be compared
    if (type(value) is float or type(value) is int) and bounds[0] <= value <= bounds[1]:
        return float(value)
    return None


def read_int(value: object, bounds: tuple[float, float] = _ANY) -> int | None:
    """A whole number within ``bounds``; None for anything else."""
    if type(value) is int:
        return value if bounds[0] <= value <= bounds[1] else None
    if type(value) is float and bounds[0] <= value <= bounds[1] and value.is_integer():
        return int(value)
    return None


def read_flag(value: object) -> bool | None:
    """True or False; None for anything else, also for 0 and 1."""
    return value if isinstance(value, bool) else None


def read_text(value: object, most_characters: int = _DEFAULT_TEXT_CHARACTERS) -> str | None:
    """A string, cut to length, that can be encoded; None for anything else.

    It stays raw otherwise: views escape what a terminal would obey.
    """
    if not isinstance(value, str):
        return None
    if len(value) > most_characters:
        value = value[:most_characters]
    return value if value.isascii() else _SURROGATES.sub("\ufffd", value)


def read_texts(
    value: object, *, most: int = 512, most_characters: int = 4096
) -> tuple[str, ...] | None:
    """Strings of a list, in order; None where it is no list. Other members are left out."""
    if not isinstance(value, list):
        return None
    texts = (read_text(one, most_characters) for one in value[:most])
    return tuple(text for text in texts if text is not None)


def read_reasons(value: object, known: Mapping[str, object]) -> dict[str, str]:
    """Field -> reason code, of known fields and known codes only."""
    if not isinstance(value, dict):
        return {}
    return {
        name: reason
        for name, reason in value.items()
        if name in known and isinstance(reason, str) and reason in REASONS
    }


class Field(NamedTuple):
    """How one field is read: numbers by bounds at once, the rest by ``read``."""

    #: float, int, or None for what ``read`` takes
    number: type | None
    low: float
    high: float
    read: Reader


def field_readers(record: type) -> dict[str, Field]:
    """Field -> how its raw value is read, for the plain fields of a record.

    Plain are numbers, flags, strings and tuples of strings, each possibly None.
    """
    readers: dict[str, Field] = {}
    hints = get_type_hints(record)
    for one in fields(record):
        hint: Any = hints[one.name]
        if isinstance(hint, UnionType):
            hint = next(part for part in get_args(hint) if part is not NoneType)
        low, high = _bounds(one.name)
        reader = _reader(one.name, hint)
        if reader is not None:
            number = hint if hint in (float, int) else None
            readers[one.name] = Field(number, low, high, reader)
    return readers


def _reader(name: str, hint: Any) -> Reader | None:
    kind = get_origin(hint) or hint
    bounds = _bounds(name)
    if kind is float:
        return lambda value: read_float(value, bounds)
    if kind is int:
        return lambda value: read_int(value, bounds)
    if kind is bool:
        return read_flag
    if kind is str:
        most = _TEXT_CHARACTERS.get(name, _DEFAULT_TEXT_CHARACTERS)
        return lambda value: read_text(value, most)
    if kind is tuple and get_args(hint)[0] is str:
        return lambda value: read_texts(value, most=64, most_characters=128)
    return None


def read_record(
    row: Mapping[str, object], readers: Mapping[str, Field]
) -> tuple[dict[str, Any], dict[str, str]]:
    """(values, unknown) of a row: each field by itself, None + "nonsense" where it is bad."""
    unknown = read_reasons(row.get("unknown"), readers)
    values: dict[str, Any] = {}
    get = row.get
    for name, (number, low, high, read) in readers.items():
        raw = get(name)
        if raw is None:
            values[name] = None
            continue
        # Most values are good numbers of their own type, and a fleet has many: without a call.
        if number is not None and type(raw) is number and low <= raw <= high:  # type: ignore[operator]
            value: object = raw
        else:
            value = read(raw)
        values[name] = value
        if value is None:
            unknown[name] = NONSENSE
        elif name in unknown:
            del unknown[name]
    return values, unknown
