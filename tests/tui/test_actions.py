"""The one table of keys, and what is made from it."""

from __future__ import annotations

from collections import Counter

import pytest

from gpumon.tui.actions import ACTIONS, Action, Scope, actions_in, key_label
from gpumon.tui.app import GpumonApp
from gpumon.tui.screens.fleet import FleetScreen
from gpumon.tui.screens.help import help_lines
from gpumon.tui.screens.host import HostScreen
from gpumon.tui.screens.page import PageScreen
from gpumon.tui.widgets.key_line import hints
from gpumon.tui.widgets.metric_table import MetricTable

TOGETHER = [
    (Scope.FLEET, Scope.TABLE, Scope.EVERYWHERE),
    (Scope.HOST, Scope.TABLE, Scope.EVERYWHERE),
    (Scope.PAGE, Scope.EVERYWHERE),
]
OWNERS = {
    Scope.TABLE: MetricTable,
    Scope.FLEET: FleetScreen,
    Scope.HOST: HostScreen,
    Scope.PAGE: PageScreen,
    Scope.EVERYWHERE: GpumonApp,
}


@pytest.mark.parametrize("scopes", TOGETHER)
def test_no_key_does_two_things_at_once(scopes: tuple[Scope, ...]) -> None:
    keys = Counter(key for action in actions_in(*scopes) for key in action.keys)
    assert [key for key, times in keys.items() if times > 1] == []


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: f"{action.scope}-{action.name}")
def test_each_action_exists_where_it_is_bound(action: Action) -> None:
    space, _, rest = action.name.rpartition(".")
    method = f"action_{rest.partition('(')[0]}"
    owner = OWNERS[action.scope]
    if space == "app":
        assert hasattr(GpumonApp, method)
    elif space == "screen" and owner is MetricTable:
        assert hasattr(FleetScreen, method)
        assert hasattr(HostScreen, method)
    else:
        assert hasattr(owner, method)


@pytest.mark.parametrize("width", [59, 79, 119, 199])
def test_help_names_every_key_and_text(width: int) -> None:
    text = "\n".join("".join(span.text for span in line.left) for line in help_lines(width))
    for action in ACTIONS:
        assert " ".join(key_label(key) for key in action.keys) in text
        assert action.text in text


@pytest.mark.parametrize("scopes", TOGETHER)
def test_footer_shows_the_hints_of_its_scopes(scopes: tuple[Scope, ...]) -> None:
    words = [word for _, word, _ in hints(scopes)]
    assert set(words) == {action.hint for action in actions_in(*scopes) if action.hint}
    assert words[-2:] == ["help", "quit"]


def test_two_keys_of_one_hint_stand_together() -> None:
    assert ("< >", "sort") in [(keys, word) for keys, word, _ in hints((Scope.TABLE,))]


def test_every_action_has_a_key_and_a_text_that_fits_80_columns() -> None:
    for action in ACTIONS:
        assert action.keys
        assert 0 < len(action.text) <= 26
