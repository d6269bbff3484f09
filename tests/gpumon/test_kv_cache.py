"""What must hold of the KV cache's size for every model, and where it must not be told."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.kv_cache import ELEMENT_BYTES, estimate
from tests.gpumon.test_kv_vectors import VECTORS

GIB = 2**30

MODELS: dict[str, dict[str, Any]] = {
    vector["id"].split("/")[0]: vector["model_info"] for vector in VECTORS
}
LLAMA_8B = {
    "general.architecture": "llama",
    "llama.context_length": 131072,
    "llama.embedding_length": 4096,
    "llama.block_count": 32,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
}
LLAMA_70B = LLAMA_8B | {
    "llama.embedding_length": 8192,
    "llama.block_count": 80,
    "llama.attention.head_count": 64,
}
GEMMA3_4B = MODELS.get("gemma3-4b", {})
models = st.sampled_from(sorted(MODELS))


def total(model: str, **settings: Any) -> int:
    cache = estimate(MODELS[model], **settings)
    assert cache.total_bytes is not None, cache.why
    return cache.total_bytes


def test_the_worked_examples() -> None:
    eight = estimate(LLAMA_8B, context=8192)
    assert eight.bytes_per_token == 128 * 1024
    assert eight.total_bytes == 1_073_741_824
    assert estimate(LLAMA_8B, context=16384).total_bytes == 2_147_483_648
    seventy = estimate(LLAMA_70B, context=8192).total_bytes
    assert seventy == 2_684_354_560
    assert estimate(LLAMA_70B, context=16384).total_bytes == 2 * seventy


@given(models, st.integers(256, 200_000), st.integers(0, 50_000), st.integers(1, 4), st.booleans())
def test_more_context_never_takes_less(
    model: str, context: int, more: int, slots: int, unified: bool
) -> None:
    settings = {"slots": slots, "unified": unified}
    assert total(model, context=context, **settings) <= total(
        model, context=context + more, **settings
    )


@given(models, st.integers(1, 100_000), st.integers(1, 8), st.booleans())
def test_more_slots_of_the_same_context_never_take_less(
    model: str, context: int, slots: int, unified: bool
) -> None:
    few = total(model, context=context * slots, slots=slots, unified=unified)
    more = total(model, context=context * (slots + 1), slots=slots + 1, unified=unified)
    assert few <= more


@given(models, st.integers(256, 100_000))
def test_a_wider_type_never_takes_less(model: str, context: int) -> None:
    sizes = []
    for name in sorted(("f16", "q8_0", "q4_0", "f32", "q5_1"), key=ELEMENT_BYTES.__getitem__):
        cache = estimate(MODELS[model], context=context, cache_type_k=name, cache_type_v=name)
        if not cache.refused:
            sizes.append(cache.total_bytes)
    assert None not in sizes
    assert sizes == sorted(sizes)


@given(models, st.integers(1, 100_000), st.integers(1, 4), st.booleans())
def test_layers_add_up(model: str, context: int, slots: int, unified: bool) -> None:
    cache = estimate(MODELS[model], context=context, slots=slots, unified=unified)
    assert sum(cache.layer_bytes) == cache.total_bytes
    assert cache.total_bytes == (
        (cache.full_bytes or 0) + (cache.window_bytes or 0) + (cache.recurrent_bytes or 0)
    )


def test_q8_0_is_17_32nds_of_f16() -> None:
    half = estimate(LLAMA_8B, context=8192).total_bytes
    eighth = estimate(LLAMA_8B, context=8192, cache_type_k="q8_0", cache_type_v="q8_0").total_bytes
    assert half is not None
    assert eighth is not None
    assert Fraction(eighth, half) == Fraction(17, 32)


@pytest.mark.parametrize(
    "missing",
    ["block_count", "embedding_length", "attention.head_count", "attention.head_count_kv"],
)
def test_a_withheld_value_gives_no_number(missing: str) -> None:
    cache = estimate(LLAMA_8B | {f"llama.{missing}": None}, context=8192)
    assert cache.total_bytes is None
    assert not cache.exact
    assert missing in cache.why


@pytest.mark.parametrize("missing", ["block_count", "embedding_length", "attention.head_count"])
def test_an_absent_key_gives_no_number(missing: str) -> None:
    info = {key: value for key, value in LLAMA_8B.items() if key != f"llama.{missing}"}
    cache = estimate(info, context=8192)
    assert cache.total_bytes is None
    assert missing in cache.why


def test_no_architecture_gives_no_number() -> None:
    assert estimate({}, context=8192).total_bytes is None


def test_an_unknown_architecture_is_an_estimate_of_two_digits() -> None:
    info = {key.replace("llama", "tomorrow"): value for key, value in LLAMA_8B.items()}
    info["general.architecture"] = "tomorrow"
    cache = estimate(info, context=10_000)
    assert not cache.exact
    assert "estimate" in cache.why
    assert cache.total_bytes is not None
    assert len(str(cache.total_bytes).rstrip("0")) <= 2
    assert cache.total_bytes >= (estimate(LLAMA_8B, context=10_000).total_bytes or 0)


@given(
    st.dictionaries(
        st.sampled_from([*LLAMA_8B, "llama.attention.key_length", "llama.attention.value_length"]),
        st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.lists(st.integers())),
    )
)
def test_junk_in_a_header_never_raises(junk: dict[str, Any]) -> None:
    cache = estimate(LLAMA_8B | junk, context=4096)
    assert cache.total_bytes is None or cache.total_bytes >= 0


@pytest.mark.parametrize("settings", [{"cache_type_k": "q9"}, {"engine": "x"}, {"slots": 0}])
def test_settings_that_are_none_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"unknown|positive"):
        estimate(LLAMA_8B, context=4096, **settings)
