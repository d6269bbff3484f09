"""From the config file's text to an ``Inventory``, or to errors a person can act on."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpumon.config_keys import KEYS, Key, keys_of, sections
from gpumon.errors import GpumonError
from gpumon.inventory import EngineConfig, HostConfig, Inventory, Retention

__all__ = ["LOCAL_ADDRESS", "ConfigError", "load_config", "parse_config", "write_template"]

#: what a host's address says for the machine gpumon runs on
LOCAL_ADDRESS = "local"
_TABLE = re.compile(r"^\s*\[+\s*([^\]]+?)\s*\]+")
_KEY = re.compile(
    r"""^\s*((?:"[^"]*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)\s*="""
)
_KIND_NAMES = {
    "text": "a text in quotes",
    "whole": "a whole number",
    "number": "a number",
    "switch": "true or false",
    "texts": "a list of texts",
    "table": "a table { ... }",
    "tables": "a list of tables [{ ... }]",
}


class ConfigError(GpumonError):
    """All that is wrong with a config file, one line each: file, line, key, nearest key."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems), "gpumon config validate")


class _Reading:
    """One pass over a document, collecting what is wrong."""

    def __init__(self, text: str, path: str) -> None:
        self._path = path
        self._lines = _find_lines(text)
        self.problems: list[str] = []

    def complain(self, place: tuple[str, ...], message: str) -> None:
        """Note a problem at a key, with its line."""
        line = next(
            (
                self._lines[place[:end]]
                for end in range(len(place), 0, -1)
                if place[:end] in self._lines
            ),
            None,
        )
        where = f"{self._path}:{line}" if line else self._path
        self.problems.append(f"{where}: {'.'.join(place)}: {message}")

    def complain_unknown(self, place: tuple[str, ...], known: Iterable[str]) -> None:
        """Note an unknown key, and the nearest that exists."""
        names = list(known)
        near = difflib.get_close_matches(place[-1], names, n=1, cutoff=0.5)
        hint = f'; did you mean "{near[0]}"?' if near else f"; known: {', '.join(names)}"
        self.complain(place, f"unknown key{hint}")

    def check(self, place: tuple[str, ...], value: object, key: Key) -> bool:
        """True where a value is what its key takes."""
        if not self._check_kind(place, value, key.kind):
            return False
        if key.choices and value not in key.choices:
            self.complain(place, f"{value!r} is none of {', '.join(key.choices)}")
            return False
        if key.least is not None and isinstance(value, int | float) and value < key.least:
            self.complain(place, f"{value} is less than {key.least:g}")
            return False
        rows = value if key.kind == "tables" else [value] if key.kind == "table" else []
        good = True
        for row in rows if isinstance(rows, list) else []:
            good = self._check_parts(place, row, dict(key.parts)) and good
        return good

    def _check_parts(self, place: tuple[str, ...], row: object, parts: Mapping[str, str]) -> bool:
        if not isinstance(row, dict):
            self.complain(place, f"must be {_KIND_NAMES['tables']}")
            return False
        good = True
        for name, value in row.items():
            if name not in parts:
                self.complain_unknown((*place, name), parts)
                good = False
            else:
                good = self._check_kind((*place, name), value, parts[name]) and good
        return good

    def _check_kind(self, place: tuple[str, ...], value: object, kind: str) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = {
            "text": isinstance(value, str),
            "whole": number and isinstance(value, int),
            "number": number,
            "switch": isinstance(value, bool),
            "texts": isinstance(value, list) and all(isinstance(one, str) for one in value),
            "table": isinstance(value, dict),
            "tables": isinstance(value, list),
        }[kind]
        if not fits:
            shown = type(value).__name__ if isinstance(value, dict | list) else repr(value)
            self.complain(place, f"must be {_KIND_NAMES[kind]}, not {shown}")
        return fits


def _find_lines(text: str) -> dict[tuple[str, ...], int]:
    """Where each table and key stands; keys of inline tables are found by their parent."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _TABLE.match(line):
            table = _split(match[1])
            for end in range(1, len(table) + 1):
                found.setdefault(table[:end], number)
        elif match := _KEY.match(line):
            found.setdefault((*table, *_split(match[1])), number)
    return found


def _split(dotted: str) -> tuple[str, ...]:
    parts = re.findall(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)", dotted)
    return tuple(next(filter(None, part), "") for part in parts)


def load_config(path: Path, *, required: bool) -> Inventory:
    """Read and check a config file. No file is an empty config, unless it was asked for.

    Raises ``ConfigError``.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if required:
            raise ConfigError([f"{path}: no such file"]) from None
        return Inventory()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: can't be read: {error}"]) from None
    return parse_config(text, str(path))


def parse_config(text: str, path: str = "config.toml") -> Inventory:
    """Parse and check a config's text. Raises ``ConfigError`` that lists every problem."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, where = str(error).partition(" (at line ")
        line = where.partition(",")[0]
        place = f"{path}:{line}" if line.isdigit() else path
        raise ConfigError([f"{place}: no TOML: {message}"]) from None
    reading = _Reading(text, path)
    for name in document:
        if name not in sections():
            reading.complain_unknown((name,), sections())
    defaults = _read_section(reading, document, "defaults")
    retention = _read_section(reading, document, "retention")
    hosts = _read_hosts(reading, document, defaults)
    thresholds = _read_thresholds(reading, document)
    if reading.problems:
        raise ConfigError(reading.problems)
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


def _read_section(reading: _Reading, document: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        reading.complain((name,), "must be a table")
        return {}
    return _read_keys(reading, (name,), table, keys_of(name))


def _read_keys(
    reading: _Reading, place: tuple[str, ...], table: Mapping[str, Any], known: Mapping[str, Key]
) -> dict[str, Any]:
    good: dict[str, Any] = {}
    for name, value in table.items():
        if name not in known:
            reading.complain_unknown((*place, name), known)
        elif reading.check((*place, name), value, known[name]):
            good[name] = value
    return good


def _read_hosts(
    reading: _Reading, document: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[HostConfig, ...]:
    table = document.get("hosts", {})
    if not isinstance(table, dict):
        reading.complain(("hosts",), "must be tables named [hosts.NAME]")
        return ()
    hosts = []
    for name, row in table.items():
        if not isinstance(row, dict):
            reading.complain(("hosts", name), f"must be a table [hosts.{name}]")
            continue
        values = _read_keys(reading, ("hosts", name), row, keys_of("hosts.NAME"))
        engines = tuple(_read_engine(reading, name, one) for one in values.pop("engines", ()))
        address = values.pop("address", name)
        hosts.append(
            HostConfig(
                name=name,
                address=None if address == LOCAL_ADDRESS else address,
                user=values.pop("user", defaults.get("user")),
                tags=tuple(values.pop("tags", ())),
                disks=tuple(values.pop("disks", ())),
                interval_s=float(values.pop("interval_s", defaults.get("interval_s", 2.0))),
                engines=tuple(engine for engine in engines if engine is not None),
                **values,
            )
        )
    return tuple(hosts)


def _read_engine(reading: _Reading, host: str, row: Mapping[str, Any]) -> EngineConfig | None:
    place = ("hosts", host, "engines")
    if not row.get("kind") or not row.get("url"):
        reading.complain(place, "each needs kind and url")
        return None
    url = row["url"]
    if not re.match(r"https?://[^/@]+(/|$)", url):
        reading.complain(place, f"{url!r} is no http(s) URL without a user and password")
        return None
    return EngineConfig(row["kind"], url, row.get("key_env"))


def _read_thresholds(
    reading: _Reading, document: Mapping[str, Any]
) -> dict[str, tuple[float | None, float | None]]:
    table = document.get("thresholds", {})
    key = keys_of("thresholds")["METRIC"]
    found: dict[str, tuple[float | None, float | None]] = {}
    if not isinstance(table, dict):
        reading.complain(("thresholds",), "must be a table")
        return found
    for name, row in table.items():
        if reading.check(("thresholds", name), row, key):
            found[name] = (row.get("warn"), row.get("crit"))
    return found


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
            name = section.replace("NAME", "gpu-1")
            shown = f"[{name}]"
            lines += ["", f"# {shown}" if "gpu-1" in name else shown]
        name = "util_percent" if key.name == "METRIC" else key.name
        setting = f"# {name} = {key.example}"
        lines.append(f"{setting:<64}# {key.text}")
    return "\n".join(lines) + "\n"


def write_template(path: Path) -> None:
    """Write the commented template, readable by its owner only; never over a file.

    Raises ``ConfigError``.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError([f"{path}: exists already and was left as it is"]) from None
    except OSError as error:
        raise ConfigError([f"{path}: can't be written: {error.strerror}"]) from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(template())
