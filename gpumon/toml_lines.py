"""Which line of a TOML text a key stands on; ``tomllib`` does not tell.

The text must be valid TOML (https://toml.io/en/v1.0.0), so that the scan can be short: it
only has to know where strings and comments end and how tables nest.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

__all__ = ["Place", "find_lines"]

#: where a value is: keys of tables, and positions in lists from 0
Place = tuple[str | int, ...]

_BLANK = " \t\n"
_VALUE_ENDS = ",]}#\n"
_BARE_ENDS = " \t.=]\n"


def find_lines(text: str) -> dict[Place, int]:
    """The line, from 1, of every table, key and list item of a valid TOML text."""
    return _Scan(text.replace("\r\n", "\n")).run()


class _Scan:
    """One pass over the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        #: where ``_line`` was counted up to
        self._counted = 0
        self._line = 1
        self._found: dict[Place, int] = {}
        #: how many items each ``[[list]]`` has so far
        self._lists: dict[Place, int] = {}

    def run(self) -> dict[Place, int]:
        table: Place = ()
        while self._skip_blank():
            if self._text.startswith("[[", self._at):
                table = self._open_list_item()
            elif self._text[self._at] == "[":
                table = self._resolve(self._header(1))
                self._note(table)
            else:
                self._setting(table)
        return self._found

    def _note(self, place: Place) -> None:
        """Remember the line of a place, and of the tables that it implies."""
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        for end in range(1, len(place) + 1):
            self._found.setdefault(place[:end], self._line)

    def _header(self, brackets: int) -> Place:
        self._at += brackets
        keys = tuple(self._keys())
        self._at += brackets
        return keys

    def _open_list_item(self) -> Place:
        keys = self._header(2)
        place = (*self._resolve(keys[:-1]), keys[-1])
        position = self._lists.get(place, 0)
        self._lists[place] = position + 1
        self._note((*place, position))
        return (*place, position)

    def _resolve(self, keys: Place) -> Place:
        """A header's keys as a place: a list stands for its newest item."""
        place: Place = ()
        for key in keys:
            place = (*place, key)
            if place in self._lists:
                place = (*place, self._lists[place] - 1)
        return place

    def _setting(self, table: Place) -> None:
        place = (*table, *self._keys())
        self._note(place)
        self._at = self._text.index("=", self._at) + 1
        self._value(place)

    def _value(self, place: Place) -> None:
        self._skip_blank()
        start = self._text[self._at]
        if start in "\"'":
            self._string()
        elif start == "[":
            self._list(place)
        elif start == "{":
            self._inline_table(place)
        else:
            while self._at < len(self._text) and self._text[self._at] not in _VALUE_ENDS:
                self._at += 1

    def _list(self, place: Place) -> None:
        self._at += 1
        position = 0
        while self._skip_blank() and self._text[self._at] != "]":
            self._note((*place, position))
            self._value((*place, position))
            position += 1
            self._skip_comma()
        self._at += 1

    def _inline_table(self, place: Place) -> None:
        self._at += 1
        while self._skip_blank() and self._text[self._at] != "}":
            self._setting(place)
            self._skip_comma()
        self._at += 1

    def _skip_comma(self) -> None:
        if self._skip_blank() and self._text[self._at] == ",":
            self._at += 1

    def _keys(self) -> Iterator[str]:
        """The parts of a dotted key; afterwards the scan stands behind it."""
        while True:
            self._skip_blank()
            start = self._at
            if self._text[start] in "\"'":
                self._string()
                yield tomllib.loads(f"key = {self._text[start : self._at]}")["key"]
            else:
                while self._text[self._at] not in _BARE_ENDS:
                    self._at += 1
                yield self._text[start : self._at]
            self._skip_blank()
            if self._text[self._at] != ".":
                return
            self._at += 1

    def _string(self) -> None:
        quote = self._text[self._at]
        escapes = quote == '"'
        if self._text.startswith(quote * 3, self._at):
            quote *= 3
        self._at += len(quote)
        while not self._text.startswith(quote, self._at):
            self._at += 2 if escapes and self._text[self._at] == "\\" else 1
        self._at += len(quote)
        # Up to two quotes may stand right before the closing three.
        while len(quote) == 3 and self._text.startswith(quote[0], self._at):
            self._at += 1

    def _skip_blank(self) -> bool:
        """Go to the next character that means something; False at the end of the text."""
        while self._at < len(self._text):
            if self._text[self._at] == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif self._text[self._at] in _BLANK:
                self._at += 1
            else:
                return True
        return False
