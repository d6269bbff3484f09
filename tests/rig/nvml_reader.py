"""The probe's NVML reader in a process of its own, as on a host, on the mock driver."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PROBE = Path(__file__).parents[2] / "collectors" / "probe"

#: Finds the probe's modules as the payload does, then answers one line for each line read.
_HOST = r"""
import json, os, sys
folder, pynvml, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
exec(open(os.path.join(folder, "loader.py")).read())
sources = dict(
    ("gpumon_probe_" + name[:-3], open(os.path.join(folder, name), "rb").read())
    for name in os.listdir(folder) if name.endswith(".py") and name != "__init__.py"
)
sources["pynvml"] = open(pynvml, "rb").read()
SourceFinder(sources).install()
module, _, cls = options.pop("reader").rpartition(".")
reader = getattr(__import__(module), cls)(**options.pop("arguments"))
asked = set()
if options.pop("trace"):
    import pynvml
    look_up = pynvml._nvmlGetFunctionPointer
    def traced(name):
        asked.add(name)
        return look_up(name)
    pynvml._nvmlGetFunctionPointer = traced
reader.start(options["interval_s"], options["slow_every_s"])
while True:
    word = sys.stdin.readline().strip()
    if not word:
        os._exit(0)
    if word == "snapshot":
        answer = reader.snapshot()
    elif word == "asked":
        answer = sorted(asked)
    else:
        answer = getattr(reader, word)()
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
"""


class ReaderProcess:
    """A running reader; ``snapshot()`` asks it, ``until()`` waits for what it should say."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        python: str = sys.executable,
        reader: str = "gpumon_probe_nvml.NvmlReader",
        interval_s: float = 0.1,
        slow_every_s: float = 0.4,
        trace: bool = False,
        **arguments: Any,
    ) -> None:
        spec = importlib.util.find_spec("pynvml")
        assert spec is not None and spec.origin is not None
        options = {
            "reader": reader,
            "interval_s": interval_s,
            "slow_every_s": slow_every_s,
            "trace": trace,
            "arguments": arguments,
        }
        self.process = subprocess.Popen(
            [python, "-c", _HOST, str(PROBE), spec.origin, json.dumps(options)],
            env={"PATH": os.environ["PATH"], **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> ReaderProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def ask(self, word: str) -> Any:
        """The reader's answer to a word of its own."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def snapshot(self) -> dict[str, Any]:
        """What the reader has now."""
        answer = self.ask("snapshot")
        assert isinstance(answer, dict)
        return answer

    def until(
        self, condition: Callable[[dict[str, Any]], object], *, within_s: float = 15
    ) -> dict[str, Any]:
        """The first snapshot that meets the condition."""
        end = time.monotonic() + within_s
        while True:
            snapshot = self.snapshot()
            if condition(snapshot):
                return snapshot
            if time.monotonic() > end:
                raise AssertionError(f"not within {within_s} s; last: {snapshot}")
            time.sleep(0.02)

    def state(self, name: str) -> dict[str, Any]:
        """The first snapshot with that driver state."""
        return self.until(lambda snapshot: snapshot["nvml"]["state"] == name)


def by_index(snapshot: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Cards (not slices) by their index."""
    return {
        row["index"]: row for row in snapshot["gpus"] if "parent_uuid" not in row and "index" in row
    }
