"""Which theme a terminal gets."""

from __future__ import annotations

import pytest

from gpumon.tui.themes import UnknownThemeError, choose_theme, theme_names

TRUE = {"COLORTERM": "truecolor"}


@pytest.mark.parametrize(
    ("environ", "theme"),
    [
        ({}, "ansi"),
        (TRUE, "dark"),
        ({"COLORTERM": "24bit"}, "dark"),
        ({"COLORTERM": "yes"}, "ansi"),
        ({**TRUE, "SSH_CONNECTION": "1 2 3 4"}, "ansi"),
        ({**TRUE, "NO_COLOR": "1"}, "ansi"),
        ({**TRUE, "GPUMON_THEME": "light"}, "light"),
        ({"TEXTUAL_THEME": "nord"}, "nord"),
        ({"GPUMON_THEME": "light", "TEXTUAL_THEME": "nord"}, "light"),
    ],
)
def test_the_terminal_decides_unless_told(environ: dict[str, str], theme: str) -> None:
    assert choose_theme(None, environ) == theme


def test_what_is_asked_for_goes_first() -> None:
    assert choose_theme("dark", {"GPUMON_THEME": "light"}) == "dark"
    assert set(theme_names()) >= {"dark", "light", "ansi", "textual-dark"}


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(UnknownThemeError, match="no theme 'zzz'; there are dark, light, ansi"):
        choose_theme("zzz", {})
