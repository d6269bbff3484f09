"""The engines of one host over time: who is there, what to ask, what they said last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpumon.collectors.engines.contract import EngineReader, Site
from gpumon.collectors.payload import Request
from gpumon.collectors.wire import Answer, WatchedProcess
from gpumon.inventory import EngineConfig
from gpumon.snapshot import Engine

__all__ = ["EngineTracker"]

#: Answers kept though they are no longer asked for; the oldest go first.
_MOST_LASTING = 64


class EngineTracker:
    """Holds the newest answers and engines of one host; lives across reconnections."""

    def __init__(
        self, engines: Sequence[EngineReader], configured: Sequence[EngineConfig] = ()
    ) -> None:
        self._readers = {reader.kind: reader for reader in engines}
        self._configured = tuple(configured)
        self._answers: dict[str, Answer] = {}
        self._engines: dict[str, Engine] = {}
        self._seen_monotonic_s = 0.0

    def update(
        self,
        processes: Sequence[WatchedProcess],
        answers: Sequence[Answer],
        monotonic_s: float,
    ) -> tuple[tuple[Engine, ...], tuple[Request, ...]]:
        """Take one sample in; return the engines now and what to ask from now on."""
        if monotonic_s < self._seen_monotonic_s:
            # The host was restarted: nothing said before holds any more.
            self._answers.clear()
            self._engines.clear()
        self._seen_monotonic_s = monotonic_s
        for answer in answers:
            self._take(answer)
        engines: dict[str, Engine] = {}
        requests: list[Request] = []
        for reader in self._readers.values():
            for site in reader.find(processes, self._configured):
                if site.key in engines:
                    continue
                own = self._answers_of(site)
                before = self._engines.get(site.key)
                engines[site.key] = reader.read(site, processes, own, before, monotonic_s)
                requests.extend(reader.requests(site, processes, own))
        self._engines = engines
        self._drop_answers({request.id for request in requests})
        return tuple(engines.values()), tuple(requests)

    def _take(self, answer: Answer) -> None:
        known = self._answers.get(answer.id)
        if answer.same:
            if known is not None:
                again = replace(known, monotonic_s=answer.monotonic_s, elapsed_ms=answer.elapsed_ms)
                # What was parsed of the same body stays parsed.
                vars(again).setdefault("document", known.document)
                self._answers[answer.id] = again
            return
        reader = self._readers.get(answer.id.partition(":")[0])
        if reader is not None:
            self._answers[answer.id] = reader.keep(_what(answer.id), answer)

    def _drop_answers(self, asked: set[str]) -> None:
        """An answer to a question no longer asked must not be taken for a fresh one later."""
        lasting = [name for name in self._answers if name not in asked and self._is_lasting(name)]
        kept = asked.union(lasting[-_MOST_LASTING:])
        self._answers = {name: said for name, said in self._answers.items() if name in kept}

    def _is_lasting(self, name: str) -> bool:
        reader = self._readers.get(name.partition(":")[0])
        return reader is not None and reader.is_lasting(_what(name))

    def _answers_of(self, site: Site) -> dict[str, Answer]:
        start = f"{site.key} "
        return {name: said for name, said in self._answers.items() if name.startswith(start)}


def _what(name: str) -> str:
    """A request's id without its site."""
    return name.partition(" ")[2]
