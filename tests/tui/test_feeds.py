"""Who collects, who views, and what is on the first screen; with a real store and fleet."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.feed import FeedMode
from gpumon.inventory import HostConfig, Inventory, Retention
from gpumon.snapshot import HostState, HostView
from gpumon.store import StoreWriter, open_writer
from gpumon.tui import feeds
from gpumon.tui.feeds import LiveFeed, SwitchingFeed
from tests.tui import fleet_fixture as made

HERE = HostConfig("here", interval_s=0.5)
#: known by name only: nothing is asked
OFF = HostConfig("berlin-1", address="192.0.2.1", enabled=False)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "gpumon.db"


def a_view(host: str, **changes: object) -> HostView:
    """A host that is up, heard of just now."""
    view = made.eight_gpus()
    snapshot = view.snapshot
    assert snapshot is not None
    now = feeds.time.time()
    status = replace(view.status, since=now)
    taken = replace(snapshot, host=host, received_at=now)
    return replace(view, host=host, status=status, snapshot=taken, **changes)  # type: ignore[arg-type]


async def collected(database: Path, *views: HostView) -> StoreWriter:
    """Another gpumon's writer, which holds the lock, with views written."""
    writer = open_writer(database, retention=Retention())
    for view in views:
        writer.offer(view)
    await writer.flush()
    return writer


async def until(condition: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"never: {what}")


def feed_of(database: Path, *hosts: HostConfig, named: bool = False) -> SwitchingFeed:
    return SwitchingFeed(Inventory(hosts=hosts), database, named=named)


async def test_it_collects_here_and_records(database: Path) -> None:
    feed = feed_of(database, HERE)
    assert feed.views()[0].status.state is HostState.CONNECTING
    feed.start()
    try:
        await until(lambda: feed.views()[0].snapshot is not None, "a sample")
        (view,) = feed.views()
        assert (view.stored, view.status.state) == (False, HostState.UP)
        assert feed.status().mode is FeedMode.LIVE
        assert feed.status().store_trouble is None
        assert await feed.take_over() is False
    finally:
        await feed.close()
    again = feed_of(database, HERE)
    (first,) = again.views()
    assert first.stored, "the first screen is not empty"
    assert first.snapshot is not None
    assert first.status.state is HostState.CONNECTING
    await again.close()


async def test_stored_values_stay_until_the_host_itself_speaks(database: Path) -> None:
    known = a_view("here", address=None)
    await (await collected(database, known)).close()
    feed = feed_of(database, HERE)
    (stored,) = feed.views()
    assert (stored.stored, stored.snapshot) == (True, known.snapshot)
    feed.start()
    try:
        await until(lambda: not feed.views()[0].stored, "a live sample")
        assert feed.views()[0].snapshot != known.snapshot
    finally:
        await feed.close()


async def test_stored_values_of_another_address_are_not_this_hosts(database: Path) -> None:
    await (await collected(database, a_view("berlin-1", address="192.0.2.99"))).close()
    feed = feed_of(database, OFF)
    (view,) = feed.views()
    assert view.snapshot is None
    await feed.close()


async def test_a_second_one_views_and_takes_over_when_the_first_has_died(database: Path) -> None:
    writer = await collected(database, a_view("berlin-1", address="192.0.2.1"), a_view("other"))
    feed = feed_of(database, OFF, HostConfig("new", address="192.0.2.2", enabled=False))
    feed.start()
    try:
        assert feed.status().mode is FeedMode.VIEWER
        assert feed.status().collector_pid == os.getpid()
        assert [view.host for view in feed.views()] == ["berlin-1", "new", "other"]
        assert feed.views()[0].snapshot is not None
        assert "recorded nothing of this host yet" in (feed.views()[1].status.detail or "")
        assert await feed.take_over() is False, "it lives"

        later = a_view("other")
        writer.offer(later)
        await writer.flush()
        await until(lambda: feed.views()[2].snapshot == later.snapshot, "the next sample")

        await writer.close()
        await until(lambda: feed.status().mode is FeedMode.ORPHANED, "orphaned")
        assert feed.status().collector_pid == os.getpid(), "who has died"
        assert await feed.take_over() is True
        assert feed.status().mode is FeedMode.LIVE
        assert [view.host for view in feed.views()] == ["berlin-1", "new"]
        assert feed.views()[0].snapshot is not None
    finally:
        await feed.close()


async def test_only_one_of_two_viewers_takes_over(database: Path) -> None:
    writer = await collected(database, a_view("berlin-1", address="192.0.2.1"))
    first, second = feed_of(database, OFF), feed_of(database, OFF)
    for feed in (first, second):
        feed.start()
    await writer.close()
    await until(lambda: second.status().mode is FeedMode.ORPHANED, "orphaned")
    await until(lambda: first.status().mode is FeedMode.ORPHANED, "orphaned")
    taken = await asyncio.gather(first.take_over(), second.take_over())
    try:
        assert sorted(taken) == [False, True]
        modes = sorted([first.status().mode, second.status().mode])
        assert modes == [FeedMode.LIVE, FeedMode.VIEWER]
    finally:
        await first.close()
        await second.close()


async def test_hosts_long_unheard_of_are_not_in_a_view(database: Path) -> None:
    old = a_view("old")
    assert old.snapshot is not None
    old = replace(
        old, status=replace(old.status, since=1.0), snapshot=replace(old.snapshot, received_at=1.0)
    )
    writer = await collected(database, old, a_view("fresh"))
    feed = feed_of(database)
    assert [view.host for view in feed.views()] == ["fresh"]
    await feed.close()
    await writer.close()


async def test_named_hosts_are_viewed_where_they_are_collected(database: Path) -> None:
    writer = await collected(database, a_view("berlin-1"), a_view("other"))
    feed = feed_of(database, OFF, named=True)
    assert feed.status().mode is FeedMode.VIEWER
    assert [view.host for view in feed.views()] == ["berlin-1"]
    await feed.close()
    await writer.close()


async def test_named_hosts_that_nobody_collects_are_read_here_unrecorded(database: Path) -> None:
    writer = await collected(database, a_view("other"))
    feed = feed_of(database, HERE, named=True)
    feed.start()
    try:
        status = feed.status()
        assert status.mode is FeedMode.LIVE
        assert f"not recorded: {database}: process {os.getpid()}" in (status.store_trouble or "")
        await until(lambda: feed.views()[0].snapshot is not None, "a sample")
    finally:
        await feed.close()
        await writer.close()


async def test_a_damaged_database_is_told_and_recorded_anew_once_moved_away(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "_REOPEN_EVERY_S", 0.05)
    database.write_bytes(b"no database " * 999)
    feed = feed_of(database, HERE)
    feed.start()
    try:
        await until(lambda: feed.views()[0].snapshot is not None, "a sample")
        trouble = feed.status().store_trouble or ""
        assert "the database is damaged" in trouble
        assert "next: mv " in trouble
        database.rename(database.with_suffix(".damaged"))
        await until(lambda: feed.status().store_trouble is None, "recording")
        await until(database.exists, "a new database")
    finally:
        await feed.close()


async def test_a_mistake_of_ours_is_told_and_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("gpumon.collectors.fleet.Fleet.run", fail)
    feed = LiveFeed(Inventory(hosts=(OFF,)))
    feed.start()
    await until(lambda: feed.status().store_trouble is not None, "told")
    assert "boom" in (feed.status().store_trouble or "")
    await feed.close()
