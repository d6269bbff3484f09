"""Views to and from plain JSON values.

The form is that of the records: a field per key, enumerations by their value. Reading is
tolerant of keys of a newer gpumon (left out) and of missing ones (the record's default), and
strict about types: a value of another type is taken for missing.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, cast

from gpumon.snapshot import HostView

__all__ = ["CodecError", "decode_view", "encode_view"]

_MISSING = object()


class CodecError(ValueError):
    """A document that is no view."""


def encode_view(view: HostView) -> dict[str, Any]:
    """A view as JSON values; a float that JSON can't hold becomes null."""
    return cast(dict[str, Any], _encode(view))


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _encode(getattr(value, name)) for name in _fields(type(value))}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def decode_view(document: object) -> HostView:
    """The view of a document. Raises ``CodecError`` where it names no host."""
    view = _decode(HostView, document)
    if not isinstance(view, HostView):
        raise CodecError("no view of a host")
    return view


@functools.cache
def _fields(record: type) -> Mapping[str, Any]:
    """Field name -> its type, of a record."""
    hints = typing.get_type_hints(record)
    return {field.name: hints[field.name] for field in dataclasses.fields(record)}


def _decode(wanted: Any, value: object) -> Any:
    """``value`` as the wanted type, ``_MISSING`` where it is none."""
    origin = typing.get_origin(wanted)
    if origin in (types.UnionType, typing.Union):
        return _decode_union(typing.get_args(wanted), value)
    if origin is tuple:
        return _decode_tuple(typing.get_args(wanted)[0], value)
    if origin is not None:  # Mapping[str, str]
        if not isinstance(value, dict):
            return _MISSING
        return {str(key): item for key, item in value.items() if isinstance(item, str)}
    if dataclasses.is_dataclass(wanted):
        return _decode_record(cast(type, wanted), value)
    return _decode_plain(wanted, value)


def _decode_union(choices: tuple[Any, ...], value: object) -> Any:
    if value is None:
        return None if type(None) in choices else _MISSING
    for choice in choices:
        if choice is not type(None):
            found = _decode(choice, value)
            if found is not _MISSING:
                return found
    return _MISSING


def _decode_tuple(item: Any, value: object) -> Any:
    if not isinstance(value, list):
        return _MISSING
    found = (_decode(item, one) for one in value)
    return tuple(one for one in found if one is not _MISSING)


def _decode_record(wanted: type, value: object) -> Any:
    if not isinstance(value, dict):
        return _MISSING
    known = {}
    for name, kind in _fields(wanted).items():
        if name in value:
            found = _decode(kind, value[name])
            if found is not _MISSING:
                known[name] = found
    try:
        return wanted(**known)
    except TypeError:
        return _MISSING  # a field without a default is missing


def _decode_plain(wanted: Any, value: object) -> Any:
    if isinstance(wanted, type) and issubclass(wanted, StrEnum):
        try:
            return wanted(str(value))
        except ValueError:
            return _MISSING
    if wanted is bool or isinstance(value, bool):
        return value if wanted is bool and isinstance(value, bool) else _MISSING
    if wanted is float and isinstance(value, int | float):
        return float(value)
    return value if isinstance(value, wanted) else _MISSING
