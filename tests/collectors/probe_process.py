"""The real probe as a child: the real command by a real shell, the real payload."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpumon.collectors.bootstrap import bootstrap_command
from gpumon.collectors.payload import ProbeConfig, Request, build_payload, set_line

NONCE = "n0nce"


def pythons() -> dict[str, str]:
    """Version -> interpreter: the one that runs the tests, and those that pyenv has."""
    found = {"{}.{}.{}".format(*sys.version_info[:3]): os.path.realpath(sys.executable)}
    for path in sorted(Path.home().joinpath(".pyenv/versions").glob("3.*/bin/python3")):
        found[path.parts[-3]] = str(path)
    return found


def _direct() -> dict[str, str]:
    """This environment, with the real interpreter before any slow shim of it."""
    folder = str(Path(sys.executable).resolve().parent)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


class Lines:
    """A child's lines, each waited for with a limit."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.buffer = b""
        self.ended = False

    def next(self, timeout_s: float = 15.0) -> bytes:
        """The next line without its newline; b"" at the end of the stream."""
        assert self.process.stdout is not None
        until = time.monotonic() + timeout_s
        while b"\n" not in self.buffer and not self.ended:
            left = until - time.monotonic()
            assert left > 0, f"no line within {timeout_s} s; so far {self.buffer[:200]!r}"
            if select.select([self.process.stdout], [], [], left)[0]:
                part = os.read(self.process.stdout.fileno(), 1 << 16)
                self.ended = not part
                self.buffer += part
        line, newline, self.buffer = self.buffer.partition(b"\n")
        return line if newline else b""


class RunningProbe:
    """Use as a context manager."""

    def __init__(
        self,
        *,
        command: str | None = None,
        shell: Sequence[str] = ("sh", "-c"),
        env: Mapping[str, str] | None = None,
        payload: bytes | None = None,
        **config: Any,
    ) -> None:
        config = {"nonce": NONCE, "interval_s": 0.2, "pynvml": False, **config}
        data = build_payload(ProbeConfig(**config)) if payload is None else payload
        self.process = subprocess.Popen(
            [*shell, command or bootstrap_command()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_direct() if env is None else dict(env),
        )
        self.lines = Lines(self.process)
        self.noise: list[bytes] = []
        self.write(b"%d\n" % len(data) + data)

    def __enter__(self) -> RunningProbe:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        self.process.wait()

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def set(self, **changes: Any) -> None:
        self.write(set_line(**changes))

    def hello(self) -> dict[str, Any]:
        """Skip the noise and the nonce, and return the greeting."""
        while (line := self.lines.next()) != b"\x1e" + NONCE.encode():
            assert not self.lines.ended, self.stderr()
            self.noise.append(line)
        found = json.loads(self.lines.next())
        assert found["t"] == "hello"
        return found

    def record(self, timeout_s: float = 15.0) -> dict[str, Any]:
        line = self.lines.next(timeout_s)
        assert line, self.stderr()
        return json.loads(line)

    def until(
        self, wanted: Callable[[dict[str, Any]], object], timeout_s: float = 15.0
    ) -> dict[str, Any]:
        """The first record from now on that is ``wanted``."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            record = self.record(timeout_s)
            if wanted(record):
                return record
        raise AssertionError(f"no such record within {timeout_s} s")

    def answer(self, name: str, timeout_s: float = 15.0) -> dict[str, Any]:
        """The next answer to the request of that id."""
        found: list[dict[str, Any]] = []

        def has_it(record: dict[str, Any]) -> bool:
            found.extend(row for row in record.get("http", ()) if row["id"] == name)
            return bool(found)

        self.until(has_it, timeout_s)
        return found[0]

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def stderr(self) -> str:
        self.process.kill()
        assert self.process.stderr is not None
        return self.process.stderr.read().decode("utf-8", "replace")


def request(name: str, port: int, path: str = "/", **fields: Any) -> Request:
    return Request(id=name, port=port, path=path, **{"every_s": 0.5, **fields})


def is_gone(pid: int) -> bool:
    """True when the process has ended, reaped or not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def wait_until(condition: Callable[[], object], timeout_s: float) -> float:
    """Seconds until ``condition`` held; fails when it does not in time."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s, f"not within {timeout_s} s"
        time.sleep(0.01)
    return time.monotonic() - began
