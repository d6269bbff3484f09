"""The one table of keys. Bindings, the footer, the help and their tests come from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from textual.binding import Binding, BindingType

__all__ = ["ACTIONS", "Action", "Scope", "actions_in", "bindings", "key_label"]


class Scope(StrEnum):
    """Where an action is at hand."""

    EVERYWHERE = "everywhere"
    TABLE = "in a table"
    FLEET = "fleet"
    HOST = "host"
    #: help, the fix of a host, the details of a row
    PAGE = "help, fix, details"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a key does. ``name`` is Textual's action, with its namespace if any."""

    name: str
    keys: tuple[str, ...]
    #: what the help says
    text: str
    scope: Scope
    #: word in the footer; actions with the same one stand together. '' = not there
    hint: str = ""
    #: also while a text is being typed
    always: bool = False


ACTIONS: tuple[Action, ...] = (
    Action("up", ("up", "k"), "one row up", Scope.TABLE),
    Action("down", ("down", "j"), "one row down", Scope.TABLE),
    Action("page_up", ("pageup",), "one page up", Scope.TABLE),
    Action("page_down", ("pagedown",), "one page down", Scope.TABLE),
    Action("first", ("home", "g"), "first row", Scope.TABLE),
    Action("last", ("end", "G"), "last row", Scope.TABLE),
    Action("open", ("enter",), "open the selected row", Scope.TABLE, hint="open"),
    Action("screen.back", ("escape",), "clear filter, or go back", Scope.HOST, hint="back"),
    Action("screen.fix", ("f",), "why it fails, the fix", Scope.FLEET, hint="fix"),
    Action("screen.retry", ("R",), "try it again now", Scope.FLEET),
    Action("screen.next_table", ("tab",), "next table", Scope.HOST, hint="table"),
    Action("screen.previous_table", ("shift+tab",), "previous table", Scope.HOST),
    Action("screen.step_host(-1)", ("[",), "previous host", Scope.HOST, hint="host"),
    Action("screen.step_host(1)", ("]",), "next host", Scope.HOST, hint="host"),
    Action("screen.fix", ("f",), "why it fails, the fix", Scope.HOST, hint="fix"),
    Action("screen.retry", ("R",), "try it again now", Scope.HOST),
    Action("screen.clear_filter", ("escape",), "clear the filter", Scope.FLEET),
    Action("screen.filter", ("/",), "filter; ! in front inverts", Scope.TABLE, hint="filter"),
    Action("sort_left", ("<",), "sort: column to the left", Scope.TABLE, hint="sort"),
    Action("sort_right", (">",), "sort: column to the right", Scope.TABLE, hint="sort"),
    Action("reverse", ("r",), "turn the order round", Scope.TABLE),
    Action("screen.back", ("escape", "enter"), "go back", Scope.PAGE, hint="back"),
    Action("screen.scroll_up", ("up", "k"), "scroll up", Scope.PAGE),
    Action("screen.scroll_down", ("down", "j"), "scroll down", Scope.PAGE, hint="scroll"),
    Action("screen.page_up", ("pageup",), "one page up", Scope.PAGE),
    Action("screen.page_down", ("pagedown",), "one page down", Scope.PAGE),
    Action("screen.copy", ("y",), "copy the command", Scope.PAGE, hint="copy"),
    Action("app.pause", ("space",), "hold the screen still", Scope.EVERYWHERE, hint="pause"),
    Action("app.fleet", ("1",), "the fleet", Scope.EVERYWHERE),
    Action("app.take_over", ("t",), "collect if collector died", Scope.EVERYWHERE),
    Action("app.command_palette", (":", "ctrl+p"), "command palette, themes", Scope.EVERYWHERE),
    Action("app.help", ("?", "f1"), "this help", Scope.EVERYWHERE, hint="help"),
    Action("app.suspend_process", ("ctrl+z",), "suspend to the shell", Scope.EVERYWHERE),
    Action("app.quit", ("q",), "quit", Scope.EVERYWHERE, hint="quit"),
    Action("app.quit", ("ctrl+c",), "quit, also while typing", Scope.EVERYWHERE, always=True),
)

_LABELS = {
    "up": "↑",
    "down": "↓",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "home": "Home",
    "end": "End",
    "enter": "Enter",
    "escape": "Esc",
    "tab": "Tab",
    "shift+tab": "Shift-Tab",
    "space": "Space",
    "f1": "F1",
}


def key_label(key: str) -> str:
    """How a key is written for a person: ``Enter``, ``Ctrl-C``, ``G``."""
    if key.startswith("ctrl+"):
        return f"Ctrl-{key.removeprefix('ctrl+').upper()}"
    return _LABELS.get(key, key)


def actions_in(*scopes: Scope) -> list[Action]:
    """The actions of some scopes, in the table's order."""
    return [action for action in ACTIONS if action.scope in scopes]


def bindings(scope: Scope) -> list[BindingType]:
    """Textual bindings of a scope."""
    return list(_bindings(actions_in(scope)))


def _bindings(actions: Iterable[Action]) -> Iterable[Binding]:
    for action in actions:
        for key in action.keys:
            yield Binding(key, action.name, action.text, show=False, priority=action.always)
