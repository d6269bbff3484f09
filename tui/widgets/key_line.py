"""The last line: the keys that matter here, made from the action table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual import events

from gpumon.tui.actions import Action, Scope, actions_in, key_label
from gpumon.tui.tones import Line, Span, Tone
from gpumon.tui.widgets.pane import Pane

__all__ = ["KeyLine", "hints"]


def hints(scopes: Sequence[Scope]) -> list[tuple[str, str, Action]]:
    """Keys, word and first action of each entry, in the order they are shown in."""
    grouped: dict[str, list[Action]] = {}
    for action in actions_in(*scopes):
        if action.hint:
            grouped.setdefault(action.hint, []).append(action)
    order = sorted(grouped, key=lambda hint: _ORDER.index(hint) if hint in _ORDER else 99)
    return [
        (
            " ".join(key_label(action.keys[0]) for action in grouped[hint]),
            hint,
            grouped[hint][0],
        )
        for hint in order
    ]


#: from left to right
_ORDER = (
    *("open", "back", "scroll", "copy", "table", "host", "fix"),
    *("filter", "sort", "pause", "help", "quit"),
)
#: what is left out where the line is short, from the first on; all is in the help
_LEFT_OUT = ("sort", "scroll", "pause", "host", "table", "fix", "filter", "copy")


class KeyLine(Pane):
    """Footer. A click on an entry does what its key does."""

    DEFAULT_CLASSES: ClassVar[str] = "key-line"

    def __init__(self, scopes: Sequence[Scope], *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._scopes = tuple(scopes)
        self._extra = ""
        self._spots: list[tuple[int, int, Action]] = []

    def on_mount(self) -> None:
        """Fill it."""
        self._fill()

    def set_extra(self, text: str) -> None:
        """A key that matters only now, ``t take over``, in front of the rest."""
        if text != self._extra:
            self._extra = text
            self._fill()

    def _fill(self) -> None:
        spans: list[Span] = [Span(" ")]
        self._spots = []
        x = 1
        if self._extra:
            key, _, word = self._extra.partition(" ")
            spans += [Span(key, Tone.KEY), Span(f" {word}  ", Tone.WARN)]
            x += cell_len(self._extra) + 2
        for keys, word, action in self._fitting(self.size.width - x):
            size = cell_len(keys) + 1 + cell_len(word)
            spans += [Span(keys, Tone.KEY), Span(f" {word}  ", Tone.DIM)]
            self._spots.append((x, x + size, action))
            x += size + 2
        self.show([Line(tuple(spans))])

    def _fitting(self, room: int) -> list[tuple[str, str, Action]]:
        shown = hints(self._scopes)
        for word in _LEFT_OUT:
            if sum(cell_len(keys) + cell_len(hint) + 3 for keys, hint, _ in shown) <= room:
                break
            shown = [entry for entry in shown if entry[1] != word]
        return shown

    def on_resize(self) -> None:
        """Other keys fit another width."""
        self._fill()

    async def on_click(self, event: events.Click) -> None:
        """Do what the entry under the mouse says."""
        for first, last, action in self._spots:
            if first <= event.x < last:
                target = self.screen.focused or self.screen
                await self.app.run_action(action.name, default_namespace=target)
                return
