"""An Ollama that answers badly, over real HTTP by the real probe."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gpumon.collectors.engines.ollama import Ollama, parse_time
from gpumon.collectors.engines.tracking import EngineTracker
from gpumon.collectors.fleet import Fleet
from gpumon.collectors.wire import Answer, WatchedProcess
from gpumon.inventory import EngineConfig, HostConfig
from gpumon.snapshot import Engine, EngineState, HostView
from tests.rig.replay import Replay, Reply

PS = (
    Path(__file__).parents[2] / "recordings" / "ollama" / "cpu-defaults" / "03-idle.ps.json"
).read_text()


async def watch(port: int, until: Callable[[Engine], bool]) -> Engine:
    """Have this machine watched until its one engine is as wanted."""
    reached: asyncio.Future[Engine] = asyncio.get_running_loop().create_future()

    def take(view: HostView) -> None:
        engines = view.snapshot.engines if view.snapshot else ()
        for engine in engines:
            if engine.port == port and until(engine) and not reached.done():
                reached.set_result(engine)

    configured = EngineConfig("ollama", f"http://127.0.0.1:{port}")
    fleet = Fleet([HostConfig("here", engines=(configured,), interval_s=0.5)], on_view=take)
    task = asyncio.create_task(fleet.run())
    try:
        async with asyncio.timeout(20):
            return await reached
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def routes(ps: Reply) -> dict[str, Reply]:
    return {
        "GET /api/version": Reply({"version": "0.33.0"}),
        "GET /api/ps": ps,
        "GET /api/tags": Reply({"models": [{"name": "a"}, {"name": "b"}]}),
        "POST /api/show": Reply({"error": "model not found"}, status=404),
    }


@pytest.fixture
async def replay() -> AsyncIterator[Callable[[Reply], Replay]]:
    servers: list[Replay] = []

    def start(ps: Reply) -> Replay:
        servers.append(Replay(routes(ps)).start())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


async def test_a_good_one(replay: Callable[[Reply], Replay]) -> None:
    server = replay(Reply(PS))
    engine = await watch(
        server.port, lambda one: bool(one.models and one.version and one.installed)
    )
    assert engine.state is EngineState.UP
    assert (engine.version, engine.installed) == ("0.33.0", ("a", "b"))
    assert engine.models[0].name == "gemma3:270m"
    assert engine.models[0].unknown["runner"] == "not-visible"


@pytest.mark.parametrize(
    ("reply", "state", "word"),
    [
        (Reply({"error": "no"}, status=401), EngineState.LOCKED, "key"),
        (Reply(b"not found", status=404), EngineState.CONFUSED, "404"),
        (Reply({"error": "busy"}, status=503), EngineState.LOADING, "503"),
        (Reply(b"<html><body>proxy</body></html>"), EngineState.CONFUSED, "HTML"),
        (Reply(b'{"models": [{"name": "gem'), EngineState.CONFUSED, "no whole JSON"),
        (Reply(PS, cut_after=20), EngineState.CONFUSED, "cut off"),
        (Reply(b"x" * 10_000_000), EngineState.CONFUSED, "too long"),
        (Reply({"models": "none"}), EngineState.CONFUSED, "not the API"),
    ],
    ids=["401", "404", "503", "html", "half-json", "cut", "10-MB", "other-json"],
)
async def test_a_bad_one_is_named(
    replay: Callable[[Reply], Replay], reply: Reply, state: EngineState, word: str
) -> None:
    server = replay(reply)
    engine = await watch(server.port, lambda one: one.state is not EngineState.STARTING)
    assert engine.state is state
    assert word in (engine.detail or "")
    assert engine.models == ()


async def test_nobody_listens() -> None:
    server = Replay({}).start()
    server.stop()
    engine = await watch(server.port, lambda one: one.state is not EngineState.STARTING)
    assert engine.state is EngineState.DOWN


# --- what a hang, a return and a restart mean, without waiting for them ------------------

SITE = "ollama:127.0.0.1:11434"
SERVER = WatchedProcess(pid=5, comm="ollama", cmd=("/usr/bin/ollama", "serve"))


def tracked(*steps: tuple[float, Answer]) -> Engine:
    tracker = EngineTracker((Ollama(),))
    engines: tuple[Engine, ...] = ()
    tracker.update((SERVER,), (), 0.5)
    for moment, said in steps:
        engines, _ = tracker.update((SERVER,), (said,), moment)
    return engines[0]


def ps(moment: float, body: str = PS) -> tuple[float, Answer]:
    return moment, Answer(f"{SITE} ps", moment, 1.0, 200, body, None)


def silence(moment: float) -> tuple[float, Answer]:
    return moment, Answer(f"{SITE} ps", moment, 8000.0, None, None, "timeout: no answer")


def test_a_slow_answer_is_busy_and_keeps_the_models() -> None:
    engine = tracked(ps(1.0), silence(20.0))
    assert (engine.state, engine.answered_monotonic_s) == (EngineState.BUSY, 1.0)
    assert engine.models[0].name == "gemma3:270m"


def test_silence_for_a_minute_is_down() -> None:
    engine = tracked(ps(1.0), silence(20.0), silence(62.0))
    assert engine.state is EngineState.DOWN
    assert "61 s" in (engine.detail or "")


def test_it_comes_back() -> None:
    assert tracked(ps(1.0), silence(20.0), ps(35.0)).state is EngineState.UP


def test_the_same_answer_again_is_fresh() -> None:
    moment, first = ps(1.0)
    again = Answer(f"{SITE} ps", 16.0, 1.0, 200, None, None, same=True)
    engine = tracked((moment, first), (16.0, again))
    assert engine.answered_monotonic_s == 16.0
    assert engine.models


def test_a_host_that_was_restarted_is_not_believed_to_have_what_it_had() -> None:
    tracker = EngineTracker((Ollama(),))
    tracker.update((SERVER,), (), 1000.0)
    tracker.update((SERVER,), (ps(1001.0)[1],), 1001.0)
    ((engine,), _) = tracker.update((SERVER,), (), 5.0)
    assert (engine.state, engine.models) == (EngineState.STARTING, ())


def test_an_engine_that_is_gone_is_gone() -> None:
    tracker = EngineTracker((Ollama(),))
    tracker.update((SERVER,), (), 1.0)
    assert tracker.update((), (), 2.0) == ((), ())


def test_a_hostile_name_stays_what_it_is() -> None:
    name = "\x1b[2J\u202eevil" + "x" * 300
    document = {"models": [{"name": name, "size": 5, "size_vram": 5}]}
    engine = tracked(ps(1.0, json.dumps(document)))
    assert engine.models[0].name == name


def test_cloud_models_are_remote() -> None:
    document = json.dumps({"models": [{"name": "big:cloud", "size": 384}]})
    tags = json.dumps({"models": [{"name": "big:cloud", "remote_host": "https://ollama.com"}]})
    said = Answer(f"{SITE} tags", 1.0, 1.0, 200, tags, None)
    engine = tracked((1.0, said), ps(2.0, document))
    assert engine.models[0].remote


def test_an_old_runner_has_no_slots_and_says_why() -> None:
    runner = WatchedProcess(
        pid=9,
        ppid=5,
        comm="ollama",
        cmd=("/usr/bin/ollama", "runner", "--model", "/b", "--port", "1"),
    )
    tracker = EngineTracker((Ollama(),))
    tracker.update((SERVER, runner), (), 0.5)
    ((engine,), requests) = tracker.update((SERVER, runner), (ps(1.0)[1],), 1.0)
    (model,) = engine.models
    assert model.runner is not None
    assert model.runner.unknown["slots"] == "engine-too-old"
    assert not any("slots" in request.id for request in requests)


def test_two_servers_on_one_host() -> None:
    other = WatchedProcess(
        pid=6,
        comm="ollama",
        cmd=("/usr/bin/ollama", "serve"),
        env={"OLLAMA_HOST": "http://0.0.0.0:11500"},
    )
    engines, _ = EngineTracker((Ollama(),)).update((SERVER, other), (), 1.0)
    assert [(one.port, one.pid) for one in engines] == [(11434, 5), (11500, 6)]


@pytest.mark.parametrize(
    ("text", "second"),
    [
        ("2026-12-01T05:51:49.712410935Z", 1796104309.71241),
        ("2026-12-01T06:51:49+01:00", 1796104309.0),
        ("2026-12-01T05:51:49Z", 1796104309.0),
        ("2319-03-13T05:34:25.556272401Z", 11019476065.556272),
        ("2026-12-01T05:51:49", None),
        ("soon", None),
        (5, None),
        (None, None),
    ],
)
def test_times(text: object, second: float | None) -> None:
    assert parse_time(text) == (None if second is None else pytest.approx(second, abs=1e-5))
