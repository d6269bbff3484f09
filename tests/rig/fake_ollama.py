"""``ollama serve`` for the rig: the recorded API in front of llama.cpp's real server.

Reads like the real thing where a monitor looks: its command line, its ``OLLAMA_*``
environment, one ``llama-server`` child per loaded model with the arguments that
Ollama 0.33 gives (recorded in ``cpu-defaults/``), ``/api/ps`` that names those models and
``/api/show`` whose FROM line is the child's ``--model``. ``/api/generate`` is passed on to
the child, so that its counters move; ``keep_alive`` 0 unloads. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

if __package__:
    from tests.rig import disguise, llama_server
    from tests.rig.replay import Asked, Replay, Reply, ollama_routes
else:  # inside a host of the rig
    import disguise
    import llama_server
    from replay import Asked, Replay, Reply, ollama_routes

__all__ = ["Loaded", "spawn"]

_RUNNER = "/usr/local/lib/ollama/llama-server"
_SETUP = "GPUMON_RIG_OLLAMA"
_FROM = re.compile(r"^FROM \S+$", re.M)


@dataclass(frozen=True, slots=True)
class Loaded:
    """One model to be loaded: its name in the recording, its blob here, its settings."""

    name: str
    blob: Path
    context: int
    batch: int = 512
    port: int = 0
    #: True: keep_alive -1, as the recording says
    forever: bool = False

    def arguments(self) -> list[str]:
        """The runner's command line as Ollama 0.33.0-rc2 writes it."""
        return [
            *(_RUNNER, "--model", str(self.blob), "--port", str(self.port)),
            *("--host", "127.0.0.1", "--no-webui", "--offline"),
            *("-c", str(self.context), "-np", "1"),
            *("--log-verbosity", "4", "--no-log-prefix", "--no-log-timestamps"),
            *("--load-mode", "none", "--flash-attn", "auto"),
            *("-b", str(self.batch), "-ub", str(self.batch), "--context-shift", "--keep", "4"),
        ]


def spawn(
    models: Sequence[Loaded], recording: Path, sample: str, *, port: int = 11434, log: Path
) -> tuple[list[str], str, dict[str, str]]:
    """What starts it: (arguments, executable, environment)."""
    setup = {
        "recording": str(recording),
        "sample": sample,
        "log": str(log),
        "models": [
            [one.name, str(one.blob), one.context, one.batch, one.port, one.forever]
            for one in models
        ],
    }
    argv = ["/usr/local/bin/ollama", "serve"]
    base = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/usr/share/ollama",
        "OLLAMA_HOST": f"127.0.0.1:{port}",
        "OLLAMA_KEEP_ALIVE": "5m",
        "OLLAMA_MODELS": str(models[0].blob.parents[1]) if models else "/nonexistent",
        "OLLAMA_NO_CLOUD": "1",
        _SETUP: json.dumps(setup),
    }
    if "GPUMON_LLAMA_SERVER" in os.environ:
        base["GPUMON_LLAMA_SERVER"] = os.environ["GPUMON_LLAMA_SERVER"]
    words = disguise.command("fake_ollama", argv)
    return words, disguise.interpreter(), disguise.environment(argv, base)


class FakeOllama:
    """The server's state: which models are loaded, by which process."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self._lock = threading.Lock()
        folder = Path(setup["recording"])
        self._log = Path(setup["log"]).open("ab")  # noqa: SIM115
        self._models = [
            Loaded(name, Path(blob), context, batch, port, forever)
            for name, blob, context, batch, port, forever in setup["models"]
        ]
        self._rows = {
            row["name"]: row
            for row in json.loads((folder / f"{setup['sample']}.ps.json").read_text())["models"]
        }
        self._runners: dict[str, subprocess.Popen[bytes]] = {}
        self._used_at: dict[str, float] = {}
        self.routes = ollama_routes(folder, setup["sample"])
        self._recorded_show = self.routes["POST /api/show"]
        self.routes.update(
            {
                "GET /api/ps": self._ps,
                "POST /api/show": self._show,
                "POST /api/generate": self._generate,
            }
        )

    def load(self, model: Loaded) -> None:
        """Start the runner of a model and wait until it is healthy."""
        environment = {k: v for k, v in os.environ.items() if k != _SETUP}
        environment["GPUMON_RIG_DIE_WITH_PARENT"] = "1"
        environment["LD_LIBRARY_PATH"] = str(Path(_RUNNER).parent)
        self._runners[model.name] = llama_server.spawn(
            model.arguments(), env=environment, stdout=self._log, stderr=self._log
        )
        self._used_at[model.name] = time.time()

    def load_all(self) -> None:
        """Load every model, side by side."""
        for model in self._models:
            self.load(model)
        for model in self._models:
            while not self._healthy(model):
                if self._runners[model.name].poll() is not None:
                    raise RuntimeError(f"the runner of {model.name} ended")
                time.sleep(0.02)

    def _healthy(self, model: Loaded) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{model.port}/health", timeout=2) as got:
                return bool(got.status == 200)
        except OSError:
            return False

    def _ps(self, _: Asked) -> Reply:
        rows = []
        with self._lock:
            for model in self._models:
                runner = self._runners.get(model.name)
                if runner is None or runner.poll() is not None or not self._healthy(model):
                    continue
                row = dict(self._rows[model.name])
                if not model.forever:
                    expires_at = datetime.fromtimestamp(self._used_at[model.name] + 300, UTC)
                    row["expires_at"] = expires_at.isoformat().replace("+00:00", "Z")
                rows.append(row)
        # latest expiry first, as Ollama lists them
        rows.sort(key=lambda row: str(row["expires_at"]), reverse=True)
        return Reply({"models": rows})

    def _show(self, asked: Asked) -> Reply:
        assert not isinstance(self._recorded_show, Reply)
        reply = self._recorded_show(asked)
        wanted = json.loads(asked.body or b"{}").get("model")
        model = self._named(wanted)
        if reply.status != 200 or model is None:
            return reply
        document = json.loads(reply.data())
        document["modelfile"] = _FROM.sub(f"FROM {model.blob}", document["modelfile"])
        return Reply(document)

    def _named(self, name: object) -> Loaded | None:
        return next((one for one in self._models if name in (one.name, _bare(one.name))), None)

    def _generate(self, asked: Asked) -> Reply:
        wanted = json.loads(asked.body or b"{}")
        model = self._named(wanted.get("model"))
        if model is None:
            return Reply({"error": f"model '{wanted.get('model')}' not found"}, 404)
        if wanted.get("keep_alive") == 0 and not wanted.get("prompt"):
            with self._lock:
                runner = self._runners.pop(model.name, None)
                if runner is not None:
                    runner.terminate()
                    runner.wait()
            return Reply({"model": model.name, "done": True, "done_reason": "unload"})
        with self._lock:
            if model.name not in self._runners:
                self.load(model)
        while not self._healthy(model):
            time.sleep(0.02)
        options = wanted.get("options") or {}
        body = {"prompt": wanted.get("prompt", ""), "n_predict": options.get("num_predict", 32)}
        body["ignore_eos"] = True
        request = urllib.request.Request(
            f"http://127.0.0.1:{model.port}/completion",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as got:
            said = json.load(got)
        self._used_at[model.name] = time.time()
        return Reply(
            {
                "model": model.name,
                "response": said.get("content", ""),
                "done": True,
                "done_reason": "length",
                "prompt_eval_count": said.get("tokens_evaluated"),
                "eval_count": said.get("tokens_predicted"),
            }
        )


def _bare(name: str) -> str:
    return name.removesuffix(":latest")


def main() -> None:
    """Run as the program."""
    setup = json.loads(os.environ[_SETUP])
    disguise.wear()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server = FakeOllama(setup)
    server.load_all()
    port = int(os.environ["OLLAMA_HOST"].rpartition(":")[2])
    Replay(server.routes, port).start()
    print(f"Listening on 127.0.0.1:{port}", file=sys.stderr, flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
