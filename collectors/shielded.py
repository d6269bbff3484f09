"""Work that must not be left half done when its caller is cancelled.

Cancelling asyncssh while a channel opens leaves the channel open on the server for as
long as the connection lives: after some thirty cancels all of MaxSessions was gone
(measured; channel.py has no cancel path). So the opening runs on, and what comes of it
is thrown away.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["finish_or_discard"]

T = TypeVar("T")

#: the loop itself holds tasks only weakly
_running: set[asyncio.Task[Any]] = set()


async def finish_or_discard(work: Coroutine[Any, Any, T], discard: Callable[[T], None]) -> T:
    """Await ``work``; if cancelled meanwhile, let it finish and ``discard`` its result."""
    task = asyncio.ensure_future(work)
    _running.add(task)
    task.add_done_callback(_running.discard)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(lambda done: _throw_away(done, discard))
        raise


def _throw_away(task: asyncio.Task[T], discard: Callable[[T], None]) -> None:
    if task.cancelled() or task.exception() is not None:
        return
    with contextlib.suppress(OSError):
        discard(task.result())
