"""From GGUF metadata to what each layer keeps per token and per sequence.

The rules are llama.cpp's (``src/llama-hparams.cpp``, ``src/llama-model.cpp``,
``src/models/*.cpp``, tag b11549): which layers have attention, which of them see only
a window, which hold a recurrent state, and how wide their K and V rows are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Geometry", "Layer", "LayerKind", "MetadataError", "read_geometry"]


class MetadataError(ValueError):
    """A key without which the size can't be told is absent, null or malformed."""


class LayerKind(StrEnum):
    """What a layer's attention keeps."""

    FULL = "full"
    WINDOW = "window"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's needs, in elements (not bytes).

    ``k_elements``/``v_elements`` are per cell (heads x head size), ``conv_elements`` and
    ``state_elements`` per sequence, ``indexer_elements`` per cell.
    """

    kind: LayerKind
    k_elements: int = 0
    v_elements: int = 0
    k_head: int = 0
    v_head: int = 0
    conv_elements: int = 0
    state_elements: int = 0
    indexer_elements: int = 0


@dataclass(frozen=True, slots=True)
class Geometry:
    """All layers that hold something in the main cache, and what rules them."""

    architecture: str
    layers: tuple[Layer, ...]
    #: widest V over all blocks, also those without a cache: pads V without flash attention
    widest_v_elements: int
    window_tokens: int | None
    train_context_tokens: int | None
    mla: bool = False
    #: encoders and diffusion models keep no cache at all
    cacheless: bool = False
    causal: bool = True
    #: False for an architecture whose rules are not known here
    known: bool = True


#: Decoders with full attention in every layer, whatever window their header declares
#: (phi3: llama.cpp PR 13676; llama and qwen ignore ``use_sliding_window``).
_FULL = frozenset(
    """
    apertus arcee arctic baichuan bailingmoe bailingmoe2 bitnet bloom chameleon chatglm
    codeshell cogvlm command-r dbrx deci deepseek deepseek2 deepseek32 dots1 ernie4_5
    ernie4_5-moe exaone falcon gemma glm4 glm4moe gpt2 gptj gptneox granite granitemoe
    grok grovemoe hunyuan-dense hunyuan-moe internlm2 jais llama maincoder minicpm minicpm3
    minimax-m2 mistral3 mpt nemotron olmo olmoe openelm orion paddleocr pangu-embedded phi2
    phi3 phimoe plamo plm pixtral qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3vl
    qwen3vlmoe refact rnd1 seed_oss smollm3 stablelm starcoder starcoder2 t5 xverse
    """.split()
)
_CACHELESS = frozenset(
    """
    bert nomic-bert nomic-bert-moe jina-bert-v2 jina-bert-v3 modern-bert neo-bert eurobert
    gemma-embedding t5encoder dream llada llada-moe wavtokenizer-dec
    """.split()
)
_RECURRENT_ONLY = frozenset({"mamba", "mamba2", "rwkv6", "rwkv7", "arwkv7", "rwkv6qwen2"})
_RWKV = frozenset({"rwkv6", "rwkv7", "arwkv7", "rwkv6qwen2"})
#: A layer without KV heads is a recurrent one here.
_HEADLESS_IS_RECURRENT = frozenset(
    {"granitehybrid", "jamba", "lfm2", "lfm2moe", "plamo2", "kimi-linear"}
)
_INTERVAL = frozenset({"qwen3next", "qwen35", "qwen35moe"})
_NEMOTRON_H = frozenset({"nemotron_h", "nemotron_h_moe"})
_BOTH_IN_EACH = frozenset({"falcon-h1"})
_GEMMA3N_KV_LAYERS = 20


@dataclass(frozen=True, slots=True)
class _WindowRule:
    """Which layers see a window: every one but each ``period``-th."""

    #: 0 = all layers, 1 = none; None = the header must bring an array
    period: int | None
    #: the first of each period is the full one, not the last
    dense_first: bool = False
    #: used when the header names no width
    default_tokens: int | None = None
    #: used whatever width the header names (0 still switches the window off)
    forced_tokens: int | None = None
    #: the rule holds only for models of this many layers
    only_layers: int | None = None


_WINDOWS: Mapping[str, _WindowRule] = {
    "gemma2": _WindowRule(2, default_tokens=4096),
    "gemma3": _WindowRule(6),
    "gemma3n": _WindowRule(5),
    "gemma4": _WindowRule(None),
    "gpt-oss": _WindowRule(2),
    "cohere2": _WindowRule(4),
    "cohere2moe": _WindowRule(4, dense_first=True),
    "llama4": _WindowRule(4, forced_tokens=8192, default_tokens=8192),
    "olmo2": _WindowRule(4),
    "exaone4": _WindowRule(4, only_layers=64, default_tokens=4096),
    "exaone-moe": _WindowRule(4, default_tokens=128),
    "afmoe": _WindowRule(4),
    "mellum": _WindowRule(4),
    "muse-glimmer": _WindowRule(4),
    "plamo3": _WindowRule(8),
    "smallthinker": _WindowRule(4, dense_first=True, forced_tokens=4096),
    "laguna": _WindowRule(4, dense_first=True),
    "step35": _WindowRule(None),
    "mimo2": _WindowRule(None),
    "granite_swa": _WindowRule(None),
    "maple": _WindowRule(None),
    "dflash": _WindowRule(None),
    "lfm2": _WindowRule(0),
}
#: Names that Ollama rewrites when it loads a model (``llama-ollama-compat.cpp``).
_ALIASES = {"gptoss": "gpt-oss", "glm4moelite": "deepseek2", "qwen25vl": "qwen2vl"}


class _Header:
    """Typed reads of ``model_info``; a null (an array withheld) is not an absent key."""

    def __init__(self, info: Mapping[str, object]) -> None:
        architecture = info.get("general.architecture")
        if not isinstance(architecture, str) or not architecture:
            raise MetadataError("general.architecture is missing")
        self.prefix = architecture
        self.architecture = _ALIASES.get(architecture, architecture)
        self._info = info

    def has(self, key: str) -> bool:
        return f"{self.prefix}.{key}" in self._info

    def raw(self, key: str) -> object:
        value = self._info.get(f"{self.prefix}.{key}")
        if value is None and self.has(key):
            raise MetadataError(f"{self.prefix}.{key} was withheld; ask for the verbose metadata")
        return value

    def whole(self, key: str, default: int | None = None) -> int:
        value = self.raw(key)
        if value is None:
            if default is None:
                raise MetadataError(f"{self.prefix}.{key} is missing")
            return default
        return _whole(value, f"{self.prefix}.{key}")

    def per_layer(self, key: str, layers: int, default: int | None = None) -> list[int]:
        """A scalar or one value a layer, as one value a layer."""
        value = self.raw(key)
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            if len(value) < layers:
                raise MetadataError(f"{self.prefix}.{key} has {len(value)} of {layers} values")
            return [_whole(item, f"{self.prefix}.{key}") for item in value[:layers]]
        return [self.whole(key, default)] * layers


def _whole(value: object, name: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool):
        value = int(value)
    if not isinstance(value, int) or value < 0 or value > 2**40:
        raise MetadataError(f"{name} is not a plausible number")
    return value


def read_geometry(info: Mapping[str, object]) -> Geometry:
    """Read ``model_info`` (GGUF keys, as Ollama's verbose ``/api/show`` gives them).

    Raises ``MetadataError`` where a key that the size depends on is absent, null or
    no plausible number. An architecture whose rules are not known is read as full
    attention in every layer and marked ``known=False``.
    """
    header = _Header(info)
    arch = header.architecture
    blocks = header.whole("block_count")
    if not 0 < blocks <= 4096:
        raise MetadataError(f"{arch}.block_count is not plausible")
    context = header.whole("context_length", 0) or None
    if arch in _CACHELESS:
        return Geometry(arch, (), 0, None, context, cacheless=True, causal=False)
    layers = blocks - header.whole("nextn_predict_layers", 0)
    embedding = header.whole("embedding_length")
    if arch in _RECURRENT_ONLY:
        state = _recurrent_state(header, embedding)
        return Geometry(arch, (state,) * layers, 0, None, context)
    heads, kv_heads = _read_heads(header, blocks)
    window = _read_window(header, layers)
    windowed = _windowed_layers(header, layers) if window else [False] * layers
    mla = header.has("attention.key_length_mla") and header.has("attention.value_length_mla")
    recurrent = _recurrent_layers(header, kv_heads, layers)
    indexer = header.whole("attention.indexer.key_length", 0) if arch == "deepseek32" else 0
    # One layer without heads (jamba, deci) must not decide the head size.
    head_size = embedding // max(*heads, 1)
    width = _Widths(header, head_size)
    owners = _owning_layers(header, layers)
    hybrid = arch in _HEADLESS_IS_RECURRENT | _INTERVAL | _NEMOTRON_H | _BOTH_IN_EACH
    rows = []
    for index in range(layers):
        state = _recurrent_state(header, embedding) if recurrent[index] else Layer(LayerKind.NONE)
        # A headless layer of a plain decoder still has a row in the cache (of no bytes,
        # until V is padded); one of a hybrid has not.
        has_cache = (kv_heads[index] > 0 or not hybrid) and index < owners
        if (recurrent[index] and arch not in _BOTH_IN_EACH) or not has_cache:
            rows.append(state)
            continue
        k_head, v_head = width.of(windowed[index])
        rows.append(
            Layer(
                LayerKind.WINDOW if windowed[index] else LayerKind.FULL,
                k_elements=kv_heads[index] * k_head,
                v_elements=0 if mla else kv_heads[index] * v_head,
                k_head=k_head,
                v_head=v_head,
                conv_elements=state.conv_elements,
                state_elements=state.state_elements,
                indexer_elements=indexer,
            )
        )
    wide = windowed + [False] * (blocks - layers)
    widest = max(kv_heads[i] * width.of(wide[i])[1] for i in range(blocks))
    return Geometry(
        arch,
        tuple(rows),
        0 if mla else widest,
        window,
        context,
        mla=mla,
        known=hybrid or arch in _FULL or arch in _WINDOWS,
    )


class _Widths:
    """Head sizes of full and of window layers."""

    def __init__(self, header: _Header, head_size: int) -> None:
        k = header.whole("attention.key_length", head_size)
        v = header.whole("attention.value_length", head_size)
        self._full = (k, v)
        self._window = (
            header.whole("attention.key_length_swa", k),
            header.whole("attention.value_length_swa", v),
        )

    def of(self, windowed: bool) -> tuple[int, int]:
        return self._window if windowed else self._full


def _read_heads(header: _Header, blocks: int) -> tuple[list[int], list[int]]:
    heads = header.per_layer("attention.head_count", blocks)
    if header.has("attention.head_count_kv"):
        return heads, header.per_layer("attention.head_count_kv", blocks)
    return heads, list(heads)


def _read_window(header: _Header, layers: int) -> int | None:
    """The window's width in tokens; None where no layer has one."""
    rule = _WINDOWS.get(header.architecture)
    if rule is None or (rule.only_layers is not None and rule.only_layers != layers):
        return None
    declared = header.whole("attention.sliding_window", rule.default_tokens or 0)
    if declared == 0:
        return None
    return rule.forced_tokens or declared


def _windowed_layers(header: _Header, layers: int) -> list[bool]:
    rule = _WINDOWS[header.architecture]
    pattern = header.raw("attention.sliding_window_pattern")
    if isinstance(pattern, Sequence) and not isinstance(pattern, str | bytes):
        if len(pattern) < layers:
            raise MetadataError("attention.sliding_window_pattern is too short")
        return [bool(item) for item in pattern[:layers]]
    period = rule.period
    if pattern is not None:
        period = _whole(pattern, "attention.sliding_window_pattern")
    if period is None:
        raise MetadataError(f"{header.prefix}.attention.sliding_window_pattern is missing")
    if period == 0:
        return [True] * layers
    if rule.dense_first:
        return [index % period != 0 for index in range(layers)]
    return [index % period < period - 1 for index in range(layers)]


def _owning_layers(header: _Header, layers: int) -> int:
    """How many of the first layers own a cache; the rest read another's."""
    if header.architecture == "gemma3n":
        return min(_GEMMA3N_KV_LAYERS, layers)
    if header.architecture == "gemma4":
        return layers - header.whole("attention.shared_kv_layers", 0)
    return layers


def _recurrent_layers(header: _Header, kv_heads: Sequence[int], layers: int) -> list[bool]:
    arch = header.architecture
    if arch in _BOTH_IN_EACH:
        return [True] * layers
    if arch in _HEADLESS_IS_RECURRENT:
        return [kv_heads[index] == 0 for index in range(layers)]
    if arch in _NEMOTRON_H:
        widths = header.per_layer("feed_forward_length", layers)
        return [kv_heads[i] == 0 and widths[i] == 0 for i in range(layers)]
    if arch in _INTERVAL:
        listed = header.raw("attention.recurrent_layers")
        if isinstance(listed, Sequence) and not isinstance(listed, str | bytes):
            return [bool(item) for item in listed[:layers]]
        interval = header.whole("full_attention_interval", 4)
        return [(index + 1) % max(interval, 1) != 0 for index in range(layers)]
    return [False] * layers


def _recurrent_state(header: _Header, embedding: int) -> Layer:
    """A recurrent layer's elements per sequence (``n_embd_r``, ``n_embd_s``)."""
    arch = header.architecture
    if arch in _RWKV:
        shift = header.whole("token_shift_count", 2)
        return Layer(
            LayerKind.NONE,
            conv_elements=shift * embedding,
            state_elements=embedding * header.whole("wkv.head_size"),
        )
    if arch in {"lfm2", "lfm2moe"}:
        reach = header.whole("shortconv.l_cache")
        return Layer(LayerKind.NONE, conv_elements=embedding * max(reach - 1, 0))
    taps = max(header.whole("ssm.conv_kernel") - 1, 0)
    if arch == "kimi-linear":
        size = header.whole("kda.head_dim")
        heads = max(header.per_layer("attention.head_count", 1))
        return Layer(
            LayerKind.NONE,
            conv_elements=3 * taps * heads * size,
            state_elements=size * size * heads,
        )
    inner = header.whole("ssm.inner_size")
    state = header.whole("ssm.state_size")
    groups = header.whole("ssm.group_count", 0)
    return Layer(
        LayerKind.NONE,
        conv_elements=taps * (inner + 2 * groups * state),
        state_elements=state * inner,
    )
