"""What every engine's module offers; a test runs over all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from gpumon.collectors.payload import Request
from gpumon.collectors.wire import Answer, WatchedProcess
from gpumon.inventory import EngineConfig
from gpumon.snapshot import Engine

__all__ = ["Answers", "EngineReader", "Site", "configured_site"]

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
    bearer: str | None = field(default=None, repr=False)
    #: the variable that holds ``bearer``, or should
    key_env: str | None = None
    #: stands before every path of the API
    prefix: str = ""
    #: why it can't be asked at all, a line for a person
    problem: str | None = None

    @property
    def key(self) -> str:
        """Names the site in request ids."""
        return f"{self.kind}:{self.host}:{self.port}{self.prefix}"


def configured_site(config: EngineConfig) -> Site:
    """The site that a config names; its key is read from this machine's environment.

    One that can't be asked has a ``problem``: nothing is raised.
    """
    problem: str | None = None
    parts = urlsplit(config.url)
    try:
        port = parts.port or {"https": 443}.get(parts.scheme, 80)
    except ValueError:
        port, problem = 0, f"{config.url}: not a port; correct its url in the config"
    if parts.scheme != "http":
        problem = problem or (
            f"{config.url}: only http can be read on the host; name its http address"
        )
    return Site(
        config.kind,
        port,
        host=parts.hostname or "127.0.0.1",
        url=config.url,
        bearer=os.environ.get(config.key_env) or None if config.key_env else None,
        key_env=config.key_env,
        prefix=parts.path.rstrip("/"),
        problem=problem,
    )


class EngineReader(Protocol):
    """An engine: how it is found, what it is asked, and what its answers mean.

    Pure, but that ``find`` reads the keys that a config names from the environment.
    """

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

    def keep(self, what: str, answer: Answer) -> Answer:
        """An answer as far as ``read`` needs it, called once for every new body.

        ``what`` is its id without the site's key. Long bodies are not to be kept: there
        may be a thousand hosts.
        """
        ...

    def is_lasting(self, what: str) -> bool:
        """True for an answer that stays true when it is no longer asked for."""
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
