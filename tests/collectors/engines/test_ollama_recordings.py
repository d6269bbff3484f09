"""gpumon's texts against what a real Ollama 0.33.0-rc2 printed at the recorded second.

``GPUMON_OLLAMA_MATRIX`` may name another file of the form of ``gpu-split/matrix.jsonl``.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from gpumon.collectors.engines.contract import Site
from gpumon.collectors.engines.ollama import Ollama, parse_time
from gpumon.collectors.wire import Answer, WatchedProcess
from gpumon.placement import processor_text, shown_processor, size_text, until_text
from gpumon.snapshot import Engine, EngineState, Model

RECORDINGS = Path(__file__).parents[2] / "recordings" / "ollama"
SAMPLES = sorted(RECORDINGS.glob("*/*.ps.json"))
MATRIX = Path(os.environ.get("GPUMON_OLLAMA_MATRIX") or RECORDINGS / "gpu-split" / "matrix.jsonl")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[⠀-⣿]|\r")
_UNITS_S = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}


def columns(line: str) -> list[str]:
    """Ollama separates its columns by four blanks; a text holds single ones."""
    return [part.strip() for part in re.split(r"\s{2,}", line.strip()) if part.strip()]


def answer(name: str, body: str) -> Answer:
    return Answer(name, 1.0, 1.0, 200, body, None)


def read_ps(body: str) -> Engine:
    site = Site("ollama", 11434)
    return Ollama().read(site, (), {f"{site.key} ps": answer("x", body)}, None, 1.0)


def id_text(model: Model) -> str:
    return (model.digest or "")[:12]


@pytest.mark.parametrize("path", SAMPLES, ids=[str(p.relative_to(RECORDINGS)) for p in SAMPLES])
def test_a_recorded_ps(path: Path) -> None:
    stem = path.name.removesuffix(".ps.json")
    printed = _ESCAPES.sub("", path.with_name(f"{stem}.ps.txt").read_text())
    now = parse_time(path.with_name(f"{stem}.date").read_text().strip())
    assert now is not None
    engine = read_ps(path.read_text())
    assert engine.state is EngineState.UP
    raw = json.loads(path.read_text())["models"]
    lines = [columns(line) for line in printed.splitlines() if line.strip()]
    assert lines[0] == ["NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "UNTIL"]
    # The program that printed asked a moment after the JSON was taken.
    assert len(lines) - 1 == len(raw) == len(engine.models)
    for shown, model, row in zip(lines[1:], engine.models, raw, strict=True):
        name, digest, size, processor, context, until = shown
        assert (name, digest) == (model.name, id_text(model))
        assert size == size_text(row["size"])
        assert processor == processor_text(row["size"], row["size_vram"])
        assert context == str(model.context_tokens)
        assert model.expires_at is not None
        assert until in {until_text(model.expires_at, now + late) for late in (0.0, 0.5, 1.0)}
        if row["size"] == 0:
            assert (model.size_bytes, shown_processor(model)) == (None, "n/a")
            assert model.unknown["size_bytes"] == "engine-zero"
        else:
            assert shown_processor(model) == processor


def read_matrix() -> list[dict[str, Any]]:
    return [json.loads(line) for line in MATRIX.read_text().splitlines() if line.strip()]


def plausible_moments(text: str, expires_at: float) -> list[float]:
    """Moments at which a duration of such a text may have been printed.

    The line does not say when it was; every other part of the text must follow from it.
    """
    if text.startswith("Stopping"):
        return [expires_at + 1]
    if text == "Forever":
        return [expires_at - 30 * 365 * 86400]
    words = text.removesuffix(" from now").split()
    if words[0] == "Less":
        return [expires_at - 0.5]
    count = 1.0 if words[0] == "About" else float(words[0])
    unit_s = _UNITS_S.get(words[-1].rstrip("s"), 30 * 86400)
    return [expires_at - (count + part) * unit_s for part in (-0.4, 0.0, 0.4, 0.5, 0.9)]


@pytest.mark.parametrize("row", read_matrix(), ids=lambda row: f"{row['line'][:60].strip()}")
def test_a_line_of_the_matrix(row: dict[str, Any]) -> None:
    engine = read_ps(json.dumps({"models": [row["ps"]]}))
    (model,) = engine.models
    name, digest, size, processor, context, *until = columns(_ESCAPES.sub("", row["line"]))
    assert (name, digest) == (model.name, id_text(model))
    assert size == size_text(row["ps"]["size"])
    assert processor == processor_text(row["ps"]["size"], row["ps"]["size_vram"])
    assert context == str(model.context_tokens)
    if row["ps"]["size"] == 0:
        assert shown_processor(model) == "n/a"
        assert model.size_bytes is None
    else:
        assert shown_processor(model) == processor
    if until:
        assert model.expires_at is not None
        moments = plausible_moments(until[0], model.expires_at)
        assert until[0] in {until_text(model.expires_at, moment) for moment in moments}


def test_there_is_something_to_compare() -> None:
    assert len(SAMPLES) > 20
    assert read_matrix()


# --- a model joined to its runner -----------------------------------------------------


def watched(path: Path, pid: int, parent: int) -> WatchedProcess:
    command = path.read_text().replace("\0", " ").split()
    return WatchedProcess(pid=pid, ppid=parent, comm="llama-server", cmd=tuple(command))


SERVER = WatchedProcess(pid=100, comm="ollama", cmd=("/usr/local/bin/ollama", "serve"))


def http_body(path: Path) -> str:
    return path.read_text().partition("\n\n")[2] or path.read_text().partition("\r\n\r\n")[2]


def read_sample(folder: str, stem: str, shows: dict[str, str]) -> Engine:
    """A recorded second: ``/api/ps``, the runners' argv and ``/slots``, ``/api/show``."""
    reader, site = Ollama(), Site("ollama", 11434, pid=100)
    base = RECORDINGS / folder
    ps = (base / f"{stem}.ps.json").read_text()
    answers = {f"{site.key} ps": answer("ps", ps)}
    processes = [SERVER]
    for path in sorted(base.glob(f"{stem}.runner-*.cmdline")):
        pid = int(path.name.split("runner-")[1].split(".")[0])
        processes.append(watched(path, pid, 100))
        slots = path.with_name(path.name.replace("cmdline", "slots.http"))
        status = int(slots.read_text().split()[1])
        name = f"{site.key} slots {pid}"
        answers[name] = Answer(name, 1.0, 1.0, status, http_body(slots), None)
    for model in json.loads(ps)["models"]:
        if model["name"] in shows:
            name = f"{site.key} show {model['name']} {model['digest']}"
            answers[name] = answer(name, (RECORDINGS / "show" / shows[model["name"]]).read_text())
    return reader.read(site, processes, answers, None, 1.0)


SHOWS = {
    "gemma3:270m": "gemma3_270m.verbose-false.json",
    "tiny-llama:latest": "tiny-llama.verbose-false.json",
    "tiny-gemma3:latest": "tiny-gemma3.verbose-false.json",
}


def test_three_models_each_have_their_own_runner() -> None:
    engine = read_sample("cpu-defaults", "07-three-models-3s", SHOWS)
    assert len(engine.models) == 3
    runners = {model.name: model.runner for model in engine.models}
    assert all(runner is not None for runner in runners.values())
    assert len({runner.pid for runner in runners.values() if runner}) == 3
    for model in engine.models:
        assert model.runner is not None
        assert model.runner.context_total_tokens == model.context_tokens


def test_without_show_three_models_are_not_guessed() -> None:
    engine = read_sample("cpu-defaults", "07-three-models-3s", {})
    named = [model for model in engine.models if not model.loading]
    assert [model.runner for model in named] == [None, None, None]
    assert all(model.unknown["runner"] == "not-visible" for model in named)


def test_parallel_slots_of_q8_0() -> None:
    engine = read_sample("cpu-parallel2-q8_0", "02-busy-1", SHOWS)
    (model,) = engine.models
    runner = model.runner
    assert runner is not None
    assert (runner.context_total_tokens, runner.parallel_slots) == (16384, 2)
    assert (runner.cache_type_k, runner.cache_type_v) == ("q8_0", "q8_0")
    assert (runner.batch, runner.ubatch, runner.flash_attention) == (1024, 1024, "on")
    assert runner.unified is False
    assert runner.context_shift is True
    assert runner.slots is not None
    assert [slot.context_tokens for slot in runner.slots] == [8192, 8192]


def test_a_loading_model_is_shown_as_such() -> None:
    engine = read_sample("cpu-defaults", "02-loading", SHOWS)
    (model,) = engine.models
    assert model.loading
    assert model.size_bytes is None
    assert model.unknown["size_bytes"] == "not-read"
    assert model.runner is not None
    assert model.runner.unknown["slots"] == "engine-refused", "503 while it loads"


def test_a_slot_that_never_worked_holds_nothing() -> None:
    engine = read_sample("cpu-defaults", "03-idle", SHOWS)
    (model,) = engine.models
    assert model.runner is not None
    assert model.runner.slots is not None
    (slot,) = model.runner.slots
    assert (slot.used_tokens is not None, slot.processing) == (True, False)
