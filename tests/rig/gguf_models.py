"""Tiny GGUF files with random weights: 1.5 MB, made in under 0.1 s, loaded in 20 ms.

Two architectures: ``llama`` (one KV cache) and ``gemma3`` (a sliding window of 512 tokens
on five layers of six, so two KV caches). What they say is gibberish; their shapes, caches
and counters are real. Keys as in GGUF's specification (ggml, docs/gguf.md).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["TINY_GEMMA3", "TINY_LLAMA", "Shape", "store_blob", "write_gguf"]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a tiny model looks like."""

    architecture: str = "llama"
    layers: int = 4
    embedding: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 32
    feed_forward: int = 256
    context: int = 4096
    #: tokens that the windowed layers see; None = every layer sees all
    window: int | None = None


TINY_LLAMA = Shape()
TINY_GEMMA3 = Shape("gemma3", layers=6, context=8192, window=512)

_PLAIN_TOKENS = 258
_VOCABULARY = 512


def _byte_alphabet() -> list[str]:
    """GPT-2's printable stand-in for each of the 256 bytes."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spare = iter(range(256, 512))
    return [chr(byte if byte in kept else next(spare)) for byte in range(256)]


def write_gguf(path: Path, shape: Shape = TINY_LLAMA, *, seed: int = 0) -> Path:
    """Write one model; the same shape and seed give the same bytes."""
    import gguf
    import numpy as np

    chance = np.random.default_rng(seed)
    tokens = [*_byte_alphabet(), "he", "ll", "<s>", "</s>"]
    tokens += [f"<x{number}>" for number in range(len(tokens), _VOCABULARY)]
    writer = gguf.GGUFWriter(path, shape.architecture)
    writer.add_name(f"tiny-random-{shape.architecture}")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.embedding)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_vocab_size(_VOCABULARY)
    if shape.window is not None:
        writer.add_sliding_window(shape.window)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_merges(["h e", "l l"])
    normal, control = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL
    rest = [normal] * (_VOCABULARY - _PLAIN_TOKENS - 2)
    writer.add_token_types([normal] * _PLAIN_TOKENS + [control] * 2 + rest)
    writer.add_bos_token_id(_PLAIN_TOKENS)
    writer.add_eos_token_id(_PLAIN_TOKENS + 1)
    writer.add_add_bos_token(True)

    def matrix(name: str, *size: int) -> None:
        values = chance.standard_normal(size, dtype=np.float32) * 0.02
        writer.add_tensor(name, values.astype(np.float16))

    def ones(name: str, size: int) -> None:
        writer.add_tensor(name, np.ones(size, dtype=np.float32))

    wide = shape.heads * shape.head_size
    narrow = shape.kv_heads * shape.head_size
    matrix("token_embd.weight", _VOCABULARY, shape.embedding)
    ones("output_norm.weight", shape.embedding)
    if shape.architecture == "llama":
        matrix("output.weight", _VOCABULARY, shape.embedding)
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        ones(f"{block}attn_norm.weight", shape.embedding)
        matrix(f"{block}attn_q.weight", wide, shape.embedding)
        matrix(f"{block}attn_k.weight", narrow, shape.embedding)
        matrix(f"{block}attn_v.weight", narrow, shape.embedding)
        matrix(f"{block}attn_output.weight", shape.embedding, wide)
        ones(f"{block}ffn_norm.weight", shape.embedding)
        matrix(f"{block}ffn_gate.weight", shape.feed_forward, shape.embedding)
        matrix(f"{block}ffn_up.weight", shape.feed_forward, shape.embedding)
        matrix(f"{block}ffn_down.weight", shape.embedding, shape.feed_forward)
        if shape.architecture == "gemma3":
            ones(f"{block}attn_q_norm.weight", shape.head_size)
            ones(f"{block}attn_k_norm.weight", shape.head_size)
            ones(f"{block}post_attention_norm.weight", shape.embedding)
            ones(f"{block}post_ffw_norm.weight", shape.embedding)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def store_blob(models: Path, shape: Shape) -> Path:
    """Write one model into Ollama's store under its digest; the blob's path."""
    blobs = models / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    path = write_gguf(blobs / f"writing-{shape.architecture}", shape)
    return path.rename(blobs / f"sha256-{hashlib.sha256(path.read_bytes()).hexdigest()}")
