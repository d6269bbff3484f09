"""Ollama: found by ``ollama serve`` or a configured URL, read by its HTTP API.

Facts of its source (0.33.0): ``/api/ps`` lists loaded models only (``server/sched.go``) and
may block for seconds while one unloads; every request writes a line to its log, so it is
asked rarely and at once when its runners change. Since 0.30 every GGUF model has a
``llama-server`` child whose argv holds the settings and whose ``/slots`` holds the KV use.
``/api/show`` names the blob (``FROM`` in its modelfile), which joins a model to its runner.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from gpumon.collectors.engines.answers import explain_answer, json_of
from gpumon.collectors.engines.contract import Answers, Site
from gpumon.collectors.engines.llama_argv import read_runner
from gpumon.collectors.engines.llama_slots import read_slots
from gpumon.collectors.payload import Request
from gpumon.collectors.wire import Answer, WatchedProcess
from gpumon.context import compare_slots
from gpumon.inventory import EngineConfig
from gpumon.snapshot import Engine, EngineState, Model, Runner

__all__ = ["Ollama", "parse_time"]

_PORT = 11434
_PS_EVERY_S = 15.0
_SLOTS_EVERY_S = 2.0
_RARELY_S = 300.0
_SHOW_EVERY_S = 3600.0
#: ``/api/ps`` waits up to 5 s for VRAM to be given back, plus 1 s for an MLX model.
_PS_TIMEOUT_S = 8.0
#: Silent for longer than this, "busy" is no longer believed.
_BUSY_AT_MOST_S = 60.0
_SHOW_CAP_BYTES = 524288
_MOST_MODELS = 256
_FRACTION = re.compile(r"(\.\d{6})\d+")
_FROM = re.compile(r"^FROM\s+(\S.*)$", re.MULTILINE)


def parse_time(text: object) -> float | None:
    """Epoch seconds of an RFC 3339 time with any number of decimals; None where it is none."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(_FRACTION.sub(r"\1", text.replace("Z", "+00:00")))
        if moment.tzinfo is None:
            return None
        return moment.timestamp()
    except (ValueError, OverflowError):
        return None


class Ollama:
    """Reads Ollama servers."""

    kind = "ollama"
    watch = (r"^ollama$", r"\bollama(\.exe)? (serve|runner)\b", r"^llama-server$")
    env_names = (r"OLLAMA_[A-Z_]+", r"CUDA_VISIBLE_DEVICES", r"ROCR_VISIBLE_DEVICES")

    def find(
        self, processes: Sequence[WatchedProcess], configured: Sequence[EngineConfig]
    ) -> list[Site]:
        """Servers by their process, and those the config names that no process stands for."""
        sites: dict[int, Site] = {}
        for process in processes:
            if _is_server(process):
                port = _server_port(process)
                sites.setdefault(port, Site(self.kind, port, pid=process.pid))
        for config in configured:
            if config.kind != self.kind:
                continue
            parts = urlsplit(config.url)
            port = parts.port or {"https": 443}.get(parts.scheme, 80)
            host = parts.hostname or "127.0.0.1"
            known = sites.get(port)
            pid = known.pid if known else None
            sites[port] = Site(self.kind, port, host=host, pid=pid, url=config.url)
        return list(sites.values())

    def requests(
        self, site: Site, processes: Sequence[WatchedProcess], answers: Answers
    ) -> list[Request]:
        """The server's API at its own pace, each runner's slots only while it works."""
        key, port, host = site.key, site.port, site.host
        asked = [
            Request(f"{key} version", port, "/api/version", host=host, every_s=_RARELY_S),
            Request(
                f"{key} ps",
                port,
                "/api/ps",
                host=host,
                every_s=_PS_EVERY_S,
                timeout_s=_PS_TIMEOUT_S,
            ),
            Request(
                f"{key} tags",
                port,
                "/api/tags",
                host=host,
                every_s=_RARELY_S,
                cap_bytes=_SHOW_CAP_BYTES,
                on_change=False,
            ),
        ]
        asked.extend(
            Request(
                f"{key} show {row['name']} {row.get('digest')}",
                port,
                "/api/show",
                host=host,
                method="POST",
                body=json.dumps({"model": row["name"]}),
                every_s=_SHOW_EVERY_S,
                cap_bytes=_SHOW_CAP_BYTES,
                on_change=False,
            )
            for row in _listed(answers.get(f"{key} ps"))
        )
        for process in _runners(site, processes):
            runner = read_runner(process)
            if runner.port is not None and not _is_old(process):
                asked.append(
                    Request(
                        f"{key} slots {process.pid}",
                        runner.port,
                        "/slots",
                        every_s=_SLOTS_EVERY_S,
                        busy_pid=process.pid,
                        on_change=False,
                    )
                )
        return asked

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
        runners = [
            _read_slots_of(site, process, answers, before) for process in _runners(site, processes)
        ]
        ps = answers.get(f"{site.key} ps")
        engine = Engine(
            self.kind,
            port=site.port,
            pid=site.pid,
            url=site.url or f"http://{site.host}:{site.port}",
            version=_version(answers.get(f"{site.key} version"))
            or (before.version if before else None),
            settings=_settings(server, processes, site),
            installed=_installed(answers.get(f"{site.key} tags")),
            answered_monotonic_s=before.answered_monotonic_s if before else None,
        )
        if ps is None:
            return engine
        document = json_of(ps)
        rows = document.get("models") if isinstance(document, dict) else None
        if isinstance(rows, list):
            models = [_read_model(row) for row in _listed(ps)]
            blobs = _blobs(site, answers)
            remote = _remote_names(answers.get(f"{site.key} tags"))
            joined = _join(models, runners, blobs, remote)
            return replace(
                engine,
                state=EngineState.UP,
                models=joined,
                answered_monotonic_s=ps.monotonic_s,
            )
        state, detail = explain_answer(ps)
        silent_s = monotonic_s - (engine.answered_monotonic_s or monotonic_s)
        if state is EngineState.BUSY and silent_s > _BUSY_AT_MOST_S:
            state, detail = EngineState.DOWN, f"no answer for {silent_s:.0f} s"
        kept: tuple[Model, ...] = ()
        if state is EngineState.BUSY and before is not None:
            kept = _renew_runners(before.models, runners)
        return replace(engine, state=state, detail=detail, models=kept)


def _basename(process: WatchedProcess) -> str:
    return _name_of(process.cmd[0]) if process.cmd else process.comm


def _name_of(path: str | None) -> str:
    """The last part; a sample needs it a dozen times, and pathlib's takes 10 us."""
    return (path or "").rpartition("/")[2]


def _is_server(process: WatchedProcess) -> bool:
    return _basename(process) in ("ollama", "ollama.exe") and "serve" in process.cmd[1:3]


def _is_old(process: WatchedProcess) -> bool:
    """A runner of Ollama's own engine (0.24 and before), or of MLX: no ``/slots``."""
    return _basename(process) == "ollama"


def _server_port(process: WatchedProcess) -> int:
    stated = process.env.get("OLLAMA_HOST", "").strip().strip("\"'")
    if stated:
        parts = urlsplit(stated if "://" in stated else f"//{stated}")
        try:
            if parts.port:
                return parts.port
        except ValueError:
            pass
        if "://" in stated:
            return {"https": 443, "http": 80}.get(parts.scheme, _PORT)
    ports = process.ports or ()
    return ports[0] if ports and _PORT not in ports else _PORT


def _runners(site: Site, processes: Sequence[WatchedProcess]) -> list[WatchedProcess]:
    """The model processes of a server: its children, by argv."""
    found = []
    for process in processes:
        name = _basename(process)
        is_runner = (name == "llama-server" and "--model" in process.cmd) or (
            name == "ollama" and "runner" in process.cmd[1:2]
        )
        if is_runner and site.pid is not None and _descends(process, site.pid):
            found.append(process)
    return found


def _descends(process: WatchedProcess, pid: int) -> bool:
    return process.ppid == pid or any(one.pid == pid for one in process.ancestors)


def _read_slots_of(
    site: Site, process: WatchedProcess, answers: Answers, before: Engine | None
) -> Runner:
    runner = read_runner(process)
    if _is_old(process):
        return replace(runner, unknown={**runner.unknown, "slots": "engine-too-old"})
    answer = answers.get(f"{site.key} slots {process.pid}")
    slots = read_slots(json_of(answer))
    if answer is None or slots is None:
        reason = "not-read" if answer is None else "engine-silent"
        if answer is not None and answer.status is not None:
            reason = "engine-refused" if answer.status != 200 else "engine-nonsense"
        return replace(runner, unknown={**runner.unknown, "slots": reason})
    old = _same_runner(before, runner)
    if old is not None and old.slots_monotonic_s == answer.monotonic_s:
        return replace(runner, slots=old.slots, slots_monotonic_s=old.slots_monotonic_s)
    elapsed_s = None
    if old is not None and old.slots_monotonic_s is not None:
        elapsed_s = answer.monotonic_s - old.slots_monotonic_s
    compared = compare_slots(old.slots if old else None, slots, elapsed_s)
    return replace(runner, slots=compared, slots_monotonic_s=answer.monotonic_s)


def _same_runner(before: Engine | None, runner: Runner) -> Runner | None:
    for model in before.models if before else ():
        old = model.runner
        if old is not None and (old.pid, old.start_ticks) == (runner.pid, runner.start_ticks):
            return old
    return None


def _version(answer: Answer | None) -> str | None:
    document = json_of(answer)
    version = document.get("version") if isinstance(document, dict) else None
    return version if isinstance(version, str) else None


def _settings(
    server: WatchedProcess | None, processes: Sequence[WatchedProcess], site: Site
) -> Mapping[str, str]:
    """``OLLAMA_*`` of the server, or of a runner, which inherits them."""
    sources = [server] if server else []
    sources.extend(_runners(site, processes))
    for process in sources:
        found = {name: text for name, text in process.env.items() if name.startswith("OLLAMA_")}
        if found:
            return found
    return {}


def _listed(answer: Answer | None) -> list[dict[str, Any]]:
    document = json_of(answer)
    rows = document.get("models") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        return []
    return [row for row in rows[:_MOST_MODELS] if isinstance(row, dict) and _text(row.get("name"))]


def _installed(answer: Answer | None) -> tuple[str, ...] | None:
    if json_of(answer) is None:
        return None
    return tuple(row["name"] for row in _listed(answer))


def _remote_names(answer: Answer | None) -> frozenset[str]:
    return frozenset(
        row["name"] for row in _listed(answer) if row.get("remote_host") or row.get("remote_model")
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _bytes(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**60:
        return None
    return value


def _read_model(row: Mapping[str, Any]) -> Model:
    stated = row.get("details")
    details: Mapping[str, Any] = stated if isinstance(stated, dict) else {}
    size, vram = _bytes(row.get("size")), _bytes(row.get("size_vram"))
    unknown: dict[str, str] = {}
    if size == 0:
        # Seen where llama-server's buffer lines could not be matched: it means unknown.
        size = vram = None
        unknown = {"size_bytes": "engine-zero", "vram_bytes": "engine-zero"}
    for name, value in (("size_bytes", size), ("vram_bytes", vram)):
        if value is None:
            unknown.setdefault(name, "engine-nonsense")
    context = _bytes(row.get("context_length"))
    if context is None:
        unknown["context_tokens"] = "engine-too-old"
    expires_at = parse_time(row.get("expires_at"))
    if expires_at is None:
        unknown["expires_at"] = "engine-nonsense"
    return Model(
        name=row["name"],
        digest=_text(row.get("digest")),
        family=_text(details.get("family")),
        parameter_size=_text(details.get("parameter_size")),
        quantization=_text(details.get("quantization_level")),
        size_bytes=size,
        vram_bytes=vram,
        context_tokens=context,
        expires_at=expires_at,
        unknown=unknown,
    )


def _blobs(site: Site, answers: Answers) -> dict[str, str]:
    """Model name -> file name of its weights, from ``/api/show``."""
    found: dict[str, str] = {}
    start = f"{site.key} show "
    for name, answer in answers.items():
        document = json_of(answer) if name.startswith(start) else None
        modelfile = document.get("modelfile") if isinstance(document, dict) else None
        match = _FROM.search(modelfile) if isinstance(modelfile, str) else None
        if match:
            model = name[len(start) :].rpartition(" ")[0]
            found[model] = _name_of(match[1].strip().strip('"'))
    return found


def _join(
    models: Sequence[Model],
    runners: Sequence[Runner],
    blobs: Mapping[str, str],
    remote: frozenset[str],
) -> tuple[Model, ...]:
    """Give each model its runner, and each runner without a model a model that loads."""
    free = list(runners)
    joined: list[Model] = []
    for model in models:
        runner = _runner_of(model, free, blobs, alone=len(models) == len(runners) == 1)
        if runner is not None:
            free.remove(runner)
        unknown = dict(model.unknown)
        if runner is None:
            unknown["runner"] = "not-visible"
        joined.append(replace(model, runner=runner, remote=model.name in remote, unknown=unknown))
    names = {blob: name for name, blob in blobs.items()}
    for runner in free:
        blob = _name_of(runner.model_path)
        name = names.get(blob) or (f"{blob[:19]}..." if blob else f"runner {runner.pid}")
        unknown = dict.fromkeys(
            ("size_bytes", "vram_bytes", "context_tokens", "expires_at"), "not-read"
        )
        joined.append(Model(name, loading=True, runner=runner, unknown=unknown))
    return tuple(joined)


def _runner_of(
    model: Model, runners: Sequence[Runner], blobs: Mapping[str, str], *, alone: bool
) -> Runner | None:
    blob = blobs.get(model.name)
    if blob is not None:
        same = [one for one in runners if _name_of(one.model_path) == blob]
        fitting = [one for one in same if _context_fits(model, one)]
        return next(iter(fitting or same), None)
    # Not told which blob it is: one model and one runner of its context are a pair.
    if alone and _context_fits(model, runners[0]):
        return runners[0]
    return None


def _context_fits(model: Model, runner: Runner) -> bool:
    total, slots = runner.context_total_tokens, runner.parallel_slots or 1
    return None in (total, model.context_tokens) or total == slots * (model.context_tokens or 0)


def _renew_runners(models: Sequence[Model], runners: Sequence[Runner]) -> tuple[Model, ...]:
    """The models of before with their runners as of now; without those that are gone."""
    now = {(runner.pid, runner.start_ticks): runner for runner in runners}
    kept = []
    for model in models:
        if model.runner is None:
            kept.append(model)
        elif (runner := now.get((model.runner.pid, model.runner.start_ticks))) is not None:
            kept.append(replace(model, runner=runner))
    return tuple(kept)
