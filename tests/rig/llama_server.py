"""``llama-server``: llama.cpp's own server, as the xllamacpp package carries it.

Takes the arguments that Ollama gives its runners (0.30 and later) and a person gives
llama-server, maps them onto ``xllamacpp.CommonParams`` and serves. In /proc it reads like
the real program. ``GPUMON_LLAMA_SERVER`` names a genuine binary to run instead.

``install(folder)`` puts an executable ``llama-server`` there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

if __package__:
    from tests.rig import disguise
else:  # inside a host of the rig
    import disguise

__all__ = ["UnknownFlag", "install", "spawn"]

_GENUINE = "GPUMON_LLAMA_SERVER"

_WHOLE = {
    "-c": "n_ctx",
    "--ctx-size": "n_ctx",
    "-np": "n_parallel",
    "--parallel": "n_parallel",
    "-b": "n_batch",
    "--batch-size": "n_batch",
    "-ub": "n_ubatch",
    "--ubatch-size": "n_ubatch",
    "--port": "port",
    "--keep": "n_keep",
    "-ngl": "n_gpu_layers",
    "--gpu-layers": "n_gpu_layers",
    "--n-gpu-layers": "n_gpu_layers",
    "-n": "n_predict",
    "--sleep-idle-seconds": "sleep_idle_seconds",
    "--log-verbosity": "verbosity",
    "-lv": "verbosity",
}
_ON = {
    "--context-shift": ("ctx_shift", True),
    "--no-context-shift": ("ctx_shift", False),
    "--metrics": ("endpoint_metrics", True),
    "--slots": ("endpoint_slots", True),
    "--no-slots": ("endpoint_slots", False),
    "--props": ("endpoint_props", True),
    "-kvu": ("kv_unified", True),
    "--kv-unified": ("kv_unified", True),
    "--no-kv-unified": ("kv_unified", False),
    "--offline": ("offline", True),
    "--no-webui": ("ui", False),
    "--no-jinja": ("use_jinja", False),
    "--no-warmup": ("warmup", False),
}
_TEXT = {"--api-prefix": "api_prefix", "--chat-template": "chat_template", "--path": "public_path"}
_IGNORED = {"--no-log-prefix": 0, "--no-log-timestamps": 0, "--no-mmap": 0, "--load-mode": 1}


class UnknownFlag(ValueError):
    """An argument that neither Ollama nor the rig gives."""


def configure(parameters: Any, arguments: Sequence[str]) -> None:
    """Set what the arguments say on an ``xllamacpp.CommonParams``; raises UnknownFlag."""
    import xllamacpp

    given = iter(arguments)
    parameters.fit_params = False
    parameters.cache_ram_mib = 0
    # The rig has few cores and many hosts.
    parameters.cpuparams.n_threads = 1
    slots_given = False
    for flag in given:
        if flag in _WHOLE:
            setattr(parameters, _WHOLE[flag], int(next(given)))
            slots_given |= flag in ("-np", "--parallel")
        elif flag in _ON:
            name, value = _ON[flag]
            setattr(parameters, name, value)
        elif flag in _TEXT:
            setattr(parameters, _TEXT[flag], next(given))
        elif flag in ("-m", "--model"):
            parameters.model.path = next(given)
        elif flag == "--host":
            parameters.hostnames = [next(given)]
        elif flag == "--api-key":
            parameters.api_keys = next(given).split(",")
        elif flag in ("-a", "--alias"):
            parameters.model_alias = {next(given)}
        elif flag in ("-t", "--threads"):
            parameters.cpuparams.n_threads = int(next(given))
        elif flag in ("-ctk", "--cache-type-k"):
            parameters.cache_type_k = _cache_type(xllamacpp, next(given))
        elif flag in ("-ctv", "--cache-type-v"):
            parameters.cache_type_v = _cache_type(xllamacpp, next(given))
        elif flag in ("-fa", "--flash-attn"):
            _set_flash_attention(xllamacpp, parameters, given)
        elif flag in _IGNORED:
            for _ in range(_IGNORED[flag]):
                next(given)
        else:
            raise UnknownFlag(f"error: invalid argument: {flag}")
    if not slots_given:
        # llama.cpp, tools/server/server.cpp: four slots that share one pool
        parameters.n_parallel = 4
        parameters.kv_unified = True


def _cache_type(xllamacpp: Any, name: str) -> Any:
    return getattr(xllamacpp.ggml_type, f"GGML_TYPE_{name.upper()}")


def _set_flash_attention(xllamacpp: Any, parameters: Any, given: Iterator[str]) -> None:
    names = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}
    kind = xllamacpp.llama_flash_attn_type
    parameters.flash_attn_type = getattr(kind, f"LLAMA_FLASH_ATTN_TYPE_{names[next(given)]}")


def serve(arguments: Sequence[str]) -> None:
    """Serve until a signal ends the process."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    configure(parameters, arguments)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    server = xllamacpp.Server(parameters)
    print(f"server is listening on {server.listening_address}", file=sys.stderr, flush=True)
    while True:
        signal.pause()


def spawn(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a server whose /proc command line is ``argv``."""
    genuine = os.environ.get(_GENUINE)
    if genuine:
        return subprocess.Popen(argv, executable=genuine, env=env, **options)
    return subprocess.Popen(
        disguise.command("llama_server", argv),
        executable=disguise.interpreter(),
        env=disguise.environment(argv, env),
        **options,
    )


def install(folder: Path) -> Path:
    """An executable ``llama-server`` in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "llama-server"
    path.write_text(
        f"#!{sys.executable}\n"
        "import os, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import disguise\n"
        f"genuine = os.environ.get({_GENUINE!r})\n"
        "if genuine:\n"
        "    os.execv(genuine, sys.argv)\n"
        "os.execve(disguise.interpreter(), disguise.command('llama_server', sys.argv),\n"
        "          disguise.environment(sys.argv))\n"
    )
    path.chmod(0o755)
    return path


def main() -> None:
    """Run as the program."""
    argv = disguise.wear()
    if os.environ.pop("GPUMON_RIG_DIE_WITH_PARENT", None):
        disguise.die_with_parent()
    try:
        serve(argv[1:])
    except UnknownFlag as error:
        sys.exit(str(error))
    except RuntimeError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
