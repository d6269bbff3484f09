"""The newest view of each host, as a viewer or the next start finds it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.inventory import Retention
from gpumon.snapshot import Cause, HostState, HostStatus, HostView
from gpumon.store import StoreWriter, open_reader, open_writer, writer
from gpumon.store.viewer_mark import touch_mark
from tests.gpumon.store.conftest import make_view

T = 1_800_000_000
KEEP = Retention()


def fallen(view: HostView, second: float, cause: Cause = Cause.TIMED_OUT) -> HostView:
    """The view's host after its connection broke; its last sample stays in sight."""
    return replace(view, status=HostStatus(HostState.DOWN, cause, since=second))


def states_of(database: Path) -> list[HostState]:
    reader = open_reader(database)
    states = [view.status.state for view in reader.latest_views()]
    reader.close()
    return states


def host_rows(database: Path) -> list[tuple[int, str, object]]:
    """(second, state, CPU) of every host's sample."""
    reader = open_reader(database)
    rows = [
        (row.at, row.values[0], row.values[2])
        for _, rows in reader.export_rows("host", 0, T + 10**6)
        for row in rows
    ]
    reader.close()
    return rows


async def test_a_host_that_fell_is_shown_as_fallen_at_once(database: Path) -> None:
    store = open_writer(database, retention=KEEP)
    store.offer(make_view(T))
    await store.flush()
    assert states_of(database) == [HostState.UP]
    store.offer(fallen(make_view(T), T + 3))
    await store.flush()
    assert states_of(database) == [HostState.DOWN], "nothing more may be heard of it for hours"
    store.offer(fallen(make_view(T), T + 3, Cause.KEY_CHANGED))
    await store.flush()
    reader = open_reader(database)
    (latest,) = reader.latest_views()
    assert latest.status.cause is Cause.KEY_CHANGED
    assert latest.snapshot is not None, "what it said last stays in sight"
    reader.close()
    await store.close()


async def test_a_fall_is_recorded_when_it_happened_beside_the_last_sample(database: Path) -> None:
    store = open_writer(database, retention=KEEP)
    store.offer(make_view(T))
    store.offer(fallen(make_view(T), T + 3))
    await store.close()
    assert host_rows(database) == [(T, "up", 5.2), (T + 3, "down", None)]
    reader = open_reader(database)
    assert reader.count_rows("gpu", T, T + 1) == 3
    assert reader.count_rows("gpu", T + 1, T + 10) == 0, "nothing was heard of its cards since"
    reader.close()


async def test_a_fall_in_the_second_of_a_sample_does_not_take_its_place(database: Path) -> None:
    store = open_writer(database, retention=KEEP)
    store.offer(make_view(T + 0.1))
    store.offer(fallen(make_view(T + 0.1), T + 0.9))
    await store.close()
    assert host_rows(database) == [(T, "up", 5.2), (T + 1, "down", None)]


async def test_closing_keeps_the_very_newest(database: Path) -> None:
    store = open_writer(database, retention=KEEP)
    for second in (T, T + 2, T + 4):
        store.offer(make_view(second))
        await store.flush()
    await store.close()
    reader = open_reader(database)
    (latest,) = reader.latest_views()
    assert latest.snapshot is not None
    assert latest.snapshot.received_at == T + 4
    reader.close()


async def test_a_viewer_sees_what_was_said_before_it_came(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_writer(database, retention=KEEP)
    for second in (T, T + 2):
        store.offer(make_view(second))
        await store.flush()
    touch_mark(database)
    await store.flush()
    assert await received_at(database) == T + 2
    count = count_transactions(store)
    await store.flush()
    assert count() == 0, "nothing new, nothing written"
    await store.close()


async def received_at(database: Path) -> float:
    reader = open_reader(database)
    (latest,) = reader.latest_views()
    reader.close()
    assert latest.snapshot is not None
    return latest.snapshot.received_at


def count_transactions(store: StoreWriter) -> Callable[[], int]:
    seen: list[str] = []
    store._connection.set_trace_callback(seen.append)
    return lambda: sum(text.startswith("BEGIN") for text in seen)


async def test_without_a_viewer_it_is_kept_now_and_then(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_writer(database, retention=KEEP)
    store.offer(make_view(T))
    await store.flush()
    store.offer(make_view(T + 2))
    await store.flush()
    assert await received_at(database) == T
    later = time.time() + writer._LATEST_EVERY_S
    monkeypatch.setattr(time, "time", lambda: later)
    await store.flush()
    assert await received_at(database) == T + 2, "though nothing was heard meanwhile"
    await store.close()


async def test_a_new_file_gets_all_hosts_at_once(database: Path) -> None:
    store = open_writer(database, retention=KEEP)
    store.offer(make_view(T, host="a"))
    store.offer(fallen(make_view(T, host="b"), T + 1))
    await store.flush()
    database.rename(database.with_name("away.db"))
    store.offer(make_view(T + 2, host="a"))
    await store.flush()
    assert sorted(states_of(database)) == [HostState.DOWN, HostState.UP]
    await store.close()


async def test_a_view_that_can_t_be_kept_whole_stops_no_other(database: Path) -> None:
    store = open_writer(database, retention=KEEP)
    odd = make_view(T, host="odd")
    # No probe line can bring it, a mistake of ours could.
    store.offer(replace(odd, status=replace(odd.status, detail=object())))  # type: ignore[arg-type]
    store.offer(make_view(T, host="well"))
    await store.flush()
    assert store.trouble is None
    assert [state for _, state, _ in host_rows(database)] == ["up", "up"]
    reader = open_reader(database)
    assert [view.host for view in reader.latest_views()] == ["well"]
    reader.close()
    await store.close()
