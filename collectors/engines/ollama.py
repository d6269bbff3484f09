"""Ollama: found by ``ollama serve`` or a configured URL, read by its HTTP API.

Facts of its source (0.33.0): ``/api/ps`` lists loaded models only (``server/sched.go``) and
may block for seconds while one unloads; every request writes a line to its log, so it is
asked rarely and at once when its runners change. Since 0.30 every GGUF model has a
``llama-server`` child whose argv holds the settings and whose ``/slots`` holds the KV use.
``/api/show`` names the blob (``FROM`` in its modelfile), which joins a model to its runner;
it is asked by the probe, once per digest, in its short form: that works also where the
server forbids forwarding. The verbose form is for ``ollama_client``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gpumon.collectors.engines.answers import explain_answer, json_of
from gpumon.collectors.engines.contract import Answers, Site, configured_site
from gpumon.collectors.engines.llama_argv import read_port
from gpumon.collectors.engines.llama_slots import read_slots
from gpumon.collectors.engines.model_join import (
    ModelKey,
    disclaim,
    join_runners,
    key_of,
    models_without_claim,
)
from gpumon.collectors.engines.ollama_models import (
    installed_names,
    keep_show,
    keep_start,
    keep_tags,
    listed_keys,
    loaded_models,
    remote_names,
    shown_blob,
    version_of,
)
from gpumon.collectors.engines.ollama_processes import (
    has_slots,
    is_server,
    read_model_process,
    runners_of,
    server_address,
    settings_of,
)
from gpumon.collectors.payload import Request
from gpumon.collectors.wire import Answer, WatchedProcess
from gpumon.context import compare_slots, forget_slots
from gpumon.inventory import EngineConfig
from gpumon.snapshot import Engine, EngineState, Model, Runner

__all__ = ["Ollama"]

_PS_EVERY_S = 15.0
#: While it does not answer, or a runner that is ready is not listed yet.
_PS_SOON_S = 3.0
#: For so long after a runner became ready its model should be listed.
_LISTED_WITHIN_S = 6.0
_SLOTS_EVERY_S = 2.0
_RARELY_S = 300.0
_SHOW_EVERY_S = 3600.0
_AGAIN_S = 30.0
#: ``/api/ps`` waits up to 5 s for VRAM to be given back, plus 1 s for an MLX model.
_PS_TIMEOUT_S = 8.0
#: Silent for longer than this, "busy" is no longer believed.
_BUSY_AT_MOST_S = 60.0
#: ``/slots`` waits for the batch being computed; its numbers hold for so long.
_SLOTS_HOLD_S = 15.0
_LONG_CAP_BYTES = 524288
_MOST_SHOWN = 32
_LONGEST_SHOWN_NAME = 512
_LOAD_AT_MOST_S = 300.0
#: Linux's USER_HZ, on every architecture that runs Ollama
_TICKS_PER_S = 100
#: why a server's claims are unknown
_REASONS = {EngineState.DOWN: "engine-silent", EngineState.LOCKED: "engine-refused"}
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1", "0.0.0.0", "::"})  # noqa: S104


class Ollama:
    """Reads Ollama servers."""

    kind = "ollama"
    watch = (
        r"^ollama(_llama_server)?$",
        r"\bollama(\.exe)? (serve|start|runner)\b",
        r"^llama-server$",
    )
    env_names = (r"OLLAMA_[A-Z_]+", r"CUDA_VISIBLE_DEVICES", r"ROCR_VISIBLE_DEVICES")

    def find(
        self, processes: Sequence[WatchedProcess], configured: Sequence[EngineConfig]
    ) -> list[Site]:
        """Servers by their process, and those the config names that no process stands for."""
        sites: dict[tuple[str, int], Site] = {}
        for process in processes:
            if is_server(process):
                host, port = server_address(process)
                sites.setdefault((host, port), Site(self.kind, port, host=host, pid=process.pid))
        for config in configured:
            if config.kind != self.kind:
                continue
            named = configured_site(config)
            same = next((key for key in sites if _is_same_place(key, named)), None)
            if same is not None:
                named = replace(named, pid=sites.pop(same).pid)
            sites[(named.host, named.port)] = named
        return list(sites.values())

    def requests(
        self, site: Site, processes: Sequence[WatchedProcess], answers: Answers
    ) -> list[Request]:
        """The server's API at its own pace, each runner's slots only while it works."""
        if site.problem is not None:
            return []
        runners = runners_of(site.pid, processes)
        ps = answers.get(f"{site.key} ps")
        asked = [
            Request(
                f"{site.key} ps",
                site.port,
                f"{site.prefix}/api/ps",
                host=site.host,
                every_s=_ps_pace(site, ps, runners, answers),
                timeout_s=_PS_TIMEOUT_S,
                bearer=site.bearer,
            )
        ]
        # A server that was started anew may be another version.
        life = _life_of(site, processes)
        asked.append(_ask_once(site, answers, f"version {life}", "/api/version", _RARELY_S))
        asked.append(_ask_once(site, answers, f"tags {life}", "/api/tags", _RARELY_S))
        for name, digest in listed_keys(ps)[:_MOST_SHOWN]:
            if len(name) <= _LONGEST_SHOWN_NAME:
                what, body = f"show {name} {digest}", json.dumps({"model": name})
                asked.append(_ask_once(site, answers, what, "/api/show", _SHOW_EVERY_S, body=body))
        for process in runners:
            port = read_port(process)
            if port is not None and has_slots(process):
                asked.append(
                    Request(
                        f"{site.key} {_slots_name(process)}",
                        port,
                        "/slots",
                        every_s=_SLOTS_EVERY_S,
                        busy_pid=process.pid,
                        on_change=False,
                    )
                )
        return asked

    def keep(self, what: str, answer: Answer) -> Answer:
        """Lists as names, a model's description as the name of its file."""
        if what.startswith("tags "):
            return keep_tags(answer)
        if what.startswith("show "):
            return keep_show(answer)
        return keep_start(answer) if answer.document is None else answer

    def is_lasting(self, what: str) -> bool:
        """What a digest holds: it names a model that is loaded again while it still loads."""
        return what.startswith("show ")

    def read(
        self,
        site: Site,
        processes: Sequence[WatchedProcess],
        answers: Answers,
        before: Engine | None,
        monotonic_s: float,
    ) -> Engine:
        """The server and its models as of the newest answers."""
        server = next((one for one in processes if one.pid == site.pid), None)
        children = runners_of(site.pid, processes)
        runners = [_read_runner(site, one, answers, before, monotonic_s) for one in children]
        settings, why_no_settings = settings_of(server, children)
        life = _life_of(site, processes)
        tags = answers.get(f"{site.key} tags {life}")
        installed = installed_names(tags)
        unknown: dict[str, str] = {}
        if why_no_settings is not None:
            unknown["settings"] = why_no_settings
        if installed is None:
            unknown["installed"] = "not-read" if tags is None else "engine-nonsense"
        if site.pid is None:
            unknown["pid"] = "no-process"
        engine = Engine(
            self.kind,
            port=site.port,
            pid=site.pid,
            url=site.url or f"http://{_bracketed(site.host)}:{site.port}",
            version=version_of(answers.get(f"{site.key} version {life}"))
            or (before.version if before is not None and before.pid == site.pid else None),
            settings=settings,
            installed=installed,
            answered_monotonic_s=before.answered_monotonic_s if before is not None else None,
            unknown=unknown,
        )
        ps = answers.get(f"{site.key} ps")
        if site.problem is not None:
            return replace(engine, state=EngineState.CONFUSED, detail=site.problem)
        if ps is None:
            return engine
        listed = loaded_models(ps)
        blobs = _blobs(site, answers, listed or ())
        loading = _pids_loading(site, children, answers)
        old = before.models if before is not None else ()
        if listed is None:
            failing = _read_failure(engine, site, ps, before, monotonic_s)
            models = _keep_models(failing.state, old, runners, blobs, loading)
            return replace(failing, models=models)
        remote = remote_names(tags)
        models = tuple(replace(one, remote=one.remote or one.name in remote) for one in listed)
        return replace(
            engine,
            state=EngineState.UP,
            models=join_runners(models, runners, blobs, loading, old),
            answered_monotonic_s=ps.monotonic_s,
        )


def _is_same_place(place: tuple[str, int], named: Site) -> bool:
    """True where a config's URL is that of a server that was found."""
    host, port = place
    if port != named.port or named.prefix or named.problem is not None:
        return False
    return host == named.host or (host in _LOOPBACK and named.host in _LOOPBACK)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _life_of(site: Site, processes: Sequence[WatchedProcess]) -> str:
    """Names one life of the server's process."""
    for process in processes:
        if process.pid == site.pid:
            return f"{process.pid}.{process.start_ticks}"
    return "0"


def _slots_name(process: WatchedProcess) -> str:
    return f"slots {process.pid}.{process.start_ticks}"


def _ask_once(
    site: Site, answers: Answers, what: str, path: str, every_s: float, *, body: str | None = None
) -> Request:
    """What hardly changes: asked at once and then seldom.

    After a bad answer it is asked again when the server gives good ones.
    """
    said = answers.get(f"{site.key} {what}")
    is_bad = said is not None and said.status != 200
    return Request(
        f"{site.key} {what}",
        site.port,
        f"{site.prefix}{path}",
        host=site.host,
        method="GET" if body is None else "POST",
        body=body,
        every_s=_AGAIN_S if is_bad else every_s,
        cap_bytes=_LONG_CAP_BYTES,
        gate=f"{site.key} ps" if is_bad else None,
        bearer=site.bearer,
        on_change=False,
    )


def _ps_pace(
    site: Site, ps: Answer | None, runners: Sequence[WatchedProcess], answers: Answers
) -> float:
    """Seconds between two questions: fewer while an answer is about to change."""
    if ps is None:
        return _PS_EVERY_S
    if ps.status is None:
        is_slow = (ps.error or "").startswith("timeout")
        return _PS_EVERY_S if is_slow else _PS_SOON_S
    listed = listed_keys(ps)
    if len(listed) < len(runners):
        for process in runners:
            slots = answers.get(f"{site.key} {_slots_name(process)}")
            if slots is not None and slots.status == 200:
                if ps.monotonic_s < slots.monotonic_s + _LISTED_WITHIN_S:
                    return _PS_SOON_S
            elif not has_slots(process) and _is_young(process, ps.monotonic_s):
                return _PS_SOON_S
    return _PS_EVERY_S


def _is_young(process: WatchedProcess, monotonic_s: float) -> bool:
    """True within Ollama's own time limit for a load, 5 minutes (OLLAMA_LOAD_TIMEOUT)."""
    if process.start_ticks is None:
        return False
    return 0 <= monotonic_s - process.start_ticks / _TICKS_PER_S < _LOAD_AT_MOST_S


def _read_runner(
    site: Site,
    process: WatchedProcess,
    answers: Answers,
    before: Engine | None,
    monotonic_s: float,
) -> Runner:
    runner = read_model_process(process)
    if not has_slots(process):
        return runner
    answer = answers.get(f"{site.key} {_slots_name(process)}")
    slots = read_slots(json_of(answer))
    old = _same_runner(before, runner)
    if answer is not None and slots is not None:
        elapsed_s = None
        if old is not None and old.slots_monotonic_s is not None:
            elapsed_s = answer.monotonic_s - old.slots_monotonic_s
            if elapsed_s == 0:
                return replace(runner, slots=old.slots, slots_monotonic_s=old.slots_monotonic_s)
        compared = compare_slots(old.slots if old is not None else None, slots, elapsed_s)
        return replace(runner, slots=compared, slots_monotonic_s=answer.monotonic_s)
    unknown = {**runner.unknown, "slots": _why_no_slots(answer)}
    if old is None or old.slots is None or old.slots_monotonic_s is None:
        return replace(runner, unknown=unknown)
    held = old.slots
    if monotonic_s - old.slots_monotonic_s > _SLOTS_HOLD_S:
        held = forget_slots(held)
    return replace(runner, slots=held, slots_monotonic_s=old.slots_monotonic_s, unknown=unknown)


def _why_no_slots(answer: Answer | None) -> str:
    if answer is None:
        return "not-read"
    if answer.status is None:
        return "engine-silent"
    return "engine-refused" if answer.status != 200 else "engine-nonsense"


def _same_runner(before: Engine | None, runner: Runner) -> Runner | None:
    for model in before.models if before is not None else ():
        if model.runner is not None and _is_same_process(model.runner, runner):
            return model.runner
    return None


def _is_same_process(one: Runner, other: Runner) -> bool:
    return (one.pid, one.start_ticks) == (other.pid, other.start_ticks)


def _pids_loading(
    site: Site, runners: Sequence[WatchedProcess], answers: Answers
) -> frozenset[int]:
    """Those that answer everything with 503, as a llama-server does until it has loaded."""
    return frozenset(
        process.pid
        for process in runners
        if (said := answers.get(f"{site.key} {_slots_name(process)}")) is not None
        and said.status == 503
    )


def _blobs(site: Site, answers: Answers, listed: Sequence[Model]) -> dict[ModelKey, str]:
    """The file of each model's weights, as far as ``/api/show`` told; also of earlier models.

    It is asked by name. Where a name is loaded in two versions, which of them the answer
    means is not known.
    """
    start = f"{site.key} show "
    found: dict[ModelKey, str] = {}
    for name, answer in answers.items():
        if name.startswith(start):
            shown, _, digest = name[len(start) :].rpartition(" ")
            found[(shown, None if digest == "None" else digest)] = shown_blob(answer)
    names = [model.name for model in listed]
    if len(set(names)) < len(names):
        for model in listed:
            if names.count(model.name) > 1 and key_of(model) in found:
                found[key_of(model)] = ""
    return found


def _read_failure(
    engine: Engine, site: Site, ps: Answer, before: Engine | None, monotonic_s: float
) -> Engine:
    """The engine's state where ``/api/ps`` gave no good answer."""
    state, detail = explain_answer(ps)
    since = before.failing_since_monotonic_s if before is not None else None
    if since is None:
        since = ps.monotonic_s - ps.elapsed_ms / 1000
    if state is EngineState.BUSY:
        last_s = since if engine.answered_monotonic_s is None else engine.answered_monotonic_s
        silent_s = monotonic_s - min(since, last_s)
        if silent_s > _BUSY_AT_MOST_S:
            state, detail = EngineState.DOWN, f"no answer for {silent_s:.0f} s"
    elif state is EngineState.DOWN and site.pid is not None:
        detail = (
            f"{site.host}:{site.port}: {detail}, though its process {site.pid} runs; "
            "name its url in the config if it listens elsewhere"
        )
    elif state is EngineState.LOADING:
        # Ollama itself answers so when too many requests wait, but not to this one.
        state, detail = EngineState.CONFUSED, "HTTP 503: a proxy before it finds it unready"
    elif state is EngineState.LOCKED and site.key_env is not None:
        is_set = "holds a key that it refuses" if site.bearer else "is not set"
        detail = f"HTTP {ps.status}: it wants a key, and {site.key_env} {is_set}"
    return replace(engine, state=state, detail=detail, failing_since_monotonic_s=since)


def _keep_models(
    state: EngineState,
    before: Sequence[Model],
    runners: Sequence[Runner],
    blobs: Mapping[ModelKey, str],
    loading: Collection[int],
) -> tuple[Model, ...]:
    """What is known of the models while the server does not tell.

    One that is merely busy is believed to have what it had, as far as the processes are
    still there. Otherwise only the processes are known, not what the server would claim.
    """
    models: list[Model] = []
    left = list(runners)
    for model in before:
        same = model.runner and next((r for r in left if _is_same_process(r, model.runner)), None)
        if same is not None:
            left.remove(same)
            models.append(replace(model, runner=same))
        elif model.runner is None and state is EngineState.BUSY:
            models.append(model)
    if state is not EngineState.BUSY:
        reason = _REASONS.get(state, "engine-nonsense")
        models = [disclaim(model, reason) for model in models]
    for runner in left:
        is_loading = runner.pid in loading
        models.extend(models_without_claim([runner], blobs, "not-read", loading=is_loading))
    return tuple(models)
