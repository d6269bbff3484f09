"""An Ollama that answers badly, over real HTTP by the real probe."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gpumon.collectors.engines.ollama import Ollama
from gpumon.collectors.engines.ollama_models import parse_time
from gpumon.collectors.engines.tracking import EngineTracker
from gpumon.collectors.fleet import Fleet
from gpumon.collectors.wire import Answer
from gpumon.inventory import EngineConfig, HostConfig
from gpumon.snapshot import Engine, EngineState, HostView
from tests.collectors.engines.recorded_ollama import SERVER, SITE, good
from tests.rig.replay import Asked, Replay, Reply

PS = (
    Path(__file__).parents[2] / "recordings" / "ollama" / "cpu-defaults" / "03-idle.ps.json"
).read_text()


async def watch(
    port: int, until: Callable[[Engine], bool], *, path: str = "", key_env: str | None = None
) -> Engine:
    """Have this machine watched until its one engine is as wanted."""
    reached: asyncio.Future[Engine] = asyncio.get_running_loop().create_future()

    def take(view: HostView) -> None:
        engines = view.snapshot.engines if view.snapshot else ()
        for engine in engines:
            if engine.port == port and until(engine) and not reached.done():
                reached.set_result(engine)

    configured = EngineConfig("ollama", f"http://127.0.0.1:{port}{path}", key_env)
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
    assert engine.models[0].unknown["runner"] == "no-process"
    assert (engine.pid, engine.unknown["pid"]) == (None, "no-process")
    assert (dict(engine.settings), engine.unknown["settings"]) == ({}, "no-process")


@pytest.mark.parametrize(
    ("reply", "state", "word"),
    [
        (Reply({"error": "no"}, status=401), EngineState.LOCKED, "key"),
        (Reply(b"not found", status=404), EngineState.CONFUSED, "404"),
        (Reply({"error": "busy"}, status=503), EngineState.CONFUSED, "503"),
        (Reply(b"<html><body>proxy</body></html>"), EngineState.CONFUSED, "HTML"),
        (Reply(b'{"models": [{"name": "gem'), EngineState.CONFUSED, "no whole JSON"),
        (Reply(PS, cut_after=20), EngineState.CONFUSED, "cut off"),
        (Reply(b"x" * 10_000_000), EngineState.CONFUSED, "too long"),
        (Reply({"models": "none"}), EngineState.CONFUSED, "other JSON"),
        (
            Reply("", headers={"Location": "http://127.0.0.1:1/"}, status=302),
            EngineState.CONFUSED,
            "302",
        ),
    ],
    ids=["401", "404", "503", "html", "half-json", "cut", "10-MB", "other-json", "redirect"],
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


async def test_a_key_is_sent_as_the_config_says(
    replay: Callable[[Reply], Replay], monkeypatch: pytest.MonkeyPatch
) -> None:
    def guarded(asked: Asked) -> Reply:
        allowed = asked.headers.get("Authorization") == "Bearer right"
        return Reply(PS) if allowed else Reply({"error": "no"}, status=401)

    server = replay(Reply())
    server.routes["GET /api/ps"] = guarded

    async def settle() -> Engine:
        return await watch(
            server.port, lambda one: one.state is not EngineState.STARTING, key_env="RIG_KEY"
        )

    monkeypatch.delenv("RIG_KEY", raising=False)
    engine = await settle()
    assert engine.state is EngineState.LOCKED
    assert "RIG_KEY is not set" in (engine.detail or "")
    monkeypatch.setenv("RIG_KEY", "wrong")
    engine = await settle()
    assert engine.state is EngineState.LOCKED
    assert "RIG_KEY holds a key that it refuses" in (engine.detail or "")
    assert "wrong" not in repr(engine)
    monkeypatch.setenv("RIG_KEY", "right")
    assert (await settle()).state is EngineState.UP


async def test_a_server_behind_a_path(replay: Callable[[Reply], Replay]) -> None:
    server = replay(Reply(b"no", status=404))
    server.routes["GET /behind/api/ps"] = Reply(PS)
    engine = await watch(
        server.port, lambda one: one.state is not EngineState.STARTING, path="/behind/"
    )
    assert (engine.state, len(engine.models)) == (EngineState.UP, 1)


@pytest.mark.parametrize(
    ("url", "word"),
    [("https://127.0.0.1:11434", "only http"), ("http://127.0.0.1:99999", "not a port")],
)
def test_a_url_that_can_not_be_asked_says_why(url: str, word: str) -> None:
    tracker = EngineTracker((Ollama(),), (EngineConfig("ollama", url),))
    for moment in (1.0, 2.0):
        ((engine,), requests) = tracker.update((), (), moment)
        assert (engine.state, requests) == (EngineState.CONFUSED, ())
        assert word in (engine.detail or "")


# --- what a hang, a return and a restart mean, without waiting for them ------------------


def tracked(*steps: tuple[float, Answer]) -> Engine:
    tracker = EngineTracker((Ollama(),))
    engines: tuple[Engine, ...] = ()
    tracker.update((SERVER,), (), 0.5)
    for moment, said in steps:
        engines, _ = tracker.update((SERVER,), (said,), moment)
    return engines[0]


def ps(moment: float, body: str = PS) -> tuple[float, Answer]:
    return moment, good("ps", body, moment)


def silence(moment: float) -> tuple[float, Answer]:
    return moment, Answer(f"{SITE} ps", moment, 8000.0, None, None, "timeout: no answer")


def refusal(moment: float) -> tuple[float, Answer]:
    return moment, Answer(f"{SITE} ps", moment, 1.0, None, None, "refused")


def test_a_slow_answer_is_busy_and_keeps_the_models() -> None:
    engine = tracked(ps(1.0), silence(20.0))
    assert (engine.state, engine.answered_monotonic_s) == (EngineState.BUSY, 1.0)
    assert engine.failing_since_monotonic_s == 12.0
    assert engine.models[0].name == "gemma3:270m"
    assert engine.models[0].size_bytes == 287246908


def test_a_body_that_stops_coming_is_busy_too() -> None:
    half = Answer(f"{SITE} ps", 20.0, 8000.0, 200, '{"models"', "timeout")
    assert tracked(ps(1.0), (20.0, half)).state is EngineState.BUSY


def test_silence_for_a_minute_is_down_and_stays_so() -> None:
    engine = tracked(ps(1.0), silence(20.0), silence(62.0))
    assert engine.state is EngineState.DOWN
    assert "61 s" in (engine.detail or "")
    assert tracked(ps(1.0), silence(62.0), silence(85.0)).state is EngineState.DOWN


def test_a_server_that_never_answered_is_not_busy_for_ever() -> None:
    assert tracked(silence(20.0)).state is EngineState.BUSY
    engine = tracked(silence(20.0), silence(50.0), silence(75.0))
    assert engine.state is EngineState.DOWN
    assert "63 s" in (engine.detail or "")


def test_it_comes_back() -> None:
    engine = tracked(ps(1.0), silence(20.0), ps(35.0))
    assert (engine.state, engine.failing_since_monotonic_s) == (EngineState.UP, None)


def test_a_process_that_listens_elsewhere_is_told_with_the_way_out() -> None:
    engine = tracked(refusal(1.0))
    assert engine.state is EngineState.DOWN
    assert engine.detail == (
        "127.0.0.1:11434: nothing listens on its port, though its process 100 runs; "
        "name its url in the config if it listens elsewhere"
    )


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


# --- what it says of its models ----------------------------------------------------------


def test_a_hostile_name_stays_what_it_is_but_can_be_encoded() -> None:
    name = "\x1b[2J\u202eevil\ud800" + "x" * 300
    document = {"models": [{"name": name, "size": 5, "size_vram": 5}]}
    engine = tracked(ps(1.0, json.dumps(document)))
    assert engine.models[0].name == name.replace("\ud800", "\ufffd")
    engine.models[0].name.encode()


def test_a_list_without_end_has_an_end() -> None:
    row = {"size": 5, "size_vram": 5, "digest": "d"}
    rows = [{"name": f"m{number}", **row} for number in range(1000)]
    rows += [{"name": "n" * 5000, **row}]
    tracker = EngineTracker((Ollama(),))
    tracker.update((SERVER,), (), 0.5)
    body = json.dumps({"models": rows})
    ((engine,), requests) = tracker.update((SERVER,), (good("ps", body),), 1.0)
    assert len(engine.models) == 256
    assert sum(request.method == "POST" for request in requests) == 32


def test_a_model_listed_twice_is_one_and_two_versions_are_two() -> None:
    rows = [{"name": "m", "digest": digest, "size": 5, "size_vram": 5} for digest in "aab"]
    engine = tracked(ps(1.0, json.dumps({"models": rows})))
    assert [(model.name, model.digest) for model in engine.models] == [("m", "a"), ("m", "b")]


def test_no_models_is_what_go_writes_for_it() -> None:
    engine = tracked(ps(1.0, '{"models":null}'))
    assert (engine.state, engine.models) == (EngineState.UP, ())


@pytest.mark.parametrize(
    ("row", "reasons"),
    [
        ({"size": 0, "size_vram": 0}, {"size_bytes": "engine-zero", "vram_bytes": "engine-zero"}),
        ({"size": -5, "size_vram": 5}, {"size_bytes": "engine-nonsense"}),
        ({"size": 2**70, "size_vram": True}, {"vram_bytes": "engine-nonsense"}),
        ({"size": "5"}, {"size_bytes": "engine-nonsense", "vram_bytes": "engine-nonsense"}),
        ({"size": 5, "size_vram": 5}, {"context_tokens": "engine-too-old"}),
        ({"expires_at": "soon"}, {"expires_at": "engine-nonsense"}),
    ],
)
def test_what_can_not_be_is_unknown(row: dict[str, object], reasons: dict[str, str]) -> None:
    (model,) = tracked(ps(1.0, json.dumps({"models": [{"name": "m", **row}]}))).models
    for field, reason in reasons.items():
        assert getattr(model, field) is None
        assert model.unknown[field] == reason


def test_cloud_models_are_remote() -> None:
    document = json.dumps({"models": [{"name": "big:cloud", "size": 384}]})
    tags = json.dumps({"models": [{"name": "big:cloud", "remote_host": "https://ollama.com"}]})
    engine = tracked((1.0, good("tags 100.1000", tags)), ps(2.0, document))
    assert engine.models[0].remote
    assert "runner" not in engine.models[0].unknown
    assert engine.installed == ("big:cloud",)


@pytest.mark.parametrize(
    ("text", "second"),
    [
        ("2026-12-01T05:51:49.712410935Z", 1796104309.71241),
        ("2026-12-01T06:51:49+01:00", 1796104309.0),
        ("2026-12-01T00:21:49.5-05:30", 1796104309.5),
        ("2026-12-01T05:51:49.1Z", 1796104309.1),
        ("2026-12-01T05:51:49Z", 1796104309.0),
        ("2319-03-13T05:34:25.556272401Z", 11019476065.556272),
        ("0001-01-01T00:00:00Z", -62135596800.0),
        ("2026-12-01T05:51:49", None),
        ("2026-13-01T05:51:49Z", None),
        ("2" * 1000, None),
        ("soon", None),
        (5, None),
        (None, None),
    ],
)
def test_times(text: object, second: float | None) -> None:
    assert parse_time(text) == (None if second is None else pytest.approx(second, abs=1e-5))
