"""What Ollama's HTTP API says of its models (``api/types.go``, ``server/routes.go``, 0.33)."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpumon.collectors.engines.answers import json_of
from gpumon.collectors.engines.ollama_processes import file_name
from gpumon.collectors.wire import Answer
from gpumon.collectors.wire_values import read_text
from gpumon.snapshot import Model

__all__ = [
    "installed_names",
    "keep_show",
    "keep_start",
    "keep_tags",
    "listed_keys",
    "loaded_models",
    "parse_time",
    "remote_names",
    "shown_blob",
    "version_of",
]

_MOST_MODELS = 256
_MOST_INSTALLED = 4096
_NAME_CHARACTERS = 1024
_START_CHARACTERS = 256
_FRACTION = re.compile(r"(\.\d{6})\d+")
_FROM = re.compile(r"^FROM\s+(\S.*)$", re.MULTILINE)
#: the same within a JSON text that was cut off before its end
_FROM_IN_JSON = re.compile(r'"modelfile":"(?:[^"\\]|\\.)*?\\nFROM (?P<path>(?:[^"\\]|\\[^n])+)\\n')


@functools.lru_cache(maxsize=1024)
def _parse_rfc3339(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(_FRACTION.sub(r"\1", text.replace("Z", "+00:00")))
        return None if moment.tzinfo is None else moment.timestamp()
    except (ValueError, OverflowError):
        return None


def parse_time(text: object) -> float | None:
    """Epoch seconds of an RFC 3339 time with any number of decimals; None where it is none."""
    return _parse_rfc3339(text) if isinstance(text, str) and len(text) < 64 else None


def _text(value: object) -> str | None:
    return read_text(value, _NAME_CHARACTERS) or None


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**60:
        return None
    return value


def _rows(document: Any, most: int) -> list[dict[str, Any]] | None:
    rows = document.get("models", ()) if isinstance(document, dict) else ()
    if rows is None:
        return []  # Go's way to write an empty list
    if not isinstance(rows, list):
        return None
    return [row for row in rows[:most] if isinstance(row, dict) and _text(row.get("name"))]


def loaded_models(answer: Answer | None) -> list[Model] | None:
    """The models of an ``/api/ps``, each once; None where it is no such answer."""
    rows = _rows(json_of(answer), _MOST_MODELS)
    if rows is None:
        return None
    models: dict[tuple[str, str | None], Model] = {}
    for row in rows:
        model = _read_model(row)
        models.setdefault((model.name, model.digest), model)
    return list(models.values())


def listed_keys(answer: Answer | None) -> list[tuple[str, str | None]]:
    """Name and digest of every model in an ``/api/ps``."""
    rows = _rows(json_of(answer), _MOST_MODELS) or ()
    keys = ((_text(row["name"]) or "", _text(row.get("digest"))) for row in rows)
    return list(dict.fromkeys(keys))


def _read_model(row: Mapping[str, Any]) -> Model:
    stated = row.get("details")
    details: Mapping[str, Any] = stated if isinstance(stated, dict) else {}
    size, vram = _whole(row.get("size")), _whole(row.get("size_vram"))
    # Whether a prompt was cut stands in Ollama's log only.
    unknown = {"cut_prompts": "engine-lacks"}
    if size == 0:
        # Seen where llama-server's buffer lines could not be matched: it means unknown.
        size = vram = None
        unknown |= {"size_bytes": "engine-zero", "vram_bytes": "engine-zero"}
    context = _whole(row.get("context_length"))
    expires_at = parse_time(row.get("expires_at"))
    for name, value, reason in (
        ("size_bytes", size, "engine-nonsense"),
        ("vram_bytes", vram, "engine-nonsense"),
        ("context_tokens", context, "engine-too-old"),
        ("expires_at", expires_at, "engine-nonsense"),
    ):
        if value is None:
            unknown.setdefault(name, reason)
    return Model(
        name=_text(row["name"]) or "",
        digest=_text(row.get("digest")),
        family=_text(details.get("family")),
        parameter_size=_text(details.get("parameter_size")),
        quantization=_text(details.get("quantization_level")),
        size_bytes=size,
        vram_bytes=vram,
        context_tokens=context,
        expires_at=expires_at,
        remote=bool(row.get("remote_host") or row.get("remote_model")),
        unknown=unknown,
    )


def version_of(answer: Answer | None) -> str | None:
    """The version of an ``/api/version``."""
    document = json_of(answer)
    return _text(document.get("version")) if isinstance(document, dict) else None


def keep_start(answer: Answer) -> Answer:
    """An answer that could not be read, as far as it tells what it is."""
    return replace(answer, body=answer.body[:_START_CHARACTERS]) if answer.body else answer


def keep_tags(answer: Answer) -> Answer:
    """``/api/tags`` as names only."""
    rows = _rows(json_of(answer), _MOST_INSTALLED)
    if rows is None:
        return keep_start(answer)
    names = [_text(row["name"]) for row in rows]
    remote = [_text(r["name"]) for r in rows if r.get("remote_host") or r.get("remote_model")]
    return replace(answer, body=json.dumps({"installed": names, "remote": remote}))


def installed_names(answer: Answer | None) -> tuple[str, ...] | None:
    """Names of the models on disk, of a kept ``/api/tags``; None where it was no good."""
    document = json_of(answer)
    names = document.get("installed") if isinstance(document, dict) else None
    return tuple(names) if isinstance(names, list) else None


def remote_names(answer: Answer | None) -> frozenset[str]:
    """Those of them that run in a cloud."""
    document = json_of(answer)
    names = document.get("remote") if isinstance(document, dict) else None
    return frozenset(names) if isinstance(names, list) else frozenset()


def keep_show(answer: Answer) -> Answer:
    """``/api/show`` as the file name of the model's weights only, the ``FROM`` of its modelfile.

    The modelfile stands near the start, so that it is found also in an answer that was
    longer than the cap.
    """
    path: str | None = None
    if answer.truncated and answer.body is not None and answer.status == 200:
        match = _FROM_IN_JSON.search(answer.body)
        path = match["path"] if match else None
    else:
        document = json_of(answer)
        modelfile = document.get("modelfile") if isinstance(document, dict) else None
        match = _FROM.search(modelfile) if isinstance(modelfile, str) else None
        path = match[1] if match else None
    if path is None:
        return keep_start(answer)
    blob = file_name(path.strip().strip('"'))
    return replace(answer, body=json.dumps({"blob": blob}), truncated=False, error=None)


def shown_blob(answer: Answer | None) -> str:
    """The file name of a kept ``/api/show``; "" where it does not tell."""
    document = json_of(answer)
    blob = document.get("blob") if isinstance(document, dict) else None
    return blob if isinstance(blob, str) else ""
