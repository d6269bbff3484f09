"""What every engine's module offers; a test runs over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpumon.collectors.payload import Request
from gpumon.collectors.wire import Answer, WatchedProcess
from gpumon.inventory import EngineConfig
from gpumon.snapshot import Engine

__all__ = ["Answers", "EngineReader", "Site"]

#: the newest answer with a body of every request, by its id
Answers = Mapping[str, Answer]


@dataclass(frozen=True, slots=True)
class Site:
    """One engine found on a host: where it listens and which process it is."""

    kind: str
    port: int
    host: str = "127.0.0.1"
    pid: int | None = None
    #: what a person calls it
    url: str | None = None
    #: sent to the host inside the connection only
    bearer: str | None = None

    @property
    def key(self) -> str:
        """Names the site in request ids."""
        return f"{self.kind}:{self.host}:{self.port}"


class EngineReader(Protocol):
    """An engine: how it is found, what it is asked, and what its answers mean. Pure."""

    @property
    def kind(self) -> str:
        """The engine's name in records and configs."""
        ...

    @property
    def watch(self) -> tuple[str, ...]:
        """Regular expressions of its processes, for the probe."""
        ...

    @property
    def env_names(self) -> tuple[str, ...]:
        """Regular expressions of environment names that hold its settings, never secrets."""
        ...

    def find(
        self, processes: Sequence[WatchedProcess], configured: Sequence[EngineConfig]
    ) -> list[Site]:
        """The servers of this kind on a host, each once."""
        ...

    def requests(
        self, site: Site, processes: Sequence[WatchedProcess], answers: Answers
    ) -> list[Request]:
        """What the probe should ask from now on; ids begin with the site's key."""
        ...

    def read(
        self,
        site: Site,
        processes: Sequence[WatchedProcess],
        answers: Answers,
        before: Engine | None,
        monotonic_s: float,
    ) -> Engine:
        """The engine now. Never raises for what a server says."""
        ...
