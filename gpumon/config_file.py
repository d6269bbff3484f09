"""From the config file's text to an ``Inventory``, or to errors a person can act on."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpumon.config_checks import Checks
from gpumon.config_keys import KEYS, LOCAL_ADDRESSES, keys_of, sections
from gpumon.errors import GpumonError
from gpumon.inventory import EngineConfig, HostConfig, Inventory, Retention
from gpumon.metrics import METRICS

__all__ = ["ConfigError", "load_config", "parse_config", "template", "write_template"]


class ConfigError(GpumonError):
    """All that is wrong with a config, one line each: file, line, key, what is meant."""

    def __init__(self, problems: Iterable[str], fix: str | None = None) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems), fix)


def load_config(path: Path, *, required: bool) -> Inventory:
    """Read and check a config file. No file is an empty config, unless it was asked for.

    Raises ``ConfigError``.
    """
    try:
        # Some editors put a byte order mark first, which is no TOML.
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        if required:
            raise ConfigError([f"{path}: no such file"], "gpumon config init makes one") from None
        return Inventory()
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: not UTF-8 at byte {error.start}"], "save it so") from None
    except OSError as error:
        raise ConfigError([f"{path}: can't be read: {error.strerror}"]) from None
    return parse_config(text, str(path))


def parse_config(text: str, path: str = "config.toml") -> Inventory:
    """Parse and check a config's text. Raises ``ConfigError`` that lists every problem."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([_describe_syntax(error, text, path)]) from None
    except RecursionError:
        raise ConfigError([f"{path}: nested too deep"]) from None
    checks = Checks(text, path)
    for name in document.keys() - set(sections()):
        checks.complain_unknown((name,), sections())
    defaults = _read_section(checks, document, "defaults")
    retention = _read_section(checks, document, "retention")
    hosts = _read_hosts(checks, document, defaults)
    thresholds = _read_thresholds(checks, document)
    if checks.problems:
        raise ConfigError(checks.problems)
    return Inventory(
        hosts=hosts,
        interval_s=float(defaults.get("interval_s", 2.0)),
        theme=defaults.get("theme"),
        mouse=defaults.get("mouse", True),
        database=defaults.get("database"),
        retention=Retention(**{name: float(value) for name, value in retention.items()}),
        thresholds=thresholds,
        path=path,
        local=defaults.get("local", True),
    )


def _describe_syntax(error: tomllib.TOMLDecodeError, text: str, path: str) -> str:
    message, _, where = str(error).rstrip(")").partition(" (at ")
    line = where.removeprefix("line ").partition(",")[0]
    if not line.isdecimal():  # "at end of document"
        line = str(text.count("\n") + 1)
    return f"{path}:{line}: this is no TOML: {message}"


def _read_table(checks: Checks, document: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = document.get(name, {})
    if isinstance(table, dict):
        return table
    shown = f"{name}.NAME" if name == "hosts" else name
    checks.complain((name,), f"must be a table [{shown}]")
    return {}


def _read_section(checks: Checks, document: Mapping[str, Any], name: str) -> dict[str, Any]:
    return checks.keep_good((name,), _read_table(checks, document, name), keys_of(name))


def _read_hosts(
    checks: Checks, document: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[HostConfig, ...]:
    hosts = []
    for name, row in _read_table(checks, document, "hosts").items():
        place = ("hosts", name)
        if not isinstance(row, dict):
            checks.complain(place, f"must be a table [hosts.{name}]")
            continue
        before = len(checks.problems)
        if "address" not in row:
            # The name is what ssh is given, then.
            checks.is_right(place, name, keys_of("hosts.NAME")["address"])
        values = checks.keep_good(place, row, keys_of("hosts.NAME"))
        if len(checks.problems) == before:
            hosts.append(_read_host(name, values, defaults))
    return tuple(hosts)


def _read_host(name: str, values: dict[str, Any], defaults: Mapping[str, Any]) -> HostConfig:
    address = values.pop("address", name)
    # ssh to this machine, as its own user or through a forwarded port, is ssh.
    local = address in LOCAL_ADDRESSES and not values.keys() & {"user", "port"}
    return HostConfig(
        name=name,
        address=None if local else address,
        user=values.pop("user", None if local else defaults.get("user")),
        tags=tuple(values.pop("tags", ())),
        disks=tuple(values.pop("disks", ())),
        interval_s=float(values.pop("interval_s", defaults.get("interval_s", 2.0))),
        engines=tuple(EngineConfig(**row) for row in values.pop("engines", ())),
        **values,
    )


def _read_thresholds(
    checks: Checks, document: Mapping[str, Any]
) -> dict[str, tuple[float | None, float | None]]:
    key = keys_of("thresholds")["METRIC"]
    known = sorted({metric.name for metric in METRICS if metric.kind == "gauge"})
    table = _read_table(checks, document, "thresholds")
    good = checks.keep_good(("thresholds",), table, dict.fromkeys(known, key))
    return {name: (row.get("warn"), row.get("crit")) for name, row in good.items()}


def template() -> str:
    """A config in which every key stands as a comment with its meaning."""
    lines = [
        "# gpumon's configuration. Every key is optional; what is commented out is an example.",
        "# Check it with: gpumon config validate",
    ]
    section = ""
    for key in KEYS:
        if key.section != section:
            section = key.section
            # A host must not appear by itself, an empty section does no harm.
            lines += ["", "# [hosts.gpu-1]" if section == "hosts.NAME" else f"[{section}]"]
        name = "util_percent" if key.name == "METRIC" else key.name
        lines.append(f"{f'# {name} = {key.example}':<64}# {key.text}")
    return "\n".join(lines) + "\n"


def write_template(path: Path) -> None:
    """Write the commented template, readable by its owner only; never over a file.

    Raises ``ConfigError``.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if path.exists() or path.is_symlink():
            message = "exists already and was left as it is"
            raise ConfigError([f"{path}: {message}"], "edit it, or name another file") from None
        raise ConfigError([f"{path.parent}: is no folder"]) from None
    except OSError as error:
        raise ConfigError([f"{path}: can't be written: {error.strerror}"]) from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(template())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise ConfigError([f"{path}: can't be written: {error.strerror}"]) from None
