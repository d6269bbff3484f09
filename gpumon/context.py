"""What happened in a slot between two readings of ``/slots``. Pure.

llama-server reports per slot the tokens it holds (``n_prompt_tokens``: prompt and answer so
far), the tokens decoded for the present task and how much of the prompt was processed. It
tells nobody that it forgot half of a context: that shows only here, as tokens held that
fall, or grow less than tokens were decoded, within one task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpumon.snapshot import Slot, SlotActivity

__all__ = ["compare_slots"]

#: A token may be counted in one figure and not yet in the other.
_SLACK_TOKENS = 2


def compare_slots(
    before: Sequence[Slot] | None, after: Sequence[Slot], elapsed_s: float | None
) -> tuple[Slot, ...]:
    """``after`` with activity, rates and context shifts filled in.

    ``elapsed_s`` is the host's monotonic time between the two readings; None or 0 for a
    first reading. A counter that went backwards is a new task or a restart and gives no
    rate. Shifts are carried on from ``before``.
    """
    known: Mapping[int, Slot] = {slot.id: slot for slot in before or ()}
    return tuple(_compare(known.get(slot.id), slot, elapsed_s) for slot in after)


def _compare(before: Slot | None, slot: Slot, elapsed_s: float | None) -> Slot:
    activity = _tell_activity(slot)
    shifts = before.context_shifts if before is not None else 0
    decode: float | None = None
    prefill: float | None = None
    if activity is SlotActivity.IDLE:
        decode = prefill = 0.0
    if before is not None and elapsed_s and elapsed_s > 0 and slot.processing:
        same_task = before.task == slot.task and before.processing
        start = before if same_task else Slot(slot.id)
        decoded = _grown(start.decoded_tokens, slot.decoded_tokens)
        processed = _grown(start.prompt_tokens_processed, slot.prompt_tokens_processed)
        if decoded is not None:
            decode = decoded / elapsed_s
        if processed is not None:
            prefill = processed / elapsed_s
    if before is not None and _has_shifted(before, slot):
        shifts += 1
    return replace(
        slot,
        activity=activity,
        decode_tokens_per_s=decode,
        prefill_tokens_per_s=prefill,
        context_shifts=shifts,
    )


def _tell_activity(slot: Slot) -> SlotActivity | None:
    if slot.processing is None:
        return None
    if not slot.processing:
        return SlotActivity.IDLE
    return SlotActivity.DECODE if slot.decoded_tokens else SlotActivity.PREFILL


def _grown(before: int | None, after: int | None) -> int | None:
    """Tokens more than before; a task seen for the first time began at 0."""
    if after is None:
        return None
    grown = after - (before or 0)
    return grown if grown >= 0 else None


def _has_shifted(before: Slot, after: Slot) -> bool:
    if not (before.processing and after.processing) or before.task != after.task:
        return False
    numbers = (
        before.used_tokens,
        after.used_tokens,
        before.decoded_tokens,
        after.decoded_tokens,
    )
    held_before, held_after, decoded_before, decoded_after = numbers
    if (
        held_before is None
        or held_after is None
        or decoded_before is None
        or decoded_after is None
        or not decoded_before
    ):
        return False
    decoded = decoded_after - decoded_before
    return decoded > 0 and held_after - held_before < decoded - _SLACK_TOKENS
