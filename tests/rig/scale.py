"""A thousand hosts in one process: SSH servers whose probe is simulated, for cost and scale.

``python -m tests.rig.scale --hosts 1000 --dir DIR`` listens on 127.1.a.b, writes an ssh
config into DIR and prints ``ready PORT``. Each connection is a real SSH one (asyncssh); the
command is answered in the probe's wire protocol: it reads the payload, takes the nonce
from it, and sends a line every interval with eight cards, their processes, and an Ollama
that answers what the client asks for. The lines were once written by the real probe on
the mock driver; only their times and figures change.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncssh

from gpumon.collectors.bootstrap import plain_command
from gpumon.collectors.payload import ProbeConfig, build_payload
from gpumon.inventory import HostConfig
from tests.rig import disguise
from tests.rig.nvml_mock.build import environment as nvml_environment
from tests.rig.nvml_mock.scenarios import eight_with_lost_and_na
from tests.rig.sshd import free_port, make_key

__all__ = ["ScaleFleet", "address_of", "record_lines"]

_ROOT = Path(__file__).parents[2]
_RECORDING = _ROOT / "tests" / "recordings" / "ollama"
_VARIANTS = 8


def address_of(number: int) -> str:
    """The loopback address of a simulated host, counted from 0."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


def record_lines() -> tuple[dict[str, Any], dict[str, Any]]:
    """(hello, sample) as the real probe writes them here on the mock driver with 8 cards."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = eight_with_lost_and_na(Path(folder) / "nvml.ini")
        payload = build_payload(ProbeConfig(nonce="n", interval_s=0.2), with_pynvml=True)
        with subprocess.Popen(
            ["/bin/sh", "-c", plain_command()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **nvml_environment(scenario),
                "PATH": f"{Path(disguise.interpreter()).parent}:/usr/bin:/bin",
            },
        ) as probe:
            assert probe.stdin is not None
            assert probe.stdout is not None
            probe.stdin.write(b"%d\n" % len(payload) + payload)
            probe.stdin.flush()
            hello: dict[str, Any] = {}
            for line in probe.stdout:
                if not line.startswith(b"{"):
                    continue
                record = json.loads(line)
                if record["t"] == "hello":
                    hello = record
                elif record["t"] == "sample" and record["gpus"] and record["seq"] >= 3:
                    probe.stdin.close()
                    return hello, record
    raise RuntimeError("the probe ended without a sample of its cards")


def _watched() -> list[dict[str, Any]]:
    """An Ollama and its runner as the probe reports them, from the recording."""
    recorded = (_RECORDING / "cpu-defaults/03-idle.runner-7326.cmdline").read_text()
    arguments = recorded.replace("\0", " ").split()
    common = {"user": "ollama", "cgroup": "/system.slice/ollama.service", "start_ticks": 9000}
    server = ["/usr/local/bin/ollama", "serve"]
    return [
        {
            **common,
            **{"pid": 700, "ppid": 1, "comm": "ollama", "cmd": server, "ports": [11434]},
            **{"cpu_percent": 0.1, "rss_bytes": 61_000_000, "ancestors": []},
            "env": {"OLLAMA_HOST": "127.0.0.1:11434", "OLLAMA_KEEP_ALIVE": "5m"},
        },
        {
            **common,
            **{"pid": 7326, "ppid": 700, "comm": "llama-server", "cmd": arguments},
            **{"ports": [37501], "cpu_percent": 0.0, "rss_bytes": 402_000_000, "env": {}},
            "ancestors": [{"pid": 700, "comm": "ollama", "cmd": server}],
        },
    ]


def _answers() -> dict[str, str]:
    """Path -> body of the recorded Ollama and its runner."""
    folder = _RECORDING / "cpu-defaults"
    slots = (folder / "03-idle.runner-7326.slots.http").read_text()
    return {
        "/api/version": (folder / "01-empty.version.json").read_text(),
        "/api/ps": (folder / "03-idle.ps.json").read_text(),
        "/api/tags": (folder / "01-empty.tags.json").read_text(),
        "/api/show": (_RECORDING / "show/gemma3_270m.verbose-false.json").read_text(),
        "/slots": slots[slots.index("[{") :],
    }


class _Lines:
    """Sample lines, made once and filled in per host and tick."""

    def __init__(self, interval_s: float) -> None:
        hello, sample = record_lines()
        self.interval_s = interval_s
        self._hello = json.dumps(hello)
        self._hostname = json.dumps(hello["hostname"])
        self.answers = _answers()
        gpus = sample["gpus"]
        for index in (5, 6):
            # the scenario's broken cards are for other tests
            uuid = gpus[4]["uuid"].replace("7c1d04", f"7c1d0{index}")
            gpus[index] = {**gpus[4], "index": index, "uuid": uuid, "pci_id": f"0000:a{index}:00.0"}
        chance = random.Random(7)
        self._variants: list[list[str]] = []
        for _ in range(_VARIANTS):
            for gpu in gpus:
                gpu["util_percent"] = float(chance.randrange(101))
                gpu["power_w"] = round(chance.uniform(70, 690), 3)
                gpu["memory_used_bytes"] = chance.randrange(80 * 2**30)
                gpu["memory_free_bytes"] = gpu["memory_total_bytes"] - gpu["memory_used_bytes"]
            sample["system"]["cpu_percent"] = round(chance.uniform(0, 100), 1)
            marks = {"seq": "@S@", "mono": "@M@", "wall": "@W@", "gpus_mono": "@M@", "http": "@H@"}
            line = json.dumps({**sample, **marks, "watched": _watched()}, separators=(",", ":"))
            # each host has cards of its own
            line = re.sub(r'"@([SMWH])@"', r"@\1@", line).replace("GPU-7c1d0", "GPU-@N@")
            self._variants.append(re.split(r"@([SMWHN])@", line))
        self.size = len(self.sample(0, 0, 0.0, "[]"))

    def hello(self, number: int) -> bytes:
        return self._hello.replace(self._hostname, f'"sim-{number:04d}"').encode() + b"\n"

    def sample(self, number: int, seq: int, mono: float, http: str) -> bytes:
        values = {
            "S": str(seq),
            "M": f"{mono:.3f}",
            "W": f"{time.time():.6f}",
            "N": f"{number:04x}d",
            "H": http,
        }
        parts = list(self._variants[(seq + number) % _VARIANTS])
        parts[1::2] = [values[mark] for mark in parts[1::2]]
        return "".join(parts).encode() + b"\n"


class _Simulated:
    """One connection's probe."""

    def __init__(self, number: int, lines: _Lines, process: Any) -> None:
        self._number = number
        self._lines = lines
        self._process = process
        self._said: dict[str, float] = {}
        self._requests: list[Mapping[str, Any]] = []

    async def run(self) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        length = int(await stdin.readline())
        source = zlib.decompress(await stdin.readexactly(length))
        match = re.search(rb'"nonce":\s*"([^"]+)"', source[source.rindex(b"run(") :])
        assert match is not None
        stdout.write(b"\x1e" + match[1] + b"\n" + self._lines.hello(self._number))
        listener = asyncio.create_task(self._listen())
        try:
            await self._speak()
        finally:
            listener.cancel()

    async def _listen(self) -> None:
        with contextlib.suppress(asyncssh.Error, OSError):
            async for line in self._process.stdin:
                if line.startswith(b"{"):
                    given = json.loads(line)["set"]
                    self._requests = given.get("requests", self._requests)
        self._process.exit(0)

    async def _speak(self) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        seq = 0
        while not self._process.stdout.is_closing():
            mono = loop.time()
            try:
                self._process.stdout.write(self._line(seq, mono))
                await self._process.stdout.drain()
            except (asyncssh.Error, OSError):
                return
            seq += 1
            await asyncio.sleep(max(0.0, start + seq * self._lines.interval_s - loop.time()))

    def _line(self, seq: int, mono: float) -> bytes:
        return self._lines.sample(self._number, seq, mono, self._http(mono))

    def _http(self, mono: float) -> str:
        rows = []
        for request in self._requests:
            name = request["id"]
            before = self._said.get(name)
            # an idle runner is asked once
            if before is not None and (
                request.get("busy_pid") or mono - before < request.get("every_s", 15)
            ):
                continue
            body = self._lines.answers.get(request["path"])
            self._said[name] = mono
            row: dict[str, Any] = {"id": name, "mono": mono, "ms": 0.8, "error": None}
            row |= {"status": 200 if body else 404, "truncated": False, "same": before is not None}
            rows.append({**row, "body": None if before is not None else body})
        return json.dumps(rows)


async def _serve(hosts: int, folder: Path, interval_s: float, port: int) -> None:
    lines = _Lines(interval_s)
    for name in ("host_key", "client_key"):
        if not (folder / name).exists():
            make_key(folder / name)
    key = asyncssh.read_private_key(folder / "host_key")
    keys = asyncssh.read_authorized_keys(str(folder / "client_key.pub"))

    async def listen(number: int) -> None:
        async def handle(process: Any) -> None:
            with contextlib.suppress(asyncssh.Error, OSError, asyncio.IncompleteReadError):
                await _Simulated(number, lines, process).run()
            process.close()

        await asyncssh.listen(
            address_of(number),
            port,
            server_host_keys=[key],
            authorized_client_keys=keys,
            process_factory=handle,
            encoding=None,
            compression_algs=None,
            reuse_address=True,
            login_timeout=60,
        )

    for number in range(hosts):
        await listen(number)
    public = " ".join((folder / "host_key.pub").read_text().split()[:2])
    known = folder / "known_hosts"
    known.write_text("".join(f"[{address_of(n)}]:{port} {public}\n" for n in range(hosts)))
    (folder / "ssh_config").write_text(
        f"Host *\n  IdentityFile {folder / 'client_key'}\n  IdentitiesOnly yes\n"
        f"  IdentityAgent none\n  UserKnownHostsFile {known}\n"
        "  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
    )
    print(f"ready {port} {lines.size}", flush=True)
    # ends with the process that started it
    await asyncio.to_thread(sys.stdin.read)


class ScaleFleet:
    """The simulated hosts in a process of their own: ``with ScaleFleet(100, folder) as fleet``."""

    def __init__(self, hosts: int, folder: Path, *, interval_s: float = 2.0) -> None:
        self._hosts = hosts
        self._folder = folder
        self._interval_s = interval_s
        self._process: subprocess.Popen[str] | None = None
        self.port = free_port()
        #: bytes of one sample's line
        self.line_bytes = 0

    def __enter__(self) -> ScaleFleet:
        self._folder.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "tests.rig.scale", "--hosts", str(self._hosts)]
        words += ["--dir", str(self._folder), "--interval", str(self._interval_s)]
        self._process = subprocess.Popen(
            [*words, "--port", str(self.port)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().split()
        if line[:1] != ["ready"]:
            raise RuntimeError(f"the simulated hosts did not start: {line}")
        self.line_bytes = int(line[2])
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def environment(self) -> dict[str, str]:
        """What lets gpumon reach the hosts."""
        return {"GPUMON_SSH_CONFIG": str(self._folder / "ssh_config")}

    @property
    def configs(self) -> tuple[HostConfig, ...]:
        """The hosts as the inventory has them."""
        return tuple(
            HostConfig(
                f"sim-{number:04d}",
                address=address_of(number),
                port=self.port,
                interval_s=self._interval_s,
            )
            for number in range(self._hosts)
        )

    def write_config(self, path: Path) -> Path:
        """A ``config.toml`` that lists them."""
        lines = ["[defaults]", f"interval_s = {self._interval_s}", "local = false", ""]
        for config in self.configs:
            lines += [f'[hosts."{config.name}"]', f'address = "{config.address}"']
            lines += [f"port = {config.port}", ""]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))
        return path


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=10)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--interval", type=float, default=2.0)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4096:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    port = given.port or free_port()
    asyncio.run(_serve(given.hosts, given.dir.resolve(), given.interval, port))
    os._exit(0)


if __name__ == "__main__":
    main()
