"""Calls to an Ollama that a person waits for, over the host's connection.

What is read all the time is asked by the probe (``ollama``), which needs no forwarding and
one log line a digest. This is for what is too big for that or changes something: ``tags``
whole, ``show`` verbose (megabytes: the vocabulary comes along), and, through ``library``,
anything else that the ollama package can do. Where the server forbids forwarding, these
calls fail with ``ForwardRefused`` and everything else goes on.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx
import ollama

from gpumon.collectors.engines.contract import Site
from gpumon.collectors.failures import TransportError
from gpumon.collectors.http_channel import BodyTooLong, ChannelTransport, transport_error_in
from gpumon.collectors.transport import Transport
from gpumon.collectors.wire_values import read_text

__all__ = ["InstalledModel", "OllamaCallFailed", "OllamaClient", "ShownModel"]

#: The largest vocabularies known make some 20 MB.
_LIMIT_BYTES = 64 * 1024 * 1024
_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
_MOST_SHOWN = 64
#: Longer lists of a model's description are the vocabulary, not its layers.
_LONGEST_LIST = 4096
_MOST_TENSORS = 65536
#: of httpx, of the ollama package (which says ConnectionError and TypeError too), of JSON
_ERRORS = (
    httpx.HTTPError,
    ollama.ResponseError,
    OSError,
    ValueError,
    TypeError,
    RecursionError,
)


class OllamaCallFailed(TransportError):
    """A call that came to nothing; the text names server, cause and next step."""


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """A model on a host's disk."""

    name: str
    digest: str | None = None
    size_bytes: int | None = None
    family: str | None = None
    parameter_size: str | None = None
    quantization: str | None = None


@dataclass(frozen=True, slots=True)
class ShownModel:
    """What the server knows of a model, without its vocabulary."""

    modelfile: str | None = None
    #: GGUF metadata, lists per layer included
    model_info: Mapping[str, Any] = field(default_factory=dict)
    #: of each tensor its name, type and shape
    tensors: tuple[Mapping[str, Any], ...] = ()
    capabilities: tuple[str, ...] = ()


class OllamaClient:
    """One Ollama server of one host. Close it, or use it as a context."""

    def __init__(self, transport: Transport, site: Site) -> None:
        self._where = f"Ollama at {site.host}:{site.port} of {transport.description}"
        host = f"[{site.host}]" if ":" in site.host else site.host
        url = f"http://{host}:{site.port}{site.prefix}"
        channel = ChannelTransport(transport, bearer=site.bearer, limit_bytes=_LIMIT_BYTES)
        #: For what has no method here. A redirect would lead to wherever the host says.
        self.library = ollama.AsyncClient(
            url, transport=channel, timeout=_TIMEOUT, follow_redirects=False, trust_env=False
        )
        # The package's show() knows no verbose form.
        self._http = httpx.AsyncClient(
            base_url=url, transport=channel, timeout=_TIMEOUT, trust_env=False
        )
        self._shown: OrderedDict[str, ShownModel] = OrderedDict()
        self._asking: dict[str, asyncio.Lock] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close its channels; the host's connection stays."""
        await self.library.close()  # type: ignore[no-untyped-call]
        await self._http.aclose()

    async def tags(self) -> tuple[InstalledModel, ...]:
        """The models on disk. Raises ``OllamaCallFailed`` or the ``TransportError`` beneath."""
        async with self._explained():
            listed = await self.library.list()
        return tuple(
            InstalledModel(
                name=read_text(row.model, 1024) or "",
                digest=read_text(row.digest),
                size_bytes=None if row.size is None else int(row.size),
                family=read_text(row.details and row.details.family),
                parameter_size=read_text(row.details and row.details.parameter_size),
                quantization=read_text(row.details and row.details.quantization_level),
            )
            for row in listed.models
            if row.model
        )

    async def show(self, name: str, digest: str) -> ShownModel:
        """All that the server says of a model, asked once for each digest.

        Raises ``OllamaCallFailed`` or the ``TransportError`` beneath; neither is remembered.
        """
        async with self._asking.setdefault(digest, asyncio.Lock()):
            known = self._shown.get(digest)
            if known is None:
                known = self._shown[digest] = await self._ask_show(name)
            self._shown.move_to_end(digest)
            while len(self._shown) > _MOST_SHOWN:
                self._asking.pop(self._shown.popitem(last=False)[0], None)
            return known

    async def _ask_show(self, name: str) -> ShownModel:
        async with self._explained():
            answer = await self._http.post("/api/show", json={"model": name, "verbose": True})
            answer.raise_for_status()
            return _read_show(answer.content)

    @asynccontextmanager
    async def _explained(self) -> AsyncIterator[None]:
        """Errors of three libraries as one of ours."""
        try:
            yield
        except _ERRORS as error:
            beneath = transport_error_in(error)
            if beneath is not None:
                raise beneath from error
            raise OllamaCallFailed(f"{self._where}: {_say(error)}") from error


def _say(error: Exception) -> str:
    if isinstance(error, BodyTooLong):
        return f"it sent {error}; that is no description of a model"
    if isinstance(error, httpx.TimeoutException):
        return f"no answer in time ({error}); it may be loading or unloading, try again"
    status = None
    if isinstance(error, ollama.ResponseError):
        status = error.status_code
    elif isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
    if status in (401, 403):
        return f"HTTP {status}: it wants a key; name its variable as key_env in the config"
    if status == 404:
        return "HTTP 404: no such model, or no Ollama; see what listens there"
    if status is not None and status >= 0:
        return f"HTTP {status}; see its log"
    if isinstance(error, httpx.HTTPError):
        return f"{type(error).__name__}: {error}; see whether it still runs"
    return "its answer could not be understood; see what listens there"


def _read_show(body: bytes) -> ShownModel:
    """Raises ``ValueError`` or ``RecursionError`` for what is no description."""
    document = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError("no object")  # noqa: TRY004
    info, tensors = document.get("model_info"), document.get("tensors")
    capabilities = document.get("capabilities")
    return ShownModel(
        modelfile=read_text(document.get("modelfile"), 65536),
        model_info={
            name: value
            for name, value in (info.items() if isinstance(info, dict) else ())
            if not (isinstance(value, list | str) and len(value) > _LONGEST_LIST)
        },
        tensors=tuple(
            {key: row[key] for key in ("name", "type", "shape") if key in row}
            for row in (tensors[:_MOST_TENSORS] if isinstance(tensors, list) else ())
            if isinstance(row, dict)
        ),
        capabilities=tuple(
            text
            for one in (capabilities if isinstance(capabilities, list) else ())
            if (text := read_text(one)) is not None
        ),
    )
