"""Every engine gpumon knows: one module and one line here."""

from __future__ import annotations

from gpumon.collectors.engines.contract import EngineReader
from gpumon.collectors.engines.ollama import Ollama

__all__ = ["ENGINES"]

ENGINES: tuple[EngineReader, ...] = (Ollama(),)
