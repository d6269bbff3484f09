"""A host's connection as a small state machine. Pure: time and chance are given.

::

    connecting --sample--> up --3 intervals without one--> stale --sample--> up
        |                   |                                |
        +------ failed -----+-------------- failed ----------+
                            v
              down (tried again at retry_at)  or  blocked (a person must act)
                            |
                            +--- connecting
"""

from __future__ import annotations

from dataclasses import replace

from gpumon.collectors.causes import Explanation
from gpumon.snapshot import Cause, HostState, HostStatus

__all__ = ["HostLife", "reopen_after_s", "retry_delay_s", "stale_after_s"]

#: A host is stale after this many missed samples.
_MISSED_SAMPLES = 3
_FIRST_RETRY_S = 1.0
_LAST_RETRY_S = 60.0
#: A host that was up this long starts its back-off anew when it fails.
_HEALTHY_S = 60.0

_FROM: dict[HostState, frozenset[HostState]] = {
    HostState.CONNECTING: frozenset(
        {HostState.CONNECTING, HostState.UP, HostState.DOWN, HostState.BLOCKED}
    ),
    HostState.UP: frozenset({HostState.UP, HostState.STALE, HostState.DOWN, HostState.BLOCKED}),
    HostState.STALE: frozenset({HostState.UP, HostState.DOWN, HostState.BLOCKED}),
    HostState.DOWN: frozenset({HostState.CONNECTING}),
    HostState.BLOCKED: frozenset({HostState.CONNECTING}),
    HostState.DISABLED: frozenset(),
}


def stale_after_s(interval_s: float) -> float:
    """Seconds without a sample after which a host is called stale."""
    return max(_MISSED_SAMPLES * interval_s, 3.0)


def reopen_after_s(interval_s: float) -> float:
    """Seconds without a sample after which the connection is given up and opened anew."""
    return 2.0 * stale_after_s(interval_s)


def retry_delay_s(attempts: int, chance: float) -> float:
    """Seconds to wait after the ``attempts``-th failure in a row.

    Doubles from 1 s to 60 s; ``chance`` in [0, 1) spreads hosts that failed together
    over half to one and a half of that, so that a bastion which came back is not
    hit by all of them at once.
    """
    delay_s = min(_FIRST_RETRY_S * 2.0 ** max(0, min(attempts, 10) - 1), _LAST_RETRY_S)
    return delay_s * (0.5 + chance)


class HostLife:
    """Holds the state of one host and allows only the transitions drawn above."""

    def __init__(self, now: float) -> None:
        self.status = HostStatus(HostState.CONNECTING, since=now)

    def connecting(self) -> HostStatus:
        """Note that a connection is being tried; the cause of the last failure stays."""
        return self._enter(replace(self.status, state=HostState.CONNECTING, retry_at=None))

    def sampled(self, now: float) -> HostStatus:
        """Note that a sample came."""
        if self.status.state is HostState.UP:
            return self.status
        attempts = 0 if self.status.state is HostState.STALE else self.status.attempts
        return self._enter(HostStatus(HostState.UP, since=now, attempts=attempts))

    def silent(self, silence_s: float, now: float) -> HostStatus:
        """Note that samples stopped while the connection seems to stand."""
        return self._enter(
            replace(
                self.status,
                state=HostState.STALE,
                cause=Cause.SILENT,
                detail=f"no sample for {silence_s:.0f} s; the connection is still open",
                fix="wait: it is opened anew by itself; the host may be frozen or overloaded",
                since=now,
            )
        )

    def failed(self, failure: Explanation, now: float, chance: float) -> HostStatus:
        """Note that the connection or the probe ended, and plan the next try."""
        healthy = (
            self.status.state in {HostState.UP, HostState.STALE}
            and now - self.status.since >= _HEALTHY_S
        )
        attempts = 1 if healthy else self.status.attempts + 1
        same = self.status.cause is failure.cause and self.status.state is HostState.CONNECTING
        return self._enter(
            HostStatus(
                state=HostState.BLOCKED if failure.blocked else HostState.DOWN,
                cause=failure.cause,
                detail=failure.detail,
                fix=failure.fix,
                since=self.status.since if same else now,
                retry_at=None if failure.blocked else now + retry_delay_s(attempts, chance),
                attempts=attempts,
            )
        )

    def _enter(self, status: HostStatus) -> HostStatus:
        if status.state not in _FROM[self.status.state]:
            raise ValueError(f"no way from {self.status.state} to {status.state}")
        self.status = status
        return status
