"""Views to and from plain JSON values.

The form is that of the records: a field per key, enumerations by their value. Reading is
tolerant of keys of a newer gpumon (left out) and of missing ones (the record's default), and
strict about types: a value of another type is taken for missing.

How a record is read and written is worked out once per type: views are many.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from gpumon.snapshot import HostView

__all__ = ["CodecError", "decode_view", "encode_view"]

_MISSING: Any = object()


class CodecError(ValueError):
    """A document that is no view."""


def encode_view(view: HostView, *, sparse: bool = False) -> dict[str, Any]:
    """A view as JSON values; a float that JSON can't hold becomes null.

    ``sparse`` leaves out what equals a record's default, which reading puts back: a third of
    the size. Without it every key is there.
    """
    return _encode_record(view, sparse)


def decode_view(document: object) -> HostView:
    """The view of a document. Raises ``CodecError`` where it names no host."""
    view = _decoder(HostView)(document)
    if not isinstance(view, HostView):
        raise CodecError("no view of a host")
    return view


@functools.cache
def _fields(record: Any) -> tuple[tuple[str, Any, Any], ...]:
    """Name, type and default (``_MISSING`` where there is none) of a record's fields."""
    hints = typing.get_type_hints(record)
    return tuple(
        (field.name, hints[field.name], _default_of(field)) for field in dataclasses.fields(record)
    )


def _default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return _MISSING


def _encode_record(record: Any, sparse: bool) -> dict[str, Any]:
    kind: Any = type(record)
    found = {}
    for name, _, default in _fields(kind):
        value = getattr(record, name)
        if sparse and (value is default or (value == default and type(value) is type(default))):
            continue
        found[name] = value if value is None else _encode(value, sparse)
    return found


def _encode(value: Any, sparse: bool) -> Any:
    kind = type(value)
    if kind is str or kind is int or kind is bool:
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if kind is tuple or kind is list:
        return [_encode(item, sparse) for item in value]
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _encode(item, sparse) for key, item in value.items()}
    return _encode_record(value, sparse) if dataclasses.is_dataclass(value) else value


_Decoder = Callable[[object], Any]


@functools.cache
def _decoder(wanted: Any) -> _Decoder:
    """What makes a value of the wanted type, ``_MISSING`` of one that is of another."""
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        return _union_decoder(parts)
    if origin is tuple:
        return _tuple_decoder(_decoder(parts[0]))
    if origin is not None:  # Mapping[str, str], Mapping[str, object]
        return _decode_texts if parts[1] is str else _decode_values
    if dataclasses.is_dataclass(wanted):
        return _record_decoder(wanted)
    if issubclass(wanted, StrEnum):
        members = {member.value: member for member in wanted}
        return lambda value: members.get(value, _MISSING) if isinstance(value, str) else _MISSING
    if wanted is float:
        return _decode_float
    # ``type``: True is an int to isinstance.
    return lambda value: value if type(value) is wanted else _MISSING


def _union_decoder(choices: tuple[Any, ...]) -> _Decoder:
    nothing = None if type(None) in choices else _MISSING
    decoders = [_decoder(choice) for choice in choices if choice is not type(None)]

    def decode(value: object) -> Any:
        if value is None:
            return nothing
        for one in decoders:
            found = one(value)
            if found is not _MISSING:
                return found
        return _MISSING

    return decode if len(decoders) > 1 else _optional_decoder(decoders[0], nothing)


def _optional_decoder(decoder: _Decoder, nothing: Any) -> _Decoder:
    return lambda value: nothing if value is None else decoder(value)


def _tuple_decoder(item: _Decoder) -> _Decoder:
    def decode(value: object) -> Any:
        if not isinstance(value, list):
            return _MISSING
        return tuple(found for one in value if (found := item(one)) is not _MISSING)

    return decode


def _record_decoder(record: Any) -> _Decoder:
    decoders = {name: _decoder(kind) for name, kind, _ in _fields(record)}

    def decode(value: object) -> Any:
        if not isinstance(value, dict):
            return _MISSING
        known = {}
        for name, given in value.items():
            decoder = decoders.get(name)
            if decoder is not None and (found := decoder(given)) is not _MISSING:
                known[name] = found
        try:
            return record(**known)
        except TypeError:
            return _MISSING  # a field without a default is missing

    return decode


def _decode_texts(value: object) -> Any:
    if not isinstance(value, dict):
        return _MISSING
    return {str(key): item for key, item in value.items() if isinstance(item, str)}


def _decode_values(value: object) -> Any:
    """Any JSON values: GGUF keys hold numbers, texts and lists of them."""
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else _MISSING


def _decode_float(value: object) -> Any:
    if type(value) is float:
        return value
    if type(value) is not int:
        return _MISSING
    try:
        return float(value)
    except OverflowError:
        return _MISSING
