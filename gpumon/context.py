"""What happened in a slot between two readings of ``/slots``. Pure.

llama-server reports per slot the tokens it holds (``n_prompt_tokens``: prompt and answer so
far), the tokens decoded for the present task and how much of the prompt was processed. It
tells nobody that it forgot half of a context: that shows only here, as tokens held that
fall, or grow less than tokens were decoded, within one task. A prompt that Ollama cut
before the runner saw it looks like any other of that length, so it can't be told here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpumon.snapshot import Slot, SlotActivity

__all__ = ["compare_slots", "forget_slots"]

#: A token may be counted in one figure and not yet in the other.
_SLACK_TOKENS = 2
#: An idle slot is not read, so a task may have begun at any time since the reading before.
#: Only where that is this near does what a new task has done make a rate.
_NEW_TASK_WITHIN_S = 5.0


def compare_slots(
    before: Sequence[Slot] | None, after: Sequence[Slot], elapsed_s: float | None
) -> tuple[Slot, ...]:
    """``after`` with activity, rates and context shifts filled in.

    ``elapsed_s`` is the host's monotonic time between the two readings; None or 0 for a
    first reading. Rates are means over that time. A counter that went backwards is a new
    task or a restart and gives no rate. Shifts are carried on from ``before``.
    """
    known: Mapping[int, Slot] = {slot.id: slot for slot in before or ()}
    return tuple(_compare(known.get(slot.id), slot, elapsed_s) for slot in after)


def forget_slots(slots: Sequence[Slot]) -> tuple[Slot, ...]:
    """The slots without what changes by the second: what is left when they stop answering."""
    return tuple(
        Slot(
            slot.id,
            slot.context_tokens,
            task=slot.task,
            context_shifts=slot.context_shifts,
        )
        for slot in slots
    )


def _compare(before: Slot | None, slot: Slot, elapsed_s: float | None) -> Slot:
    activity = _tell_activity(slot)
    decode: float | None = None
    prefill: float | None = None
    if activity is SlotActivity.IDLE:
        decode = prefill = 0.0
    elif slot.processing and elapsed_s is not None and elapsed_s > 0:
        start = _counted_from(before, slot, elapsed_s)
        if start is not None:
            decode = _rate(start.decoded_tokens, slot.decoded_tokens, elapsed_s)
            prefill = _rate(start.prompt_tokens_processed, slot.prompt_tokens_processed, elapsed_s)
    return replace(
        slot,
        activity=activity,
        decode_tokens_per_s=decode,
        prefill_tokens_per_s=prefill,
        context_shifts=(before.context_shifts if before is not None else 0)
        + _count_shifts(before, slot),
    )


def _tell_activity(slot: Slot) -> SlotActivity | None:
    if slot.processing is None:
        return None
    if not slot.processing:
        return SlotActivity.IDLE
    return SlotActivity.DECODE if slot.decoded_tokens else SlotActivity.PREFILL


def _counted_from(before: Slot | None, slot: Slot, elapsed_s: float) -> Slot | None:
    """The reading that the counters have grown from; None where that is not known."""
    if before is None or before.processing is None:
        return None
    if before.processing and before.task == slot.task:
        return before
    if elapsed_s > _NEW_TASK_WITHIN_S:
        return None
    return Slot(slot.id, decoded_tokens=0, prompt_tokens_processed=0)


def _rate(before: int | None, after: int | None, elapsed_s: float) -> float | None:
    if before is None or after is None or after < before:
        return None
    return (after - before) / elapsed_s


def _count_shifts(before: Slot | None, slot: Slot) -> int:
    """Context shifts since ``before``: at least so many.

    One shift forgets half of what is not kept, which is a little less than half of the
    slot; so two between two readings are told from one.
    """
    lost = _lost_tokens(before, slot)
    if lost is None or lost <= _SLACK_TOKENS:
        return 0
    half = (slot.context_tokens or 0) / 2
    return max(1, round(lost / half)) if half else 1


def _lost_tokens(before: Slot | None, slot: Slot) -> int | None:
    """Tokens decoded in this task that the slot should hold and does not; None = unknown."""
    held, decoded = slot.used_tokens, slot.decoded_tokens
    if held is None:
        return None
    same_task = before is not None and before.task is not None and before.task == slot.task
    if not slot.processing:
        return _lost_at_the_end(before, slot) if same_task and before is not None else None
    if decoded is None:
        return None
    if not same_task or before is None or before.decoded_tokens == 0:
        # Prompt and answer together can't be less than the answer.
        return decoded - held
    if before.used_tokens is None or before.decoded_tokens is None or not before.processing:
        return None
    grown = decoded - before.decoded_tokens
    return grown - (held - before.used_tokens) if grown > 0 else None


def _lost_at_the_end(before: Slot, slot: Slot) -> int | None:
    """For a task that ended since: its counter is gone, but a slot only grows by itself.

    A slot that holds less than half was emptied for another reason.
    """
    held, half = slot.used_tokens, (slot.context_tokens or 0) // 2
    if not before.processing or not before.decoded_tokens or before.used_tokens is None:
        return None
    if held is None or not half or held < half - _SLACK_TOKENS:
        return None
    return before.used_tokens - held
