"""The processes of Ollama: which is a server, which serves a model, what their argv says.

0.30 and later start a ``llama-server`` for every GGUF model (``llm/llama_server.go``); up to
0.24 and for MLX models the child is ``ollama runner`` (``llm/server.go`` of 0.24,
``x/mlxrunner/client.go``), in the first years ``ollama_llama_server``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpumon.collectors.engines.llama_argv import read_runner
from gpumon.collectors.wire import WatchedProcess
from gpumon.snapshot import Runner

__all__ = [
    "DEFAULT_PORT",
    "file_name",
    "has_slots",
    "is_server",
    "read_model_process",
    "runners_of",
    "server_address",
    "settings_of",
]

DEFAULT_PORT = 11434
_SCHEME_PORTS = {"http": 80, "https": 443}
#: Listening on every address; the loopback one is asked.
_EVERYWHERE = ("", "0.0.0.0", "::", "[::]")  # noqa: S104
#: What only the server knows of a model that ``ollama runner`` serves.
_OLD_UNKNOWNS = (
    "context_total_tokens",
    "parallel_slots",
    "batch",
    "ubatch",
    "flash_attention",
    "unified",
    "context_shift",
)


def file_name(path: str | None) -> str:
    """The last part of a path; a sample needs it a dozen times, and pathlib's takes 10 us."""
    return (path or "").rpartition("/")[2]


def _program(process: WatchedProcess) -> str:
    return file_name(process.cmd[0]) if process.cmd else process.comm


def is_server(process: WatchedProcess) -> bool:
    """True for ``ollama serve`` and its other name, ``ollama start``."""
    word = next((word for word in process.cmd[1:] if not word.startswith("-")), None)
    return _program(process) in ("ollama", "ollama.exe") and word in ("serve", "start")


def server_address(process: WatchedProcess) -> tuple[str, int]:
    """Host and port to ask a server at, from its OLLAMA_HOST (``envconfig/config.go``).

    Where its environment can't be read, the port it listens on; where that can't be read
    either, Ollama's own.
    """
    stated = process.env.get("OLLAMA_HOST", "").strip().strip("\"'").strip()
    if not stated:
        ports = process.ports or ()
        return "127.0.0.1", ports[0] if ports and DEFAULT_PORT not in ports else DEFAULT_PORT
    scheme, found, rest = stated.partition("://")
    default = _SCHEME_PORTS.get(scheme, DEFAULT_PORT) if found else DEFAULT_PORT
    place = (rest if found else stated).partition("/")[0]
    if place.count(":") > 1 and not place.startswith("["):
        host, port = place, default  # an IPv6 address alone
    else:
        host, _, number = (
            place.rpartition(":") if ":" in place.rpartition("]")[2] else (place, "", "")
        )
        port = int(number) if number.isascii() and number.isdigit() else default
        port = port if 0 < port < 65536 else default
    return "127.0.0.1" if host in _EVERYWHERE else host.strip("[]"), port


def runners_of(pid: int | None, processes: Sequence[WatchedProcess]) -> list[WatchedProcess]:
    """The model processes of the server with this pid: its descendants, told by argv."""
    if pid is None:
        return []
    return [one for one in processes if _serves_model(one) and _descends(one, pid)]


def _serves_model(process: WatchedProcess) -> bool:
    name = _program(process)
    if name in ("llama-server", "ollama_llama_server"):
        return "--model" in process.cmd
    return name == "ollama" and "runner" in process.cmd[1:2]


def _descends(process: WatchedProcess, pid: int) -> bool:
    return process.ppid == pid or any(one.pid == pid for one in process.ancestors)


def has_slots(process: WatchedProcess) -> bool:
    """True for a runner that is a llama-server: only that one tells of its slots."""
    return _program(process) == "llama-server"


def read_model_process(process: WatchedProcess) -> Runner:
    """The runner that a process is.

    An ``ollama runner`` got its settings by HTTP when it loaded; of those only what the
    environment forces is known here, and its slots are not.
    """
    runner = read_runner(process)
    if has_slots(process):
        return runner
    is_mlx = "--mlx-engine" in process.cmd
    reason = "engine-lacks" if is_mlx else "engine-too-old"
    unknown = dict(runner.unknown)
    unknown["slots"] = reason
    for name in _OLD_UNKNOWNS:
        if getattr(runner, name) is None:
            unknown[name] = reason
    cache = None
    if is_mlx or not process.env_readable:
        unknown["cache_type_k"] = unknown["cache_type_v"] = reason if is_mlx else "no-permission"
    else:
        cache = process.env.get("OLLAMA_KV_CACHE_TYPE", "").strip().lower() or "f16"
    return replace(runner, cache_type_k=cache, cache_type_v=cache, unknown=unknown)


def settings_of(
    server: WatchedProcess | None, runners: Sequence[WatchedProcess]
) -> tuple[Mapping[str, str], str | None]:
    """OLLAMA_* of the server, or of a runner, which inherits them; or why they are unknown."""
    sources = [one for one in (server, *runners) if one is not None]
    for process in sources:
        if process.env_readable:
            return {
                name: text for name, text in process.env.items() if name.startswith("OLLAMA_")
            }, None
    return {}, "no-permission" if sources else "no-process"
