"""How stacked tables share the lines of a screen."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["share_lines"]

#: title, header and one row
_LEAST = 3


def share_lines(wanted: Sequence[int], room: int, chosen: int) -> list[int]:
    """Lines for each table: all it wants where there is room.

    Where there is not, the chosen one gets up to two thirds, the others a title, header
    and row in turn, or the title alone. What is left over at the end goes to the last.
    """
    given = [1] * len(wanted)
    order = [chosen, *(i for i in range(len(wanted)) if i != chosen)]
    spare = max(0, room - sum(given))
    share = max(_LEAST, room * 2 // 3)
    for i in order:
        target = min(wanted[i], share if i == chosen else _LEAST)
        more = min(spare, target - given[i])
        # A header without a row under it would say nothing.
        if given[i] + more >= min(wanted[i], _LEAST):
            given[i] += more
            spare -= more
    growing = [i for i in order if _LEAST <= given[i] < wanted[i]]
    while spare > 0 and growing:
        for i in list(growing):
            if spare == 0:
                break
            given[i] += 1
            spare -= 1
            if given[i] == wanted[i]:
                growing.remove(i)
    if given:
        given[-1] += spare
    return given
