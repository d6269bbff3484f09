"""The connection's state machine: every way drawn, no other, and its back-off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.collectors.causes import Explanation
from gpumon.collectors.host_state import HostLife, retry_delay_s, stale_after_s
from gpumon.snapshot import Cause, HostState

REFUSED = Explanation(Cause.REFUSED, "gpu1: connection refused", "start sshd there", blocked=False)
CHANGED = Explanation(
    Cause.KEY_CHANGED, "gpu1: host key changed", "ssh-keygen -R gpu1", blocked=True
)


def test_a_host_goes_up_stale_down_and_up_again() -> None:
    life = HostLife(0.0)
    assert life.status.state is HostState.CONNECTING
    assert life.sampled(1.0).state is HostState.UP
    assert life.status.since == 1.0
    stale = life.silent(6.0, 7.0)
    assert (stale.state, stale.cause) == (HostState.STALE, Cause.SILENT)
    assert "6 s" in (stale.detail or "")
    down = life.failed(REFUSED, 13.0, 0.5)
    assert (down.state, down.cause, down.fix) == (
        HostState.DOWN,
        Cause.REFUSED,
        "start sshd there",
    )
    assert down.retry_at == 14.0
    again = life.connecting()
    assert again.cause is Cause.REFUSED, "the last cause stays on screen while it is tried again"
    up = life.sampled(20.0)
    assert (up.cause, up.detail, up.attempts) == (Cause.NONE, None, 1)


def test_a_blocked_host_has_no_next_try() -> None:
    life = HostLife(0.0)
    blocked = life.failed(CHANGED, 1.0, 0.0)
    assert blocked.state is HostState.BLOCKED
    assert blocked.retry_at is None
    assert life.connecting().state is HostState.CONNECTING


def test_the_same_failure_again_keeps_the_time_it_began() -> None:
    life = HostLife(0.0)
    first = life.failed(REFUSED, 5.0, 0.5)
    life.connecting()
    second = life.failed(REFUSED, 50.0, 0.5)
    assert (first.since, second.since) == (5.0, 5.0)
    assert second.attempts == 2


def test_a_host_that_was_healthy_for_long_starts_its_back_off_anew() -> None:
    life = HostLife(0.0)
    for moment in range(8):
        life.failed(REFUSED, float(moment), 0.5)
        life.connecting()
    life.sampled(100.0)
    assert life.failed(REFUSED, 500.0, 0.5).retry_at == 501.0


def test_a_flapping_host_does_not_get_the_first_delay_each_time() -> None:
    life = HostLife(0.0)
    waits = []
    for moment in (0.0, 100.0, 200.0, 300.0):
        life.sampled(moment)
        down = life.failed(REFUSED, moment + 1, 0.5)
        waits.append((down.retry_at or 0.0) - moment - 1)
        life.connecting()
    assert waits == [1.0, 2.0, 4.0, 8.0]


def test_no_other_way_exists() -> None:
    life = HostLife(0.0)
    with pytest.raises(ValueError, match="no way"):
        life.silent(6.0, 6.0)
    life.failed(REFUSED, 1.0, 0.0)
    with pytest.raises(ValueError, match="no way"):
        life.sampled(2.0)


@given(st.integers(1, 10_000), st.floats(0, 0.999))
def test_the_delay_is_capped_and_spread(attempts: int, chance: float) -> None:
    assert 0.5 <= retry_delay_s(attempts, chance) <= 90.0


def test_three_missed_samples_are_stale() -> None:
    assert stale_after_s(2.0) == 6.0
    assert stale_after_s(0.1) == 3.0
