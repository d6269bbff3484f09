"""Which process serves which model. By evidence, never by guess. Pure.

The weights' file that ``/api/show`` names is in the process's command line: that settles
it. Where the engine does not tell it, a single model and a single process are a pair, and
so are two that agree in their context when no other does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gpumon.collectors.engines.ollama_processes import file_name
from gpumon.snapshot import Model, Runner

__all__ = ["ModelKey", "disclaim", "join_runners", "key_of", "models_without_claim"]

#: Name and digest: a name that was pulled anew may be loaded twice.
ModelKey = tuple[str, str | None]
_CLAIMS = ("size_bytes", "vram_bytes", "context_tokens", "expires_at")


def key_of(model: Model) -> ModelKey:
    """What tells a model from the others of its engine."""
    return model.name, model.digest


def join_runners(
    models: Sequence[Model],
    runners: Sequence[Runner],
    blobs: Mapping[ModelKey, str],
    loading: Collection[int],
    before: Sequence[Model] = (),
) -> tuple[Model, ...]:
    """Each model with its runner, then the runners whose model is not listed (yet).

    ``blobs`` maps a model to the file of its weights, "" where the engine was asked and did
    not tell; it may also hold models that are not loaded now. ``loading`` are the pids that
    answer that they load. ``before`` are the models of the sample before: a process whose
    model is no longer listed unloads it.
    """
    pairs = _pair(models, runners, blobs)
    joined: list[Model] = []
    undecided = False
    for position, model in enumerate(models):
        runner = pairs.get(position)
        unknown = dict(model.unknown)
        if runner is None and not model.remote:
            unknown["runner"] = _why_alone(model, runners, blobs)
            undecided = undecided or unknown["runner"] != "no-process"
        joined.append(replace(model, runner=runner, unknown=unknown))
    taken = {runner.pid for runner in pairs.values()}
    free = [one for one in runners if one.pid not in taken]
    gone = {
        (old.runner.pid, old.runner.start_ticks): old
        for old in before
        if old.runner is not None and old.digest is not None
    }
    listed = {key_of(model) for model in models}
    for runner in tuple(free):
        old = gone.get((runner.pid, runner.start_ticks))
        if old is not None and key_of(old) not in listed:
            free.remove(runner)
            # Its time is up whatever the engine said last: it shows as "Stopping...".
            joined.append(replace(old, runner=runner, expires_at=0.0))
    if undecided:
        # One of them may serve a listed model and must not be shown a second time.
        free = [one for one in free if one.pid in loading]
    return (*joined, *models_without_claim(free, blobs, "not-read", loading=True))


def models_without_claim(
    runners: Sequence[Runner], blobs: Mapping[ModelKey, str], reason: str, *, loading: bool
) -> tuple[Model, ...]:
    """A model for each process of which the engine says nothing (yet)."""
    unknown = {**dict.fromkeys(_CLAIMS, reason), "cut_prompts": "engine-lacks"}
    return tuple(
        Model(_name_of(runner, blobs), loading=loading, runner=runner, unknown=unknown)
        for runner in runners
    )


def disclaim(model: Model, reason: str) -> Model:
    """The model without what its engine claimed, for its engine says nothing now."""
    unknown = {**model.unknown, **dict.fromkeys(_CLAIMS, reason)}
    return replace(
        model,
        size_bytes=None,
        vram_bytes=None,
        context_tokens=None,
        expires_at=None,
        unknown=unknown,
    )


def _name_of(runner: Runner, blobs: Mapping[ModelKey, str]) -> str:
    """The only name its file is known by, else the start of the file's own."""
    blob = file_name(runner.model_path)
    names = {name for (name, _), known in blobs.items() if known and known == blob}
    if len(names) == 1:
        return names.pop()
    return f"{blob[:19]}..." if len(blob) > 22 else blob or f"runner {runner.pid}"


def _pair(
    models: Sequence[Model], runners: Sequence[Runner], blobs: Mapping[ModelKey, str]
) -> dict[int, Runner]:
    pairs: dict[int, Runner] = {}
    free = list(runners)
    local = [position for position, model in enumerate(models) if not model.remote]
    for position in local:
        same = [one for one in free if _serves(one, models[position], blobs)]
        fitting = [one for one in same if _may_fit(models[position], one)]
        found = fitting or same
        if len(found) == 1:
            pairs[position] = found[0]
            free.remove(found[0])
    left = [p for p in local if p not in pairs and not blobs.get(key_of(models[p]))]
    if len(local) == len(runners) == len(left) == len(free) == 1:
        return {left[0]: free[0]} if _may_fit(models[left[0]], free[0]) else {}
    for position in left:
        if key_of(models[position]) not in blobs:
            continue  # the engine may yet tell
        fitting = [one for one in free if _fits(models[position], one)]
        rivals = [p for p in left if fitting and _fits(models[p], fitting[0])]
        if len(fitting) == 1 and rivals == [position]:
            pairs[position] = fitting[0]
    return pairs


def _serves(runner: Runner, model: Model, blobs: Mapping[ModelKey, str]) -> bool:
    path = runner.model_path
    if path is None:
        return False
    if model.name in (path, f"{path}:latest"):
        return True  # an MLX runner is given the model's name
    blob = blobs.get(key_of(model))
    return bool(blob) and file_name(path) == blob


def _may_fit(model: Model, runner: Runner) -> bool:
    """False where both say their context and it is not the same."""
    return (
        runner.context_total_tokens is None or model.context_tokens is None or _fits(model, runner)
    )


def _fits(model: Model, runner: Runner) -> bool:
    """-c is the context of one request times the slots."""
    total, each = runner.context_total_tokens, model.context_tokens
    return total is not None and each is not None and total == each * (runner.parallel_slots or 1)


def _why_alone(model: Model, runners: Sequence[Runner], blobs: Mapping[ModelKey, str]) -> str:
    blob = blobs.get(key_of(model))
    if blob:
        several = any(file_name(one.model_path) == blob for one in runners)
        return "ambiguous" if several else "no-process"
    if not runners:
        return "no-process"
    return "not-read" if blob is None else "ambiguous"
