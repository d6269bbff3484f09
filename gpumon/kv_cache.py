"""How many bytes an engine reserves for the KV cache of a model, to the byte.

    KV = streams x sum over layers of cells x (row(type_k, k) + row(type_v, v))
    RS = 4 x slots x sum over recurrent layers of (conv + state)

``row(type, n)`` is n / block x block bytes. The rules are llama.cpp's (tag b11549:
``src/llama-kv-cache.cpp``, ``llama-kv-cache-iswa.cpp``, ``llama-memory-recurrent.cpp``,
``llama-context.cpp``), which Ollama runs since 0.30; those of Ollama's own engine
(0.12 to 0.24: ``kvcache/causal.go``, ``kvcache/recurrent.go``) and of vLLM
(``vllm/v1/kv_cache_interface.py``) are told apart by ``engine``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from gpumon.kv_layers import Geometry, Layer, LayerKind, MetadataError, read_geometry

__all__ = ["ELEMENT_BYTES", "ENGINES", "KvCache", "estimate"]

#: cache type -> (elements in a block, bytes of a block); ``ggml-common.h``
_BLOCKS: Mapping[str, tuple[int, int]] = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
    "fp8": (1, 1),
    "fp8_e4m3": (1, 1),
    "fp8_e5m2": (1, 1),
}
#: cache type -> bytes an element
ELEMENT_BYTES: Mapping[str, Fraction] = {
    name: Fraction(size, count) for name, (count, size) in _BLOCKS.items()
}
ENGINES = ("llama.cpp", "ollama-engine", "vllm")
_PAD_CELLS = 256
#: Ollama's own engine keeps this many states beside the live one (DefaultCheckpointCount).
_OLLAMA_CHECKPOINTS = 24
#: Ollama's own engine keeps at least this much window for these (``NewSWAMemCache``).
_OLLAMA_WINDOW_MEMORY = {"gpt-oss": 4096, "gemma4": 4096}
_VLLM_BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class KvCache:
    """What is reserved. ``None`` where it can't be told; then ``why`` says what is missing.

    ``total_bytes`` = ``full_bytes`` + ``window_bytes`` + ``recurrent_bytes``.
    ``bytes_per_token`` is what one more token of context costs in the full-attention
    layers (window layers saturate, recurrent ones do not grow). ``cells`` are those of one
    stream. With ``exact=False`` the figures are an estimate, rounded to two digits.
    """

    total_bytes: int | None
    bytes_per_token: int | None
    full_bytes: int | None
    window_bytes: int | None
    recurrent_bytes: int | None
    cells: int | None
    window_cells: int | None
    streams: int
    context_tokens: int | None
    ubatch: int
    exact: bool
    #: the engine would not create such a context
    refused: bool
    why: str
    #: bytes of each layer, streams and slots included; sums up to ``total_bytes``
    layer_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Settings:
    context: int
    slots: int
    unified: bool
    type_k: str
    type_v: str
    batch: int
    ubatch: int
    flash: bool
    swa_full: bool
    engine: str


def estimate(
    model_info: Mapping[str, object],
    *,
    context: int,
    slots: int = 1,
    unified: bool = False,
    cache_type_k: str = "f16",
    cache_type_v: str = "f16",
    ubatch: int = 512,
    flash_attention: bool = True,
    engine: str = "llama.cpp",
    batch: int = 2048,
    swa_full: bool = False,
) -> KvCache:
    """Tell the KV cache that ``engine`` reserves for a model, in bytes.

    ``model_info``: GGUF keys and values (arrays included: Ollama sends them only with
    ``verbose``). ``context``: tokens over all slots, as ``-c`` takes it (Ollama starts its
    runner with num_ctx x num_parallel); 0 = the trained context. ``slots``: parallel
    sequences; ``unified``: they share one pool. ``ubatch``/``batch``: physical and logical
    batch, which decide the window's cells. ``engine``: one of ``ENGINES``.

    Never raises for metadata: a missing key gives ``total_bytes=None`` and says which in
    ``why``; an unknown architecture gives a rounded estimate with ``exact=False``. Raises
    ``ValueError`` for settings that are no settings.
    """
    settings = _check(
        _Settings(
            context=context,
            slots=slots,
            unified=unified,
            type_k=cache_type_k.lower(),
            type_v=cache_type_v.lower(),
            batch=batch,
            ubatch=ubatch,
            flash=flash_attention,
            swa_full=swa_full,
            engine=engine,
        )
    )
    try:
        geometry = read_geometry(model_info)
    except MetadataError as missing:
        return _unknown(settings, str(missing), refused=False)
    if not context and geometry.train_context_tokens is None:
        return _unknown(settings, "the trained context length is missing", refused=False)
    if refusal := _find_refusal(geometry, settings):
        return _unknown(settings, refusal, refused=True)
    return _allocate(geometry, settings)


def _check(settings: _Settings) -> _Settings:
    for name in (settings.type_k, settings.type_v):
        if name not in _BLOCKS:
            raise ValueError(f"unknown cache type {name!r}; known: {', '.join(_BLOCKS)}")
    if settings.engine not in ENGINES:
        raise ValueError(f"unknown engine {settings.engine!r}; known: {', '.join(ENGINES)}")
    if settings.context < 0 or min(settings.slots, settings.ubatch, settings.batch) < 1:
        raise ValueError("context, slots and batches must be positive")
    return settings


def _unknown(settings: _Settings, why: str, *, refused: bool) -> KvCache:
    return KvCache(
        total_bytes=None,
        bytes_per_token=None,
        full_bytes=None,
        window_bytes=None,
        recurrent_bytes=None,
        cells=None,
        window_cells=None,
        streams=_count_streams(settings),
        context_tokens=None,
        ubatch=settings.ubatch,
        exact=refused,
        refused=refused,
        why=why,
    )


def _count_streams(settings: _Settings) -> int:
    return 1 if settings.unified or settings.engine != "llama.cpp" else settings.slots


def _find_refusal(geometry: Geometry, settings: _Settings) -> str | None:
    """Why llama.cpp would not create this context; None where it would."""
    if settings.engine != "llama.cpp" or geometry.cacheless:
        return None
    attention = [layer for layer in geometry.layers if layer.kind is not LayerKind.NONE]
    if geometry.mla and settings.type_k != settings.type_v:
        return "MLA has no V cache: K and V must be of one type"
    block_k, block_v = _BLOCKS[settings.type_k][0], _BLOCKS[settings.type_v][0]
    if block_v > 1 and not settings.flash:
        return "a quantised V cache needs flash attention"
    if not settings.flash:
        return None
    for layer in attention:
        if layer.k_head % block_k:
            return f"{settings.type_k} blocks of {block_k} do not divide heads of {layer.k_head}"
        if layer.v_head % block_v:
            return f"{settings.type_v} blocks of {block_v} do not divide heads of {layer.v_head}"
    return None


def _pad(cells: int, step: int = _PAD_CELLS) -> int:
    return -(-cells // step) * step


def _row_bytes(cache_type: str, elements: int, cells: int) -> int:
    count, size = _BLOCKS[cache_type]
    return -(-elements * cells // count) * size


def _cells(geometry: Geometry, settings: _Settings) -> tuple[int, int, int]:
    """Full cells and window cells of one stream, and the ubatch in force."""
    context = settings.context or geometry.train_context_tokens or 0
    window = geometry.window_tokens or 0
    if settings.engine == "vllm":
        full = _pad(context, _VLLM_BLOCK_TOKENS) * settings.slots
        kept = min(context, window - 1 + settings.batch)
        return full, (_pad(kept, _VLLM_BLOCK_TOKENS) + _VLLM_BLOCK_TOKENS) * settings.slots, 0
    if settings.engine == "ollama-engine":
        # ``context`` is the total over the slots here too: num_ctx x num_parallel.
        full = _pad(context)
        memory = _OLLAMA_WINDOW_MEMORY.get(geometry.architecture)
        if memory is None:
            memory = window + 1 if settings.slots > 1 else window
        per_slot = context // settings.slots
        chunked = geometry.architecture == "llama4"
        if chunked or memory >= per_slot:
            return full, full, settings.ubatch
        return full, _pad(settings.slots * memory + settings.ubatch), settings.ubatch
    # The batch is cut to the context before that is padded (``llama-context.cpp``).
    batch = min(context, settings.batch) if geometry.causal else settings.batch
    ubatch = min(batch, settings.ubatch)
    full = _pad(context)
    if not settings.unified:
        full = _pad(full // settings.slots)
    if settings.swa_full:
        return full, full, ubatch
    reach = window * (settings.slots if settings.unified else 1) + ubatch
    return full, _pad(min(full, reach)), ubatch


def _allocate(geometry: Geometry, settings: _Settings) -> KvCache:
    full_cells, window_cells, ubatch = _cells(geometry, settings)
    streams = _count_streams(settings)
    states = settings.slots
    if settings.engine == "ollama-engine":
        states *= 1 + _OLLAMA_CHECKPOINTS
    full = window = recurrent = 0
    layer_bytes = []
    for layer in geometry.layers:
        cells = window_cells if layer.kind is LayerKind.WINDOW else full_cells
        kept = streams * _attention_bytes(layer, geometry, settings, cells)
        if layer.kind is LayerKind.WINDOW:
            window += kept
        else:
            full += kept
        state = 4 * states * (layer.conv_elements + layer.state_elements)
        recurrent += state
        layer_bytes.append(kept + state)
    per_token = sum(
        _attention_bytes(layer, geometry, settings, _PAD_CELLS)
        for layer in geometry.layers
        if layer.kind is LayerKind.FULL
    )
    has_full = any(layer.kind is LayerKind.FULL for layer in geometry.layers)
    has_window = any(layer.kind is LayerKind.WINDOW for layer in geometry.layers)
    split = settings.engine == "llama.cpp" and not settings.unified
    cache = KvCache(
        total_bytes=full + window + recurrent,
        bytes_per_token=per_token // _PAD_CELLS,
        full_bytes=full,
        window_bytes=window,
        recurrent_bytes=recurrent,
        cells=full_cells if has_full or has_window else 0,
        window_cells=window_cells if has_window else None,
        streams=streams,
        context_tokens=full_cells * settings.slots if split else full_cells,
        ubatch=ubatch,
        exact=geometry.known,
        refused=False,
        why=_tell(geometry, settings, full_cells, window_cells),
        layer_bytes=tuple(layer_bytes),
    )
    return cache if geometry.known else _round(cache, geometry)


def _attention_bytes(layer: Layer, geometry: Geometry, settings: _Settings, cells: int) -> int:
    if layer.kind is LayerKind.NONE:
        return 0
    v_elements = layer.v_elements
    if not settings.flash and not geometry.mla and settings.engine == "llama.cpp":
        # Without flash attention V is stored transposed, every layer at the widest width.
        v_elements = geometry.widest_v_elements
    if settings.engine == "vllm" and geometry.mla:
        v_elements = 0
    return (
        _row_bytes(settings.type_k, layer.k_elements, cells)
        + _row_bytes(settings.type_v, v_elements, cells)
        + _row_bytes(settings.type_k, layer.indexer_elements, cells)
    )


def _tell(geometry: Geometry, settings: _Settings, full_cells: int, window_cells: int) -> str:
    """The formula with this model's figures."""
    if geometry.cacheless:
        return f"{geometry.architecture}: an encoder or diffusion model keeps no KV cache"
    count = dict.fromkeys(LayerKind, 0)
    recurrent = 0
    for layer in geometry.layers:
        count[layer.kind] += 1
        recurrent += bool(layer.conv_elements or layer.state_elements)
    parts = []
    streams = _count_streams(settings)
    if count[LayerKind.FULL]:
        parts.append(f"{count[LayerKind.FULL]} full layers x {streams} x {full_cells} cells")
    if count[LayerKind.WINDOW]:
        parts.append(
            f"{count[LayerKind.WINDOW]} layers of a {geometry.window_tokens}-token window"
            f" x {streams} x {window_cells} cells"
        )
    if recurrent:
        parts.append(f"{recurrent} recurrent layers x {settings.slots} slots")
    if geometry.mla:
        parts.append("MLA: K only")
    return f"{geometry.architecture}: " + ", ".join(parts)


def _round(cache: KvCache, geometry: Geometry) -> KvCache:
    """Two digits: an estimate must not look like a measurement."""
    return KvCache(
        total_bytes=_two_digits(cache.total_bytes),
        bytes_per_token=_two_digits(cache.bytes_per_token),
        full_bytes=_two_digits(cache.full_bytes),
        window_bytes=_two_digits(cache.window_bytes),
        recurrent_bytes=_two_digits(cache.recurrent_bytes),
        cells=cache.cells,
        window_cells=cache.window_cells,
        streams=cache.streams,
        context_tokens=cache.context_tokens,
        ubatch=cache.ubatch,
        exact=False,
        refused=False,
        why=f"estimate: the rules of {geometry.architecture!r} are not known here, so every "
        "layer is counted as full attention",
    )


def _two_digits(value: int | None) -> int | None:
    if not value:
        return value
    step: int = 10 ** max(0, len(str(value)) - 2)
    return -(-value // step) * step
