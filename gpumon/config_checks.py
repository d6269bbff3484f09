"""Checks a parsed config against its keys, and says where each mistake stands."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from gpumon.config_keys import Key
from gpumon.toml_lines import Place, find_lines

__all__ = ["Checks"]

_KIND_NAMES = {
    "text": "a text in quotes",
    "whole": "a whole number",
    "number": "a number",
    "switch": "true or false",
    "texts": "a list of texts in quotes",
    "table": "a table { ... }",
    "tables": "a list of tables [{ ... }]",
}
_TYPE_NAMES = {dict: "a table", list: "a list", bool: "true or false"}


class Checks:
    """One pass over a document; ``problems`` holds a line for everything that is wrong."""

    def __init__(self, text: str, path: str) -> None:
        self._path = path
        self._lines = find_lines(text)
        self._problems: list[tuple[int, str]] = []

    @property
    def problems(self) -> list[str]:
        """What is wrong, in the order of the file."""
        return [problem for _, problem in sorted(self._problems)]

    def complain(self, place: Place, message: str) -> None:
        """Note a problem at a key, with its line."""
        line = self._lines.get(place, 0)
        where = f"{self._path}:{line}" if line else self._path
        self._problems.append((line, f"{where}: {_show(place)}: {message}"))

    def complain_unknown(self, place: Place, known: Iterable[str]) -> None:
        """Note an unknown key, and the nearest that exists."""
        names = list(known)
        near = difflib.get_close_matches(str(place[-1]), names, n=1, cutoff=0.5)
        hint = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(names)}"
        self.complain(place, f"unknown key; {hint}")

    def keep_good(
        self, place: Place, table: Mapping[str, Any], known: Mapping[str, Key]
    ) -> dict[str, Any]:
        """The keys of a table that are known and right; the others are complained of."""
        good: dict[str, Any] = {}
        for name, value in table.items():
            if name not in known:
                self.complain_unknown((*place, name), known)
            elif self.is_right((*place, name), value, known[name]):
                good[name] = value
        for name, key in known.items():
            if key.required and name not in table:
                self.complain(place, f"{name} is missing; it says {key.text}")
        return good

    def is_right(self, place: Place, value: object, key: Key) -> bool:
        """True where a value, with all that is in it, is what its key takes."""
        wrong = _misfit(value, key)
        if wrong is not None:
            self.complain(place, wrong)
            return False
        before = len(self._problems)
        parts = {part.name: part for part in key.parts}
        if isinstance(value, dict):
            self.keep_good(place, value, parts)
        elif key.kind == "tables" and isinstance(value, list):
            for position, row in enumerate(value):
                if isinstance(row, dict):
                    self.keep_good((*place, position), row, parts)
                else:
                    self.complain((*place, position), "must be a table { ... }")
        return len(self._problems) == before


def _misfit(value: object, key: Key) -> str | None:
    """What is wrong with a value itself; None where nothing is."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        "text": isinstance(value, str),
        "whole": number and isinstance(value, int),
        "number": number,
        "switch": isinstance(value, bool),
        "texts": isinstance(value, list) and all(isinstance(one, str) for one in value),
        "table": isinstance(value, dict),
        "tables": isinstance(value, list),
    }[key.kind]
    if not fits:
        return f"must be {_KIND_NAMES[key.kind]}, not {_TYPE_NAMES.get(type(value)) or repr(value)}"
    if isinstance(value, str):
        if key.choices and value not in key.choices:
            near = difflib.get_close_matches(value, key.choices, n=1, cutoff=0.5)
            hint = f'did you mean "{near[0]}"?' if near else f"use {' or '.join(key.choices)}"
            return f"{value!r} is not known; {hint}"
        if not value.isprintable() or not re.fullmatch(key.pattern, value):
            return f"{value!r} is not {key.form}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _out_of_bounds(value, key)
    return None


def _out_of_bounds(value: float, key: Key) -> str | None:
    if not math.isfinite(value):
        return f"must be a number, not {value}"
    if key.least is not None and value < key.least:
        return f"{value} is less than {key.least:g}"
    if key.most is not None and value > key.most:
        return f"{value} is more than {key.most:g}"
    return None


def _show(place: Place) -> str:
    """A place as it could be written: ``hosts.a.engines[1].url``, odd keys in quotes."""
    shown = ""
    for part in place:
        if isinstance(part, int):
            shown += f"[{part}]"
        else:
            name = part if re.fullmatch(r"[\w-]+", part) else repr(part)
            shown += f".{name}" if shown else name
    return shown
