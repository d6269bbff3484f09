"""What is asked how often, and how models come, stop answering and go."""

from __future__ import annotations

import json
from dataclasses import replace

from gpumon.collectors.engines.ollama import Ollama
from gpumon.collectors.engines.tracking import EngineTracker
from gpumon.collectors.payload import Request
from gpumon.collectors.wire import Answer
from gpumon.placement import until_text
from gpumon.snapshot import Engine, EngineState, Slot
from tests.collectors.engines.recorded_ollama import (
    RECORDINGS,
    SERVER,
    SITE,
    Second,
    good,
    runner_of,
    tell,
)

EMPTY = '{"models":[]}'
BUSY = Second("cpu-defaults", "04-busy-1")
LOADING = Second("cpu-defaults", "02-loading")
RUNNER = BUSY.runners[0]
SLOTS = f"slots {RUNNER.pid}.{RUNNER.start_ticks}"


def named(requests: tuple[Request, ...]) -> dict[str, Request]:
    """First word of what is asked -> request."""
    return {request.id.removeprefix(f"{SITE} ").split()[0]: request for request in requests}


def slots(at_s: float, used: int, decoded: int, *, task: int = 3, busy: bool = True) -> Answer:
    row = {
        "id": 0, "n_ctx": 256, "is_processing": busy, "id_task": task, "n_prompt_tokens": used,
        "n_prompt_tokens_processed": 6, "next_token": [{"n_decoded": decoded}],
    }  # fmt: skip
    return good(SLOTS, json.dumps([row]), at_s)


def slot_of(engine: Engine) -> Slot:
    (model,) = engine.models
    assert model.runner is not None
    assert model.runner.slots is not None
    return model.runner.slots[0]


# --- what is asked -----------------------------------------------------------------------


def test_what_is_asked_and_how_often() -> None:
    tracker = EngineTracker((Ollama(),))
    tell(BUSY, tracker=tracker)
    _, requests = tracker.update(BUSY.processes, (), 5.0)
    asked = named(requests)
    assert asked.keys() == {"ps", "version", "tags", "show", "slots"}
    assert (asked["ps"].every_s, asked["ps"].on_change, asked["ps"].timeout_s) == (15.0, True, 8.0)
    assert asked["version"].every_s == asked["tags"].every_s == 300.0
    assert (asked["show"].every_s, asked["show"].method) == (3600.0, "POST")
    assert json.loads(asked["show"].body or "") == {"model": "gemma3:270m"}, "short, not verbose"
    assert (asked["slots"].port, asked["slots"].every_s) == (37501, 2.0)
    assert asked["slots"].busy_pid == RUNNER.pid
    assert not any(one.on_change for name, one in asked.items() if name != "ps")


def test_nothing_is_asked_that_loads_or_changes_anything() -> None:
    tracker = EngineTracker((Ollama(),))
    tell(BUSY, tracker=tracker)
    _, requests = tracker.update(BUSY.processes, (), 5.0)
    allowed = {
        ("GET", "/api/ps"), ("GET", "/api/version"), ("GET", "/api/tags"), ("POST", "/api/show"),
        ("GET", "/slots"),
    }  # fmt: skip
    assert {(one.method, one.path) for one in requests} <= allowed


def test_a_server_that_does_not_answer_is_asked_again_soon_but_not_a_slow_one() -> None:
    tracker = EngineTracker((Ollama(),))
    for error, pace in (("refused", 3.0), ("timeout", 15.0), ("closed", 3.0)):
        said = Answer(f"{SITE} ps", 1.0, 1.0, None, None, error)
        _, requests = tracker.update((SERVER,), (said,), 1.0)
        assert named(requests)["ps"].every_s == pace


def test_what_seldom_changes_is_asked_again_after_a_bad_answer_when_the_server_is_there() -> None:
    tracker = EngineTracker((Ollama(),))
    _, requests = tracker.update((SERVER,), (), 0.5)
    version = named(requests)["version"]
    assert (version.every_s, version.gate) == (300.0, None)
    refused = Answer(version.id, 1.0, 1.0, None, None, "refused")
    _, requests = tracker.update((SERVER,), (refused,), 1.0)
    assert (named(requests)["version"].every_s, named(requests)["version"].gate) == (
        30.0,
        f"{SITE} ps",
    )


def test_a_server_started_anew_is_asked_its_version_again() -> None:
    tracker = EngineTracker((Ollama(),))
    _, first = tracker.update((SERVER,), (), 1.0)
    _, second = tracker.update((replace(SERVER, start_ticks=2000),), (), 2.0)
    assert named(first)["version"].id != named(second)["version"].id
    assert named(first)["ps"] == named(second)["ps"]


# --- a model comes -----------------------------------------------------------------------


def test_a_runner_that_is_ready_is_soon_listed() -> None:
    tracker = EngineTracker((Ollama(),))
    (engine,), requests = tracker.update(LOADING.processes, (good("ps", EMPTY, 1.0),), 1.0)
    loading = LOADING.slots(RUNNER.pid, 2.0)
    (engine,), requests = tracker.update(LOADING.processes, (loading,), 2.0)
    assert [model.loading for model in engine.models] == [True]
    assert named(requests)["ps"].every_s == 15.0, "while it loads there is nothing to ask for"
    _, requests = tracker.update(LOADING.processes, (slots(9.0, 0, 0, busy=False),), 9.0)
    assert named(requests)["ps"].every_s == 3.0
    said = (good("ps", BUSY.ps, 11.0),)
    (engine,), requests = tracker.update(LOADING.processes, said, 11.0)
    assert named(requests)["ps"].every_s == 15.0
    assert [(model.name, model.loading) for model in engine.models] == [("gemma3:270m", False)]


def test_a_runner_that_is_never_listed_is_not_asked_for_without_end() -> None:
    tracker = EngineTracker((Ollama(),))
    said = (good("ps", EMPTY, 1.0), slots(2.0, 0, 0, busy=False))
    _, requests = tracker.update(LOADING.processes, said, 2.0)
    assert named(requests)["ps"].every_s == 3.0
    _, requests = tracker.update(LOADING.processes, (good("ps", EMPTY, 9.0),), 9.0)
    assert named(requests)["ps"].every_s == 15.0


def test_a_model_loaded_again_has_its_name_while_it_loads() -> None:
    tracker = EngineTracker((Ollama(),))
    tell(BUSY, tracker=tracker)
    tracker.update((SERVER,), (good("ps", EMPTY, 10.0),), 10.0)
    again = replace(RUNNER, pid=7999, start_ticks=79990)
    ((engine,), _) = tracker.update((SERVER, again), (), 20.0)
    assert [(model.name, model.loading) for model in engine.models] == [("gemma3:270m", True)]


def test_a_long_description_is_not_kept() -> None:
    show = (RECORDINGS / "show" / "gemma3_270m.verbose-false.json").read_text()
    said = good("show gemma3:270m abc", show)
    kept = Ollama().keep("show gemma3:270m abc", said)
    assert len(kept.body or "") < 100 < len(show)
    # Also from one that was cut off at the cap.
    cut = Ollama().keep("show x", replace(said, body=show[:2000], truncated=True))
    assert cut.body == kept.body
    assert Ollama().keep("show x", replace(said, body=show[:50], truncated=True)).body == show[:50]


# --- it works, and is silent for a while -------------------------------------------------


def work(*answers: Answer, until_s: float | None = None) -> Engine:
    """A tracker that knows the model, then hears these answers."""
    tracker = EngineTracker((Ollama(),))
    ps = good("ps", BUSY.ps, 1.0)
    (engine,), _ = tracker.update(BUSY.processes, (ps,), 1.0)
    for answer in answers:
        (engine,), _ = tracker.update(BUSY.processes, (answer,), answer.monotonic_s)
    if until_s is not None:
        (engine,), _ = tracker.update(BUSY.processes, (), until_s)
    return engine


def late(at_s: float) -> Answer:
    return Answer(f"{SITE} {SLOTS}", at_s, 5000.0, None, None, "timeout")


def test_between_two_readings_the_last_rate_stands_with_its_age() -> None:
    engine = work(slots(2.0, 100, 10), slots(4.0, 180, 90), until_s=5.5)
    assert slot_of(engine).decode_tokens_per_s == 40.0
    (model,) = engine.models
    assert model.runner is not None
    assert model.runner.slots_monotonic_s == 4.0


def test_a_reading_that_fails_keeps_the_last_for_a_while_then_only_what_stays_true() -> None:
    engine = work(slots(2.0, 100, 10), slots(4.0, 180, 90), late(10.0))
    assert slot_of(engine).used_tokens == 180
    engine = work(slots(2.0, 100, 10), slots(4.0, 60, 90), late(10.0), until_s=20.0)
    slot = slot_of(engine)
    assert (slot.used_tokens, slot.decode_tokens_per_s, slot.activity) == (None, None, None)
    assert (slot.context_tokens, slot.context_shifts) == (256, 1)
    (model,) = engine.models
    assert model.runner is not None
    assert model.runner.unknown["slots"] == "engine-silent"


def test_after_a_silence_shifts_are_neither_lost_nor_counted_again() -> None:
    engine = work(
        slots(2.0, 100, 10), slots(4.0, 60, 90), late(30.0), slots(40.0, 200, 330),
        slots(42.0, 240, 370),
    )  # fmt: skip
    slot = slot_of(engine)
    assert (slot.context_shifts, slot.decode_tokens_per_s) == (1, 20.0)


def test_a_busy_server_keeps_what_its_runners_say() -> None:
    slow = Answer(f"{SITE} ps", 20.0, 8000.0, None, None, "timeout")
    engine = work(slots(2.0, 100, 10), slots(4.0, 180, 90), slow)
    assert engine.state is EngineState.BUSY
    (model,) = engine.models
    assert (model.name, model.size_bytes) == ("gemma3:270m", 287246908)
    assert slot_of(engine).used_tokens == 180


def test_a_server_that_is_locked_does_not_hide_its_runners() -> None:
    locked = Answer(f"{SITE} ps", 20.0, 1.0, 401, "{}", None)
    engine = work(slots(2.0, 100, 10), slots(4.0, 180, 90), locked)
    assert engine.state is EngineState.LOCKED
    (model,) = engine.models
    assert (model.name, model.loading, model.size_bytes) == ("gemma3:270m", False, None)
    assert model.unknown["size_bytes"] == model.unknown["expires_at"] == "engine-refused"
    assert slot_of(engine).used_tokens == 180
    ((fresh,), _) = EngineTracker((Ollama(),)).update(BUSY.processes, (locked,), 20.0)
    assert [model.loading for model in fresh.models] == [False]


# --- it goes -----------------------------------------------------------------------------


def test_a_model_that_unloads_is_stopping_until_its_process_has_gone() -> None:
    tracker = EngineTracker((Ollama(),))
    tell(BUSY, tracker=tracker)
    ((engine,), _) = tracker.update(BUSY.processes, (good("ps", EMPTY, 10.0),), 10.0)
    (model,) = engine.models
    assert (model.name, model.loading) == ("gemma3:270m", False)
    assert model.expires_at is not None
    assert until_text(model.expires_at, 1796104000.0) == "Stopping..."
    ((engine,), _) = tracker.update((SERVER,), (), 12.0)
    assert engine.models == ()


def test_another_process_of_the_same_number_is_another_runner() -> None:
    tracker = EngineTracker((Ollama(),))
    tracker.update(BUSY.processes, (good("ps", BUSY.ps, 1.0),), 1.0)
    tracker.update(BUSY.processes, (slots(2.0, 100, 10), slots(2.0, 100, 10)), 2.0)
    other = replace(runner_of("cpu-defaults", "04-busy-1", RUNNER.pid), start_ticks=1)
    ((engine,), _) = tracker.update((SERVER, other), (), 4.0)
    (model,) = engine.models
    assert model.runner is not None
    assert (model.runner.slots, model.runner.unknown["slots"]) == (None, "not-read")
