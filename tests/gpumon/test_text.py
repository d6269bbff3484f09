"""Text from hosts: nothing of it reaches the terminal as an instruction."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpumon.text import cells, safe


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("llama3.1:8b", "llama3.1:8b"),
        ("a\x1b[31mred", r"a\x1b[31mred"),
        ("\x9b2J", r"\x9b2J"),
        ("bell\x07", r"bell\x07"),
        ("two\r\nlines\t", r"two\r\nlines\t"),
        ("gpj\u202egnp.exe", r"gpj\u202egnp.exe"),
        ("zero\u200bwidth\u2060", r"zero\u200bwidth\u2060"),
        ("not utf-8 \udcff", r"not utf-8 \udcff"),
        ("no\xa0break", r"no\xa0break"),
        ("Größe", "Größe"),
        ("模型", "模型"),
        ("e\u0301", "e\u0301"),
        ("e" + "\u0301" * 4, "e\u0301\u0301" + r"\u0301\u0301"),
        ("\u0301first", r"\u0301first"),
        ("heart\u2764\ufe0f", "heart\u2764" + r"\ufe0f"),
        ("", ""),
    ],
)
def test_known_texts(raw: str, shown: str) -> None:
    assert safe(raw) == shown


@pytest.mark.parametrize(
    ("raw", "limit", "shown"),
    [
        ("llama", 5, "llama"),
        ("llama3", 5, "llam…"),
        ("模型模型", 5, "模型…"),
        ("\x1b\x1b", 6, r"\x1b…"),
        ("long", 1, "…"),
        ("long", 0, ""),
    ],
)
def test_the_limit_is_in_cells(raw: str, limit: int, shown: str) -> None:
    assert safe(raw, limit) == shown


@given(st.text(max_size=60), st.integers(0, 40))
def test_no_text_moves_a_cursor_or_grows_too_wide(raw: str, limit: int) -> None:
    shown = safe(raw, limit)
    assert cell_len(shown) <= limit
    assert cells(shown) <= limit
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cf", "Cs", "Zl"}
    shown.encode()


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=80))
def test_plain_ascii_stays_as_it_is(raw: str) -> None:
    assert safe(raw) == raw


def test_ten_megabytes_are_cut_at_once() -> None:
    assert len(safe("\u202e" * 10_000_000, 80)) <= 80
