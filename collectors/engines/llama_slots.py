"""llama-server's ``/slots`` (``tools/server/server-context.cpp``, b9453 to b11549)."""

from __future__ import annotations

from typing import Any

from gpumon.snapshot import Slot

__all__ = ["read_slots"]

_MOST_TOKENS = 2**40


def read_slots(document: Any) -> tuple[Slot, ...] | None:
    """The slots of an answer; None where it is none.

    ``n_prompt_tokens`` is what the slot holds now, prompt and answer together. A slot that
    never worked has no such key and holds nothing.
    """
    if not isinstance(document, list):
        return None
    slots = []
    for row in document[:1024]:
        if not isinstance(row, dict) or _whole(row.get("id")) is None:
            return None
        following = row.get("next_token")
        # An array of one in every build seen, though the documentation shows an object.
        token = following[0] if isinstance(following, list) and following else following
        decoded = _whole(token.get("n_decoded")) if isinstance(token, dict) else None
        worked = "id_task" in row or "n_prompt_tokens" in row
        busy = row.get("is_processing")
        slots.append(
            Slot(
                id=int(row["id"]),
                context_tokens=_whole(row.get("n_ctx")),
                used_tokens=_whole(row.get("n_prompt_tokens")) if worked else 0,
                decoded_tokens=decoded,
                prompt_tokens_processed=_whole(row.get("n_prompt_tokens_processed")),
                processing=busy if isinstance(busy, bool) else None,
                task=_whole(row.get("id_task")),
            )
        )
    return tuple(slots)


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_TOKENS:
        return None
    return value
