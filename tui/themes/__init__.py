"""Colours of gpumon, and which of them fit a terminal.

Severity is blue, orange and reverse video, never red against green. The ``ansi`` theme
keeps the terminal's own ground and palette, so it suits light and dark terminals
alike, and it sends less than half the bytes of a truecolor theme. It is the default
where truecolor is not announced (``COLORTERM``), where the terminal is at the far end
of an SSH connection, and where ``NO_COLOR`` asks for none.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from textual.theme import BUILTIN_THEMES, Theme

__all__ = ["THEMES", "UnknownThemeError", "choose_theme", "defaults_for", "theme_names"]


class UnknownThemeError(ValueError):
    """A theme that does not exist; the text names the nearest one."""


def _variables(**colours: str) -> dict[str, str]:
    return {f"g-{name.replace('_', '-')}": value for name, value in colours.items()}


DARK = Theme(
    name="dark",
    primary="#6cb6ff",
    secondary="#8fa1b3",
    accent="#6cb6ff",
    warning="#ffa94d",
    error="#ff8a3d",
    success="#6cb6ff",
    foreground="#d7dde5",
    background="#11151a",
    surface="#171c23",
    panel="#1d242d",
    dark=True,
    variables=_variables(
        dim="#77828f",
        strong="#ffffff",
        title="#8cc8ff",
        head="#93a1b1",
        bar="#4f9fe8",
        rest="#3a4552",
        warn="#ffb454",
        crit="#11151a",
        crit_ground="#ff8a3d",
        unknown="#b9a3e3",
        key="#8cc8ff",
        rule="#36414d",
        badge="#11151a",
        badge_ground="#8cc8ff",
        selected_ground="#24405e",
        chosen_ground="#1f2731",
        bar_ground="#1a212a",
    ),
)

LIGHT = Theme(
    name="light",
    primary="#0b5cad",
    secondary="#5b6773",
    accent="#0b5cad",
    warning="#a14a00",
    error="#a14a00",
    success="#0b5cad",
    foreground="#1c2229",
    background="#fafaf7",
    surface="#f2f2ee",
    panel="#e9eae6",
    dark=False,
    variables=_variables(
        dim="#6a7480",
        strong="#000000",
        title="#0b5cad",
        head="#4d5863",
        bar="#2277cc",
        rest="#bfc6cd",
        warn="#a14a00",
        crit="#ffffff",
        crit_ground="#b34700",
        unknown="#6b4fa3",
        key="#0b5cad",
        rule="#cdd2d6",
        badge="#ffffff",
        badge_ground="#0b5cad",
        selected_ground="#cfe3f7",
        chosen_ground="#ebecea",
        bar_ground="#ecede9",
    ),
)

#: Only the eight base colours and text styles: a Linux console shows no bright ones.
ANSI = Theme(
    name="ansi",
    ansi=True,
    primary="ansi_cyan",
    secondary="ansi_cyan",
    accent="ansi_cyan",
    warning="ansi_yellow",
    error="ansi_yellow",
    success="ansi_cyan",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    dark=True,
    variables={
        **BUILTIN_THEMES["ansi-dark"].variables,
        **_variables(
            dim="ansi_default",
            dim_style="dim",
            strong="ansi_default",
            title="ansi_cyan",
            head="ansi_default",
            head_style="dim",
            bar="ansi_cyan",
            rest="ansi_default",
            rest_style="dim",
            warn="ansi_yellow",
            crit="ansi_default",
            crit_ground="ansi_default",
            crit_style="bold reverse",
            unknown="ansi_magenta",
            key="ansi_cyan",
            rule="ansi_default",
            rule_style="dim",
            badge="ansi_default",
            badge_ground="ansi_default",
            badge_style="bold reverse",
            selected_ground="ansi_default",
            selected_style="reverse",
            chosen_ground="ansi_default",
            chosen_style="none",
            bar_ground="ansi_default",
        ),
    },
)

THEMES: tuple[Theme, ...] = (DARK, LIGHT, ANSI)

_PLAIN_STYLES = _variables(
    dim_style="none",
    head_style="none",
    rest_style="none",
    rule_style="none",
    crit_style="bold",
    badge_style="bold",
    selected_style="none",
    chosen_style="none",
)


def defaults_for(theme: Theme) -> dict[str, str]:
    """What the stylesheet needs, for Textual's own themes that do not say it."""
    nearest = ANSI if theme.ansi else DARK if theme.dark else LIGHT
    return {**_PLAIN_STYLES, **nearest.variables}


def theme_names() -> list[str]:
    """Every name that ``--theme`` takes, gpumon's own first."""
    return [*(theme.name for theme in THEMES), *sorted(BUILTIN_THEMES)]


def choose_theme(wanted: str | None, environ: Mapping[str, str]) -> str:
    """The theme asked for, else the one that fits the terminal.

    ``wanted`` goes before ``GPUMON_THEME`` and ``TEXTUAL_THEME``. Raises
    ``UnknownThemeError`` for a name given by the user that is no theme.
    """
    for name in (wanted, environ.get("GPUMON_THEME"), environ.get("TEXTUAL_THEME")):
        if not name:
            continue
        if name in theme_names():
            return name
        near = difflib.get_close_matches(name, theme_names(), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(theme_names())}"
        raise UnknownThemeError(f"no theme {name!r}{hint}")
    truecolor = environ.get("COLORTERM", "").lower() in ("truecolor", "24bit")
    remote = bool(environ.get("SSH_CONNECTION"))
    return "dark" if truecolor and not remote and "NO_COLOR" not in environ else "ansi"
