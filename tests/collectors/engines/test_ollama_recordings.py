"""gpumon's texts against what a real Ollama 0.33.0-rc2 printed at the recorded second.

``GPUMON_OLLAMA_MATRIX`` may name another file of the form of ``gpu-split/matrix.jsonl``.
"""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpumon.collectors.engines.ollama_models import parse_time
from gpumon.placement import processor_text, shown_processor, size_text, until_text
from gpumon.snapshot import Engine, EngineState, Model
from tests.collectors.engines.recorded_ollama import (
    RECORDINGS,
    SHOWS,
    Second,
    read_ps,
    tell,
)

SAMPLES = sorted(RECORDINGS.glob("*/*.ps.json"))
MATRIX = Path(os.environ.get("GPUMON_OLLAMA_MATRIX") or RECORDINGS / "gpu-split" / "matrix.jsonl")
#: What the program's spinner draws before the table: escape sequences and Braille.
_SPINNER = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\u2800-\u28ff]|\r")
_H, _D = 3600.0, 86400.0
_UNITS_S = {
    "second": 1.0, "minute": 60.0, "hour": _H, "day": _D, "week": 7 * _D, "month": 30 * _D,
    "year": 365 * _D,
}  # fmt: skip
#: Nobody ran Ollama before its first release, nor in another century.
_FIRST, _LAST = (datetime(year, 7, 1, tzinfo=UTC).timestamp() for year in (2023, 2100))


def columns(line: str) -> list[str]:
    """Ollama separates its columns by four blanks; a text holds single ones."""
    plain = _SPINNER.sub("", line).strip()
    return [part for part in re.split(r"\s{2,}", plain) if part]


def assert_shown(row: dict[str, Any], model: Model, shown: list[str]) -> None:
    """Everything but UNTIL, which depends on the moment."""
    name, digest, size, processor, *rest = shown
    assert name == model.name == row["name"]
    assert digest == (model.digest or "")[:12]
    assert size == size_text(row["size"])
    assert processor == processor_text(row["size"], row["size_vram"])
    if "context_length" in row:
        assert rest[0] == str(model.context_tokens)
    else:
        assert (model.context_tokens, model.unknown["context_tokens"]) == (None, "engine-too-old")
    if row["size"] == 0:
        assert (model.size_bytes, model.vram_bytes) == (None, None)
        assert model.unknown["size_bytes"] == "engine-zero"
        assert shown_processor(model) == "n/a"
    else:
        assert (model.size_bytes, model.vram_bytes) == (row["size"], row["size_vram"])
        assert shown_processor(model) == processor


@pytest.mark.parametrize("path", SAMPLES, ids=[str(p.relative_to(RECORDINGS)) for p in SAMPLES])
def test_a_recorded_ps(path: Path) -> None:
    stem = path.name.removesuffix(".ps.json")
    now = parse_time(path.with_name(f"{stem}.date").read_text().strip())
    assert now is not None
    engine = read_ps(path.read_text())
    assert engine.state is EngineState.UP
    raw = json.loads(path.read_text())["models"]
    printed = path.with_name(f"{stem}.ps.txt").read_text().splitlines()
    heading, *lines = [cells for line in printed if (cells := columns(line))]
    assert heading == ["NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "UNTIL"]
    assert len(lines) == len(raw) == len(engine.models)
    for shown, model, row in zip(lines, engine.models, raw, strict=True):
        assert len(shown) == 6
        assert_shown(row, model, shown)
        assert model.expires_at is not None
        # The program asked, and printed, within a second after the JSON was taken.
        assert shown[5] in {until_text(model.expires_at, now + late) for late in (0.0, 0.5, 1.0)}


# --- the matrix --------------------------------------------------------------------------


def read_matrix() -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in MATRIX.read_text().splitlines() if line.strip()]
    # A model that could not be loaded has neither.
    return [row for row in rows if row.get("ps") and row.get("line")]


def plausible_moments(text: str, expires_at: float) -> list[float]:
    """Moments at which such a text may have been printed; the line does not tell when it was.

    Within each unit one moment near every edge and two between.
    """
    if text == "Stopping...":
        left = [-1.0]
    elif text == "Forever":
        left = [expires_at - _FIRST, expires_at - _LAST, 22 * 365 * _D]
    else:
        words = text.removesuffix(" from now").split()
        unit_s = _UNITS_S.get(words[-1].rstrip("s"), 1.0)
        count = {"Less": 0.0, "About": 1.0}.get(words[0])
        count = float(words[0]) if count is None else count
        left = [(count + part) * unit_s for part in (-0.4, 0.001, 0.4, 0.6, 0.99)]
    return [expires_at - one for one in left if _FIRST <= expires_at - one < _LAST]


def is_plausible(text: str, expires_at: float) -> bool:
    return any(text == until_text(expires_at, at) for at in plausible_moments(text, expires_at))


@pytest.mark.parametrize("row", read_matrix(), ids=lambda row: " ".join(columns(row["line"])[:5]))
def test_a_line_of_the_matrix(row: dict[str, Any]) -> None:
    (model,) = read_ps(json.dumps({"models": [row["ps"]]})).models
    shown = columns(row["line"])
    assert_shown(row["ps"], model, shown)
    assert model.expires_at is not None
    assert is_plausible(shown[-1], model.expires_at)
    moment = next((parse_time(row[key]) for key in ("date", "at", "now") if key in row), None)
    if moment is not None:
        late = (0.0, 0.5, 1.0)
        assert shown[-1] in {until_text(model.expires_at, moment + part) for part in late}


EXPIRES = 1796104755.66881474


@pytest.mark.parametrize(
    ("text", "expires_at", "is_one"),
    [
        ("9 minutes from now", EXPIRES, True),
        ("About a minute from now", EXPIRES, True),
        ("About an hour from now", EXPIRES, True),
        ("Less than a second from now", EXPIRES, True),
        ("1 second from now", EXPIRES, True),
        ("47 hours from now", EXPIRES, True),
        ("13 days from now", EXPIRES, True),
        ("2 weeks from now", EXPIRES, True),
        ("24 months from now", EXPIRES, True),
        ("2 years from now", EXPIRES, True),
        ("Stopping...", EXPIRES, True),
        ("Forever", 11019476065.5, True),
        ("Forever", EXPIRES, False),
        ("9 minutes from now", 11019476065.5, False),
        ("61 minutes from now", EXPIRES, False),
        ("1 minutes from now", EXPIRES, False),
        ("49 hours from now", EXPIRES, False),
        ("9 minute from now", EXPIRES, False),
        ("9 minutes ago", EXPIRES, False),
        ("Stopping", EXPIRES, False),
    ],
)
def test_what_is_plausible(text: str, expires_at: float, is_one: bool) -> None:
    try:
        assert is_plausible(text, expires_at) is is_one
    except ValueError:
        assert not is_one


def test_there_is_something_to_compare() -> None:
    assert len(SAMPLES) > 20
    assert read_matrix()


# --- a model joined to its runner --------------------------------------------------------


def runners(engine: Engine) -> dict[str, int | None]:
    return {model.name: model.runner and model.runner.pid for model in engine.models}


def test_three_models_each_have_their_own_runner() -> None:
    engine = tell(Second("cpu-defaults", "07-three-models-3s"))
    assert len(engine.models) == 3
    assert len(set(runners(engine).values()) - {None}) == 3
    for model in engine.models:
        assert model.runner is not None
        assert model.runner.context_total_tokens == model.context_tokens
        assert not model.loading


def test_without_show_the_context_tells_them_apart() -> None:
    second = Second("cpu-defaults", "07-three-models-3s")
    assert runners(tell(second, {})) == runners(tell(second, SHOWS))


def test_before_show_has_answered_three_models_are_not_guessed() -> None:
    engine = tell(Second("cpu-defaults", "07-three-models-3s"), rounds=2)
    assert [model.name for model in engine.models if model.loading] == []
    assert set(runners(engine).values()) == {None}
    assert {model.unknown["runner"] for model in engine.models} == {"not-read"}


def test_every_recorded_model_has_the_runner_of_its_blob() -> None:
    joined = 0
    for path in SAMPLES:
        stem = path.name.removesuffix(".ps.json")
        second = Second(path.parent.name, stem)
        engine = tell(second)
        listed = [model for model in engine.models if not model.loading]
        assert [model.name for model in listed] == [
            row["name"] for row in json.loads(second.ps)["models"]
        ]
        for model in listed:
            assert model.runner is not None
            shown = json.loads((RECORDINGS / "show" / SHOWS[model.name]).read_text())["modelfile"]
            assert f"\nFROM {model.runner.model_path}\n" in shown
            joined += 1
        assert len(engine.models) == len(second.runners)
    assert joined > 20


def test_parallel_slots_of_q8_0() -> None:
    engine = tell(Second("cpu-parallel2-q8_0", "02-busy-1"))
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
    assert [slot.used_tokens for slot in runner.slots] == [50, 50]
    assert engine.settings["OLLAMA_KEEP_ALIVE"] == "-1"
    assert engine.settings["OLLAMA_NUM_PARALLEL"] == "2"
    assert engine.version == "0.33.0-rc2"


def test_the_layers_asked_for_are_in_the_argv() -> None:
    layers = []
    for stem in ("02-auto", "03-split-9", "04-all"):
        (model,) = tell(Second("gpu-split", stem)).models
        assert model.runner is not None
        layers.append(model.runner.gpu_layers)
    assert layers == [None, 9, 99]


def test_a_loading_model_is_shown_as_such() -> None:
    engine = tell(Second("cpu-defaults", "02-loading"))
    (model,) = engine.models
    assert model.loading
    assert model.name == "sha256-a5fd3b62230a..."
    assert model.size_bytes is None
    assert model.unknown["size_bytes"] == "not-read"
    assert model.runner is not None
    assert model.runner.unknown["slots"] == "engine-refused", "503 while it loads"


def test_a_slot_that_never_worked_holds_nothing() -> None:
    engine = tell(Second("cpu-defaults", "06-two-models-one-forever"))
    used = {
        model.name: [slot.used_tokens for slot in model.runner.slots]
        for model in engine.models
        if model.runner is not None and model.runner.slots is not None
    }
    assert len(used) == 2
    assert all(tokens is not None for slots in used.values() for tokens in slots)


def test_no_recorded_second_claims_that_no_prompt_was_cut() -> None:
    for model in tell(Second("cpu-defaults", "05-after")).models:
        assert (model.cut_prompts, model.unknown["cut_prompts"]) == (None, "engine-lacks")
