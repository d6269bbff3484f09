"""Numbers as text."""

from __future__ import annotations

import pytest

from gpumon.snapshot import REASONS
from gpumon.tui import format as shown

GIB = shown.GIB


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (41, "41s"), (99.4, "99s"), (100, "2m"), (5400, "90m"), (7200, "2h"),
     (86400, "24h"), (5 * 86400, "5d"), (10**9, "999d")],
)  # fmt: skip
def test_an_age_has_four_cells_at_most(seconds: float, text: str) -> None:
    assert shown.age(seconds) == text
    assert len(text) <= 4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (720, "12 min"), (22200, "6 h 10 min"),
     (7200, "2 h"), (41 * 86400 + 3 * 3600, "41 d 3 h"), (-5, "0 s")],
)  # fmt: skip
def test_duration(seconds: float, text: str) -> None:
    assert shown.duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0"), (1, "0.1"), (0.4 * GIB, "0.4"), (9.96 * GIB, "10"), (24 * GIB, "24")],
)
def test_gib_shows_a_little_as_a_little(size: float, text: str) -> None:
    assert shown.gib(size) == text


@pytest.mark.parametrize(("watts", "text"), [(38.4, "38"), (9999, "9999"), (12345, "12.3k")])
def test_watts(watts: float, text: str) -> None:
    assert shown.watts(watts) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.2, "0.2"), (9.44, "9.4"), (1e4, "10,000")]
)
def test_rate(value: float, text: str) -> None:
    assert shown.rate(value) == text


def test_reasons_are_words_and_unknown_codes_are_safe() -> None:
    assert shown.reason_text("unsupported") == REASONS["unsupported"]
    assert shown.reason_text(None) == REASONS["no-reading"]
    assert shown.reason_text("new\x1b") == r"new\x1b"
