"""The settings in a llama.cpp server's command line (``common/arg.cpp``, b11434)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from gpumon.collectors.wire import WatchedProcess
from gpumon.snapshot import Runner

__all__ = ["read_flags", "read_port", "read_runner"]

_NAMES = {
    "-m": "model",
    "--model": "model",
    "--port": "port",
    "--host": "host",
    "-c": "context",
    "--ctx-size": "context",
    "-np": "parallel",
    "--parallel": "parallel",
    "-b": "batch",
    "--batch-size": "batch",
    "-ub": "ubatch",
    "--ubatch-size": "ubatch",
    "-ngl": "gpu_layers",
    "--gpu-layers": "gpu_layers",
    "--n-gpu-layers": "gpu_layers",
    "-ctk": "cache_type_k",
    "--cache-type-k": "cache_type_k",
    "-ctv": "cache_type_v",
    "--cache-type-v": "cache_type_v",
    "-fa": "flash_attention",
    "--flash-attn": "flash_attention",
    "-sm": "split_mode",
    "--split-mode": "split_mode",
    "-mg": "main_gpu",
    "--main-gpu": "main_gpu",
}
_SWITCHES = {
    "--context-shift": ("context_shift", "on"),
    "--no-context-shift": ("context_shift", "off"),
    "-kvu": ("unified", "on"),
    "--kv-unified": ("unified", "on"),
    "-no-kvu": ("unified", "off"),
    "--no-kv-unified": ("unified", "off"),
}
_FLASH = frozenset({"on", "off", "auto"})


def read_flags(arguments: Sequence[str]) -> dict[str, str]:
    """Setting -> text, for the options gpumon knows; the last one of a kind wins."""
    found: dict[str, str] = {}
    rest = iter(range(len(arguments)))
    for position in rest:
        word, equals, value = arguments[position].partition("=")
        if word in _SWITCHES:
            name, text = _SWITCHES[word]
            found[name] = text
            continue
        known = _NAMES.get(word)
        if known is None:
            continue
        if not equals:
            following = arguments[position + 1] if position + 1 < len(arguments) else None
            if known == "flash_attention" and following not in _FLASH:
                found[known] = "on"  # older builds took it as a switch
                continue
            if following is None:
                continue
            value = following
            next(rest, None)
        found[known] = value
    return found


@functools.lru_cache(maxsize=1024)
def _flags_of(command: tuple[str, ...]) -> Mapping[str, str]:
    """Read once for a process, which has the same command line in every sample."""
    return read_flags(command[1:])


def _whole(text: str | None) -> int | None:
    try:
        value = None if text is None else int(text)
    except ValueError:
        return None
    return value if value is not None and abs(value) < 2**53 else None


def read_port(process: WatchedProcess) -> int | None:
    """The port a server's command line names."""
    return _whole(_flags_of(process.cmd).get("port"))


def read_runner(process: WatchedProcess) -> Runner:
    """The runner that a process is, with what its command line and environment say.

    Without ``-np`` llama-server takes four slots that share one pool
    (``tools/server/server.cpp``); with it, each slot has its own part unless ``-kvu``.
    """
    flags = _flags_of(process.cmd)
    parallel = _whole(flags.get("parallel"))
    unified: bool | None = flags.get("unified") == "on"
    if "unified" not in flags and parallel in (None, -1):
        unified = None
    unknown: dict[str, str] = {}
    if not process.env_readable:
        unknown["visible_devices"] = "no-permission"
    shift = flags.get("context_shift")
    return Runner(
        pid=process.pid,
        start_ticks=process.start_ticks,
        port=_whole(flags.get("port")),
        context_total_tokens=_whole(flags.get("context")) or None,
        parallel_slots=parallel if parallel and parallel > 0 else None,
        unified=unified,
        cache_type_k=flags.get("cache_type_k", "f16").lower(),
        cache_type_v=flags.get("cache_type_v", "f16").lower(),
        batch=_whole(flags.get("batch")),
        ubatch=_whole(flags.get("ubatch")),
        gpu_layers=_whole(flags.get("gpu_layers")),
        flash_attention=flags.get("flash_attention"),
        context_shift=None if shift is None else shift == "on",
        visible_devices=process.env.get("CUDA_VISIBLE_DEVICES")
        or process.env.get("ROCR_VISIBLE_DEVICES"),
        main_gpu=_whole(flags.get("main_gpu")),
        split_mode=flags.get("split_mode"),
        model_path=flags.get("model") or None,
        cpu_percent=process.cpu_percent,
        rss_bytes=process.rss_bytes,
        unknown=unknown,
    )
