"""Context shifts, rates and activity, from ``/slots`` as a real runner answered."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpumon.collectors.engines.llama_slots import read_slots
from gpumon.context import compare_slots, forget_slots
from gpumon.snapshot import Slot, SlotActivity

RECORDINGS = Path(__file__).parents[1] / "recordings" / "ollama" / "slots-over-time"


def follow(name: str, every: int = 1) -> list[Slot]:
    """The first slot over a recording, as gpumon would see it at that pace."""
    samples: list[dict[str, Any]] = json.loads((RECORDINGS / name).read_text())["samples"][::every]
    seen: list[Slot] = []
    before: tuple[Slot, ...] | None = None
    for number, sample in enumerate(samples):
        slots = read_slots(sample["slots"])
        assert slots is not None
        elapsed = sample["t"] - samples[number - 1]["t"] if number else None
        before = compare_slots(before, slots, elapsed)
        seen.append(before[0])
    return seen


@pytest.mark.parametrize("every", [1, 2, 4, 7, 11])
def test_both_shifts_of_a_recording_are_seen_at_any_pace(every: int) -> None:
    seen = follow("shift-gemma3-256.json", every)
    assert max(slot.context_shifts for slot in seen) == 2
    assert all(a.context_shifts <= b.context_shifts for a, b in pairwise(seen))


def test_two_shifts_between_two_readings_are_two() -> None:
    seen = follow("shift-gemma3-256.json", 21)
    assert [slot.context_shifts for slot in seen] == [0, 2]


@pytest.mark.parametrize("name", ["prefill-gemma3-4096", "prompt-too-long-2048"])
@pytest.mark.parametrize("every", [1, 3, 10])
def test_no_shift_is_invented(name: str, every: int) -> None:
    assert {slot.context_shifts for slot in follow(f"{name}.json", every)} == {0}


def test_the_decode_rate_is_the_recorded_one() -> None:
    rates = [
        slot.decode_tokens_per_s
        for slot in follow("shift-gemma3-256.json")
        if slot.activity is SlotActivity.DECODE
    ]
    known = [rate for rate in rates if rate is not None]
    # The engine itself counted 500 tokens in 6.887 s = 72.6 tok/s.
    assert 0.9 * 72.6 < sum(known) / len(known) < 1.1 * 72.6


def test_a_prefill_is_no_decode_and_no_shift() -> None:
    seen = follow("prefill-gemma3-4096.json")
    assert seen[-1].context_shifts == 0
    prefills = [slot for slot in seen if slot.activity is SlotActivity.PREFILL]
    assert len(prefills) > 30
    assert all(not slot.decode_tokens_per_s for slot in prefills)
    assert sum(slot.prefill_tokens_per_s or 0 for slot in prefills) > 0


def test_an_idle_slot_decodes_nothing_and_keeps_its_tokens() -> None:
    last = follow("shift-gemma3-256.json")[-1]
    assert (last.activity, last.decode_tokens_per_s, last.used_tokens) == (
        SlotActivity.IDLE,
        0.0,
        255,
    )


def slot(task: int, used: int, decoded: int, processing: bool = True) -> Slot:
    return Slot(0, 256, used, decoded, 6, processing, task)


def test_a_first_reading_has_no_rate() -> None:
    (first,) = compare_slots(None, (slot(1, 10, 5),), None)
    assert first.decode_tokens_per_s is None
    assert first.activity is SlotActivity.DECODE


def test_a_new_task_counts_from_0() -> None:
    before = compare_slots(None, (slot(1, 200, 150),), None)
    (after,) = compare_slots(before, (slot(2, 30, 20),), 2.0)
    assert after.decode_tokens_per_s == 10.0
    assert after.context_shifts == 0, "another task with fewer tokens is no shift"


def test_a_restart_gives_no_negative_rate() -> None:
    before = compare_slots(None, (slot(1, 200, 150),), None)
    (after,) = compare_slots(before, (slot(1, 12, 2),), 2.0)
    assert after.decode_tokens_per_s is None
    assert after.context_shifts == 0


def test_a_shift_hidden_by_regrowth_is_seen() -> None:
    before = compare_slots(None, (slot(1, 200, 150),), None)
    (after,) = compare_slots(before, (slot(1, 220, 270),), 2.0)
    assert after.context_shifts == 1


def test_a_task_that_began_after_a_long_idle_time_has_no_rate_yet() -> None:
    # An idle slot is not read: the reading before may be an hour old.
    idle = compare_slots(None, (slot(1, 200, 0, processing=False),), None)
    (first,) = compare_slots(idle, (slot(2, 40, 30),), 3600.0)
    assert (first.decode_tokens_per_s, first.activity) == (None, SlotActivity.DECODE)
    (second,) = compare_slots((first,), (slot(2, 120, 110),), 2.0)
    assert second.decode_tokens_per_s == 40.0


def test_a_shift_in_a_task_seen_for_the_first_time_is_seen() -> None:
    # Prompt and answer together hold less than the answer alone.
    (first,) = compare_slots(None, (slot(1, 150, 270),), None)
    assert first.context_shifts == 1
    (second,) = compare_slots((first,), (slot(1, 190, 310),), 2.0)
    assert second.context_shifts == 1, "not counted again"


def test_a_shift_just_before_the_end_is_seen() -> None:
    before = compare_slots(None, (slot(1, 250, 240),), None)
    (after,) = compare_slots(before, (slot(1, 140, 0, processing=False),), 2.0)
    assert (after.context_shifts, after.decode_tokens_per_s) == (1, 0.0)


def test_a_slot_that_was_emptied_did_not_shift() -> None:
    before = compare_slots(None, (slot(1, 250, 240),), None)
    for task, used in ((1, 0), (2, 140), (2, 0)):
        (after,) = compare_slots(before, (slot(task, used, 0, processing=False),), 2.0)
        assert after.context_shifts == 0


def test_counters_that_stand_still_are_a_rate_of_0() -> None:
    before = compare_slots(None, (slot(1, 200, 150),), None)
    (after,) = compare_slots(before, (slot(1, 200, 150),), 2.0)
    assert after.decode_tokens_per_s == 0.0


@pytest.mark.parametrize("elapsed_s", [None, 0.0, -1.0])
def test_without_time_there_is_no_rate(elapsed_s: float | None) -> None:
    before = compare_slots(None, (slot(1, 200, 150),), None)
    (after,) = compare_slots(before, (slot(1, 210, 160),), elapsed_s)
    assert after.decode_tokens_per_s is None


def test_each_slot_is_followed_by_its_own_id() -> None:
    first = (slot(1, 100, 10), replace(slot(2, 50, 5), id=1))
    before = compare_slots(None, first, None)
    second = (replace(slot(2, 70, 25), id=1), slot(1, 60, 90), replace(slot(9, 5, 4), id=2))
    after = compare_slots(before, second, 2.0)
    assert [(one.id, one.context_shifts) for one in after] == [(1, 0), (0, 1), (2, 0)]
    assert [one.decode_tokens_per_s for one in after] == [10.0, 40.0, None]


def test_forgotten_slots_keep_what_stays_true() -> None:
    before = compare_slots(None, (slot(1, 150, 270),), None)
    (kept,) = forget_slots(before)
    assert (kept.id, kept.context_tokens, kept.context_shifts) == (0, 256, 1)
    assert (kept.used_tokens, kept.processing, kept.activity) == (None, None, None)
    (after,) = compare_slots((kept,), (slot(1, 160, 280),), 2.0)
    assert (after.context_shifts, after.decode_tokens_per_s) == (1, None)


def test_what_is_not_told_is_unknown() -> None:
    (after,) = compare_slots(None, (Slot(0),), 2.0)
    assert after.activity is None
    assert after.decode_tokens_per_s is None
