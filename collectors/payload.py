"""What is sent to a host: the probe's source as one compressed Python text.

Scheme: every file of ``collectors/probe/`` becomes the module ``gpumon_probe_<file>``, and
the files import each other by those names. nvidia-ml-py's ``pynvml`` travels as it is,
licence header included, compressed on its own: it is inflated and compiled only when
the probe's NVML reader imports it, which it does where it has found an NVIDIA driver's
library. The client can't know that before it connects, and 50 KB once per connection
cost less than another round trip.
"""

from __future__ import annotations

import binascii
import functools
import importlib.util
import json
import re
import sys
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "HEARTBEAT",
    "ProbeConfig",
    "Request",
    "build_payload",
    "install_probe_modules",
    "probe_sources",
    "pynvml_source",
    "set_line",
]

#: Sent to the probe every few seconds; without one it ends after ``heartbeat_timeout_s``.
HEARTBEAT = b"h\n"

_PROBE = Path(__file__).with_name("probe")


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request that the probe repeats on its host."""

    #: names the answer; another request under the same id starts anew
    id: str
    port: int
    path: str
    host: str = "127.0.0.1"
    method: str = "GET"
    body: str | None = None
    every_s: float = 15.0
    #: more of a body is not read; at most 524288
    cap_bytes: int = 262144
    #: for the whole exchange
    timeout_s: float = 5.0
    #: ask only while this process burns CPU or a GPU, once at the start, and once more
    #: after it stopped
    busy_pid: int | None = None
    #: id of a request whose newest answer must be 2xx
    gate: str | None = None
    #: sent as ``Authorization: Bearer``; never on a command line
    bearer: str | None = None
    #: ask at once (2 s apart at the least) when other processes are watched than before
    on_change: bool = True


@dataclass(frozen=True, slots=True)
class ProbeConfig:
    """All that a probe is told. Everything but the nonce can be changed while it runs."""

    nonce: str
    interval_s: float = 2.0
    heartbeat_timeout_s: float = 30.0
    #: regular expressions, searched for in a process's comm, in the base name of its
    #: argv[0] and in its arguments joined by spaces
    watch: tuple[str, ...] = ()
    #: regular expressions that the whole name of a variable must match to be sent; names
    #: of secrets are never sent
    env_names: tuple[str, ...] = ()
    disks: tuple[str, ...] = ()
    requests: tuple[Request, ...] = ()
    slow_every_s: float = 10.0
    #: False: leave NVIDIA cards alone
    pynvml: bool = True
    #: where else to look for libnvidia-ml.so.1
    nvml_paths: tuple[str, ...] = ()


def _ascii(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def set_line(**changes: Any) -> bytes:
    """The line for the probe's stdin that changes fields of its ``ProbeConfig``.

    Raises ``TypeError`` for a name that is no field.
    """
    plain: dict[str, object] = {}
    for name, value in changes.items():
        if name not in ProbeConfig.__dataclass_fields__:
            raise TypeError(f"ProbeConfig has no field {name}")
        plain[name] = [asdict(one) for one in value] if name == "requests" else value
    return _ascii({"set": plain}).encode("ascii") + b"\n"


@functools.cache
def probe_sources() -> Mapping[str, str]:
    """Module name on the host -> source text, for every file of the probe."""
    return {
        f"gpumon_probe_{path.stem}": path.read_text(encoding="utf-8")
        for path in sorted(_PROBE.glob("*.py"))
        if path.stem not in ("__init__", "loader")
    }


def pynvml_source() -> bytes | None:
    """The text of the installed ``pynvml`` of nvidia-ml-py; None where it is missing."""
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin).read_bytes()


def _without_comments(source: str) -> str:
    """Our own source without lines that are only a comment, which the host never reads."""
    return re.sub(r"^[ \t]*#[^\n]*$", "", source, flags=re.M)


@functools.cache
def _head(with_pynvml: bool) -> tuple[bytes, Any]:
    """The compressed text up to the config, and the compressor in that state."""
    sources = {name: _without_comments(text) for name, text in probe_sources().items()}
    packed: dict[str, str] = {}
    if with_pynvml and (source := pynvml_source()) is not None:
        packed["pynvml"] = binascii.b2a_base64(zlib.compress(source, 9), newline=False).decode()
    loader = _without_comments((_PROBE / "loader.py").read_text(encoding="utf-8"))
    text = (
        "import sys\n"
        "if sys.version_info < (3, 6):\n    sys.exit(97)\n"
        f"{loader}\n"
        f"SourceFinder({sources!r}, {packed!r}).install()\n"
        "from gpumon_probe_main import run\n"
    )
    compressor = zlib.compressobj(9)
    return compressor.compress(text.encode("utf-8")), compressor


def build_payload(config: ProbeConfig, *, with_pynvml: bool = True) -> bytes:
    """The zlib-compressed Python source to send after its length.

    All but the config is compressed once per process, so that a thousand hosts cost
    little more than one.
    """
    head, compressor = _head(with_pynvml)
    tail = f"run({_ascii(asdict(config))!r})\n".encode()
    ending = compressor.copy()
    return head + bytes(ending.compress(tail)) + bytes(ending.flush())


def install_probe_modules() -> None:
    """Make the probe's modules importable here under their names on the host.

    For tests and benchmarks; a second call changes nothing.
    """
    from gpumon.collectors.probe import loader

    # written for Python 3.6 and so without annotations
    finder: Any = loader.SourceFinder
    if not any(isinstance(one, finder) for one in sys.meta_path):
        finder(probe_sources()).install()
