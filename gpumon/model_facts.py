"""What a model's file says of it: its hyper-parameters, and how many bytes lie where.

Read once per file: from a GGUF's header, or from Ollama's ``/api/show``. The records travel
with a ``Model``, so that memory and headroom are derived from a snapshot alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ModelFacts", "Weights"]


@dataclass(frozen=True, slots=True)
class Weights:
    """The bytes of a model's tensors, by what decides where they go.

    ``total_bytes`` = sum(``layer_bytes``) + ``embedding_bytes`` + ``output_bytes`` +
    ``other_bytes``. Paddings between tensors are not counted.
    """

    total_bytes: int
    parameters: int | None = None
    #: bytes of each block (``blk.N.*``), in their order; () where only the sum is known
    layer_bytes: tuple[int, ...] = ()
    #: the token embeddings, which llama.cpp keeps in host memory
    embedding_bytes: int = 0
    #: the output matrix and its norm. Where it is tied, the engine makes a copy of the
    #: embeddings on the GPU: see ``tied``
    output_bytes: int = 0
    other_bytes: int = 0
    #: the part of ``layer_bytes`` that lies in routed experts
    expert_bytes: int = 0
    #: True where the model has no output matrix of its own
    tied: bool = False
    #: False where the bytes were reckoned from parameters and quantisation
    exact: bool = True
    #: the arithmetic, or what was counted
    why: str = ""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model file. Every field is None where its source does not tell it."""

    #: GGUF keys and values, without the tokenizer's; arrays whole
    info: Mapping[str, object] = field(default_factory=dict)
    weights: Weights | None = None
    #: the vision or audio projector, a file of its own
    projector_bytes: int | None = None
    #: show (the engine's API), gguf (the file's header)
    source: str = "show"
