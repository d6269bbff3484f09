"""Where screens get their hosts from: live, or from another gpumon's store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gpumon.snapshot import HostView

__all__ = ["Feed", "FeedMode", "FeedStatus"]


class FeedMode(StrEnum):
    """Who collects what is shown."""

    LIVE = "live"
    #: another gpumon collects, this one reads its store
    VIEWER = "viewer"
    #: the gpumon that collected has died: this one may take over
    ORPHANED = "orphaned"


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """How the feed itself fares."""

    mode: FeedMode = FeedMode.LIVE
    #: one line when the store has trouble (full, locked, corrupt), else None
    store_trouble: str | None = None
    #: pid of the gpumon that collects, where another one does
    collector_pid: int | None = None


class Feed(Protocol):
    """What a screen may ask. Calls return at once and never block."""

    def views(self) -> Sequence[HostView]:
        """Every host in inventory order, with its newest snapshot of any age."""
        ...

    def status(self) -> FeedStatus:
        """How the feed fares now."""
        ...

    async def take_over(self) -> bool:
        """Start to collect here when the collector has died; False when it has not."""
        ...

    async def retry(self, host: str) -> bool:
        """Try a blocked or waiting host again now; False where another gpumon collects."""
        ...
