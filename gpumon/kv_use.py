"""How full a model's KV cache is and how fast it generates, over all its slots. Pure.

Each is None where any part of it is unknown: a sum over some of the slots would look
like a smaller model.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpumon.snapshot import Model, SlotActivity

__all__ = [
    "busy_slots",
    "capacity_tokens",
    "context_shifts",
    "decode_tokens_per_s",
    "prefill_tokens_per_s",
    "used_tokens",
]


def _sum(parts: Iterable[float | None]) -> float | None:
    total = 0.0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def used_tokens(model: Model) -> int | None:
    """Tokens now held in the KV cache."""
    if model.runner is None or model.runner.slots is None:
        return None
    used = _sum(slot.used_tokens for slot in model.runner.slots)
    return None if used is None else int(used)


def capacity_tokens(model: Model) -> int | None:
    """Tokens the KV cache is reserved for: ``-c``, else what the slots report.

    Slots of a unified cache each report the whole of it.
    """
    runner = model.runner
    if runner is None:
        return None
    if runner.context_total_tokens is not None:
        return runner.context_total_tokens
    sizes = [slot.context_tokens for slot in runner.slots or ()]
    known = [size for size in sizes if size is not None]
    if not known or len(known) != len(sizes):
        return None
    return max(known) if runner.unified else sum(known)


def decode_tokens_per_s(model: Model) -> float | None:
    """Tokens generated a second; a slot known to be idle generates 0."""
    if model.runner is None or model.runner.slots is None:
        return None
    return _sum(slot.decode_tokens_per_s for slot in model.runner.slots)


def prefill_tokens_per_s(model: Model) -> float | None:
    """Prompt tokens processed a second."""
    if model.runner is None or model.runner.slots is None:
        return None
    return _sum(slot.prefill_tokens_per_s for slot in model.runner.slots)


def busy_slots(model: Model) -> int | None:
    """Slots that work now."""
    if model.runner is None or model.runner.slots is None:
        return None
    states = [slot.activity for slot in model.runner.slots]
    if None in states:
        return None
    return sum(state is not SlotActivity.IDLE for state in states)


def context_shifts(model: Model) -> int | None:
    """Context shifts seen since gpumon watches."""
    if model.runner is None or model.runner.slots is None:
        return None
    return sum(slot.context_shifts for slot in model.runner.slots)
