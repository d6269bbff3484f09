"""What holds for every engine: found, asked and read without ever raising."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.collectors.engines.contract import EngineReader
from gpumon.collectors.engines.registry import ENGINES
from gpumon.collectors.engines.tracking import EngineTracker
from gpumon.collectors.wire import Answer, WatchedProcess
from gpumon.inventory import EngineConfig
from gpumon.snapshot import EngineState

URL = "http://127.0.0.1:4711"
bodies = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            '{"models": null}',
            '{"models": [1, null, {}, {"name": 5}]}',
            '{"models": [{"name": "m", "size": -1, "expires_at": 5, "details": []}]}',
            '{"models": [{"name": "m", "size": 1e400, "size_vram": true}]}',
            '{"models": [{"name": "m", "expires_at": "9999-99-99T99:99:99Z"}]}',
            '[{"id": 0, "next_token": [{}]}]',
            '[{"id": "x"}]',
            "<html>",
            '{"models": [',
            "[" * 5000,
        ]
    ),
)
answers = st.builds(
    Answer,
    st.just("filled in"),
    st.floats(0, 1e6),
    st.floats(0, 1e5),
    st.none() | st.integers(100, 999),
    st.none() | bodies,
    st.none() | st.sampled_from(["timeout", "refused", "closed", "not-http: x"]),
    st.booleans(),
)


@pytest.fixture(params=ENGINES, ids=[engine.kind for engine in ENGINES])
def engine(request: pytest.FixtureRequest) -> EngineReader:
    found: EngineReader = request.param
    return found


def test_kinds_differ() -> None:
    assert len({engine.kind for engine in ENGINES}) == len(ENGINES)


def test_patterns_are_regular_expressions(engine: EngineReader) -> None:
    for pattern in (*engine.watch, *engine.env_names):
        re.compile(pattern)
    for secret in ("OLLAMA_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "PATH"):
        # Names of secrets are also dropped by the probe itself.
        assert secret == "OLLAMA_API_KEY" or not any(
            re.fullmatch(name, secret) for name in engine.env_names
        )


def test_a_configured_url_is_found_and_asked(engine: EngineReader) -> None:
    configured = (EngineConfig(engine.kind, URL), EngineConfig("other", URL))
    (site,) = engine.find((), configured)
    assert (site.kind, site.port) == (engine.kind, 4711)
    requests = engine.requests(site, (), {})
    assert requests
    assert all(one.id.startswith(f"{site.key} ") and one.port == 4711 for one in requests)
    assert len({one.id for one in requests}) == len(requests)
    assert all(one.method == "GET" for one in requests)
    assert all(one.every_s >= 2 and one.cap_bytes <= 524288 for one in requests)


def test_before_an_answer_nothing_is_claimed(engine: EngineReader) -> None:
    (site,) = engine.find((), (EngineConfig(engine.kind, URL),))
    read = engine.read(site, (), {}, None, 1.0)
    assert read.state is EngineState.STARTING
    assert (read.models, read.installed, read.version) == ((), None, None)


@given(st.lists(answers, max_size=6), st.data())
def test_no_answer_makes_it_raise(given_answers: list[Answer], data: st.DataObject) -> None:
    for engine in ENGINES:
        tracker = EngineTracker((engine,), (EngineConfig(engine.kind, URL),))
        _, requests = tracker.update((), (), 1.0)
        for step, one in enumerate(given_answers):
            asked = data.draw(st.sampled_from(requests))
            said = Answer(
                asked.id, one.monotonic_s, one.elapsed_ms, one.status, one.body, one.error,
                one.truncated,
            )  # fmt: skip
            engines, requests = tracker.update((), (said,), 2.0 + step)
            assert len(engines) == 1


@given(st.lists(st.lists(st.text(max_size=12), max_size=8), max_size=5))
def test_no_command_line_makes_it_raise(commands: list[list[str]]) -> None:
    words: list[Any] = [["/usr/bin/ollama", "serve"], ["llama-server", "--model", "-c", "x"]]
    processes = [
        WatchedProcess(pid=number + 2, ppid=2, comm="ollama", cmd=tuple(command))
        for number, command in enumerate(words + commands)
    ]
    tracker = EngineTracker(ENGINES)
    for step in range(2):
        tracker.update(processes, (), 1.0 + step)
