"""Reading an HTTP answer of an engine: its JSON, or in words why there is none."""

from __future__ import annotations

from typing import Any

from gpumon.collectors.wire import Answer
from gpumon.snapshot import EngineState

__all__ = ["explain_answer", "json_of"]


def json_of(answer: Answer | None) -> Any:
    """The JSON of a good answer; None where there is none or it can't be read."""
    return None if answer is None or answer.status != 200 else answer.document


def explain_answer(answer: Answer) -> tuple[EngineState, str]:
    """What an answer that is not good says of the server, and a line for a person."""
    word, _, rest = (answer.error or "failed").partition(" ")
    if word.rstrip(":") == "timeout":
        return EngineState.BUSY, f"no answer within {answer.elapsed_ms / 1000:.0f} s"
    if answer.status is None:
        if word.rstrip(":") == "refused":
            return EngineState.DOWN, "nothing listens on its port"
        return EngineState.DOWN, f"{word} {rest}".strip()
    if answer.status in (401, 403):
        return EngineState.LOCKED, f"HTTP {answer.status}: it wants a key; name one by key_env"
    if answer.status == 503:
        return EngineState.LOADING, "HTTP 503: it is loading or overloaded"
    if answer.error:
        return EngineState.CONFUSED, f"HTTP {answer.status}, then cut off: {answer.error}"
    if answer.truncated:
        return EngineState.CONFUSED, f"HTTP {answer.status}: an answer too long to read"
    if answer.status != 200:
        return EngineState.CONFUSED, f"HTTP {answer.status}: not the API that was expected"
    start = (answer.body or "").lstrip()[:1]
    kind = "HTML" if start == "<" else "no whole JSON"
    if answer.document is not None:
        kind = "other JSON"
    return EngineState.CONFUSED, f"HTTP 200, but {kind}: not the API that was expected"
