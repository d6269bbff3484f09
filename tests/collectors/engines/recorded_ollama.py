"""Recorded seconds of a real Ollama 0.33.0-rc2, as the probe would have sent them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gpumon.collectors.engines.ollama import Ollama
from gpumon.collectors.engines.tracking import EngineTracker
from gpumon.collectors.payload import Request
from gpumon.collectors.wire import Answer, WatchedProcess
from gpumon.snapshot import Engine

RECORDINGS = Path(__file__).parents[2] / "recordings" / "ollama"
SITE = "ollama:127.0.0.1:11434"
SERVER = WatchedProcess(
    pid=100, start_ticks=1000, comm="ollama", cmd=("/usr/local/bin/ollama", "serve")
)
SHOWS = {
    "gemma3:270m": "gemma3_270m.verbose-false.json",
    "tiny-llama:latest": "tiny-llama.verbose-false.json",
    "tiny-gemma3:latest": "tiny-gemma3.verbose-false.json",
}


def good(name: str, body: str, at_s: float = 1.0) -> Answer:
    return Answer(f"{SITE} {name}", at_s, 1.0, 200, body, None)


def read_ps(body: str) -> Engine:
    """The engine that an ``/api/ps`` alone tells of."""
    tracker = EngineTracker((Ollama(),))
    tracker.update((SERVER,), (), 0.5)
    ((engine,), _) = tracker.update((SERVER,), (good("ps", body),), 1.0)
    return engine


def runner_of(folder: str, stem: str, pid: int) -> WatchedProcess:
    """A runner process from its recorded command line and environment."""
    base = RECORDINGS / folder / f"{stem}.runner-{pid}"
    words = base.with_name(f"{base.name}.cmdline").read_bytes().rstrip(b" \0")
    command = words.decode().replace("\0", " ").split()
    variables = base.with_name(f"{base.name}.environ").read_text().replace("\0", "\n").split("\n")
    pairs = (variable.partition("=") for variable in variables if variable.startswith("OLLAMA_"))
    return WatchedProcess(
        pid=pid,
        ppid=SERVER.pid,
        start_ticks=pid * 10,
        comm="llama-server",
        cmd=tuple(command),
        env={name: value for name, _, value in pairs},
    )


class Second:
    """One recorded second."""

    def __init__(self, folder: str, stem: str) -> None:
        self.folder, self.stem = folder, stem
        base = RECORDINGS / folder
        self.ps = (base / f"{stem}.ps.json").read_text()
        pids = sorted(
            int(path.name.split("runner-")[1].split(".")[0])
            for path in base.glob(f"{stem}.runner-*.cmdline")
        )
        self.runners = [runner_of(folder, stem, pid) for pid in pids]
        # The runners inherit the server's environment.
        server = replace(SERVER, env=self.runners[0].env if self.runners else {})
        self.processes = (server, *self.runners)

    def slots(self, pid: int, at_s: float) -> Answer:
        text = (RECORDINGS / self.folder / f"{self.stem}.runner-{pid}.slots.http").read_text()
        head, _, body = text.replace("\r\n", "\n").partition("\n\n")
        name = f"{SITE} slots {pid}.{pid * 10}"
        return Answer(name, at_s, 1.0, int(head.split()[1]), body, None)

    def answer(self, request: Request, shows: Mapping[str, str], at_s: float) -> Answer | None:
        what = request.id.removeprefix(f"{SITE} ")
        if what == "ps":
            return good("ps", self.ps, at_s)
        if what.startswith("slots "):
            return self.slots(int(what.split()[1].split(".")[0]), at_s)
        if what.startswith("version "):
            return good(what, '{"version":"0.33.0-rc2"}', at_s)
        if what.startswith("show "):
            name = json.loads(request.body or "{}")["model"]
            if name in shows:
                return good(what, (RECORDINGS / "show" / shows[name]).read_text(), at_s)
            missing = (RECORDINGS / "show" / "missing.json").read_text()
            return Answer(request.id, at_s, 1.0, 404, missing, None)
        return None


def tell(
    second: Second,
    shows: Mapping[str, str] = SHOWS,
    *,
    tracker: EngineTracker | None = None,
    from_s: float = 1.0,
    rounds: int = 3,
) -> Engine:
    """The engine after all that gpumon asks was answered as recorded."""
    tracker = tracker or EngineTracker((Ollama(),))
    (engine,), requests = tracker.update(second.processes, (), from_s)
    for number in range(1, rounds):
        at_s = from_s + number
        said = [second.answer(request, shows, at_s) for request in requests]
        known = [answer for answer in said if answer is not None]
        (engine,), requests = tracker.update(second.processes, known, at_s)
    return engine
