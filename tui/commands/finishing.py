"""Ending well: what was begun is ended though Ctrl-C is pressed meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine

__all__ = ["finish"]


async def finish(work: Coroutine[object, object, None]) -> None:
    """Await ``work`` to its end, also where the caller is cancelled.

    A probe must not stay on a host, nor samples unwritten. A second Ctrl-C ends it
    nevertheless, for asyncio takes that for the whole loop's.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()
