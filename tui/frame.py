"""What one tick of the screen is drawn from."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpumon.feed import FeedStatus
from gpumon.snapshot import HostView

__all__ = ["Frame", "says_the_same"]


@dataclass(frozen=True, slots=True)
class Frame:
    """Every host as the feed had it at ``now``, and how the feed fares.

    ``now`` is UTC epoch seconds. While the screen is paused the frame stays the one of
    ``paused_at`` and only ``paused_minutes`` moves.
    """

    views: tuple[HostView, ...]
    status: FeedStatus
    now: float
    paused_at: float | None = None
    paused_minutes: int = 0

    def view(self, host: str) -> HostView | None:
        """The host of that name, None where it is no longer in the inventory."""
        return next((view for view in self.views if view.host == host), None)

    def paused(self, since: float, minutes: int) -> Frame:
        """The same frame, held since then; ``minutes`` is what the badge says."""
        return replace(self, paused_at=since, paused_minutes=minutes)


def says_the_same(one: HostView, other: HostView) -> bool:
    """True where two views hold the very same snapshot and status.

    Identity, not equality: a new sample with equal values is news, its age is 0.
    """
    return one.snapshot is other.snapshot and one.status is other.status
