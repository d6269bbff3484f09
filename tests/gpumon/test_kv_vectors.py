"""The KV cache's size against what llama.cpp b11549 allocated, to the byte.

``GPUMON_KV_VECTORS`` may name another file of the same form.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpumon.kv_cache import estimate

GIVEN = Path(__file__).parent.parent / "vectors" / "kv_vectors.jsonl"


def read_vectors() -> list[dict[str, Any]]:
    path = Path(os.environ.get("GPUMON_KV_VECTORS") or GIVEN)
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


VECTORS = read_vectors()


def test_there_are_vectors() -> None:
    assert VECTORS


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["id"] for vector in VECTORS])
def test_bytes_equal_what_the_engine_allocated(vector: dict[str, Any]) -> None:
    expected = vector["expected"]
    cache = estimate(
        vector["model_info"],
        context=vector["context"],
        slots=vector["slots"],
        unified=vector["unified"],
        cache_type_k=vector["cache_type_k"],
        cache_type_v=vector["cache_type_v"],
        ubatch=vector["ubatch"],
        batch=vector.get("batch", 2048),
        swa_full=vector.get("swa_full", False),
        flash_attention=vector["flash_attention"],
    )
    assert cache.refused == bool(expected.get("refused")), cache.why
    assert cache.total_bytes == expected["total_bytes"], cache.why
    if cache.refused:
        return
    assert cache.exact, cache.why
    assert (cache.recurrent_bytes or None) == (expected.get("recurrent_bytes") or None)
    assert cache.cells == expected["full_cells"]
    assert cache.window_cells == expected["window_cells"]
    assert sum(cache.layer_bytes) == cache.total_bytes
    if cache.cells:
        assert cache.streams == expected["streams"]
        assert cache.ubatch == expected["n_ubatch"]
