"""Every key of the config file, once: its section, kind, bounds, meaning and an example."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ADDRESS_PATTERN",
    "ENGINE_KINDS",
    "KEYS",
    "LOCAL_ADDRESSES",
    "USER_PATTERN",
    "Key",
    "keys_of",
    "sections",
]

#: what a host's address says for the machine gpumon runs on
LOCAL_ADDRESSES = ("local", "localhost")
#: the engines that gpumon can read
ENGINE_KINDS = ("ollama",)


@dataclass(frozen=True, slots=True)
class Key:
    """One key, or one part of a table.

    ``kind`` is text, whole, number, switch, texts, table or tables; the last two have
    ``parts``. ``pattern`` must match a whole text, else ``form`` says what is wanted.
    """

    section: str
    name: str
    kind: str
    text: str
    example: str
    parts: tuple[Key, ...] = ()
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    pattern: str = r".+"
    form: str = "a text that is not empty"
    required: bool = False


_D, _H, _R = "defaults", "hosts.NAME", "retention"
_P, _E, _T = "hosts.NAME.price", "hosts.NAME.engines", "thresholds"
# What ssh refuses in names for it could reach a shell, and what begins an option.
_NAME = r"""[^\s:@\[\]'"`$\\;&<>|(){}-][^\s:@\[\]'"`$\\;&<>|(){}]*"""
#: the name of a host, or an IPv6 address without brackets
ADDRESS_PATTERN = rf"{_NAME}|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?"
USER_PATTERN = _NAME
_PRICE = (
    Key(_P, "hourly", "number", "for an hour", "2.1", least=0),
    Key(_P, "monthly", "number", "for a month", "900", least=0),
    Key(_P, "currency", "text", "ISO 4217", '"USD"', pattern="[A-Z]{3}", form="three capitals"),
)
_ENGINE = (
    Key(_E, "kind", "text", "what it is", '"ollama"', choices=ENGINE_KINDS, required=True),
    Key(
        _E, "url", "text", "as the host reaches it", '"http://127.0.0.1:11435"',
        pattern=r"https?://[^/@\s?#]+(/[^\s]*)?", form="an http(s) URL without user and password",
        required=True,
    ),
    Key(
        _E, "key_env", "text", "variable on this machine that holds its key", '"OLLAMA_KEY"',
        pattern=r"[A-Za-z_][A-Za-z0-9_]*", form="the name of an environment variable",
    ),
)  # fmt: skip
_LIMITS = (
    Key(_T, "warn", "number", "from here on it is worth a look", "85"),
    Key(_T, "crit", "number", "from here on it is bad", "95"),
)

KEYS: tuple[Key, ...] = (
    Key(_D, "interval_s", "number", "seconds between samples", "2.0", least=0.5, most=3600),
    Key(
        _D, "user", "text", "ssh user of the hosts below that name none", '"ops"',
        pattern=USER_PATTERN, form="the name of a user",
    ),
    Key(_D, "theme", "text", "colours: dark, light, ansi, ...", '"dark"'),
    Key(_D, "mouse", "switch", "false leaves the mouse to the terminal", "true"),
    Key(_D, "database", "text", "where samples are kept", '"~/gpumon.db"'),
    Key(_D, "local", "switch", "show this machine beside the hosts", "true"),
    Key(
        _H, "address", "text", 'ssh alias or address; "local" is this machine', '"10.0.0.7"',
        pattern=ADDRESS_PATTERN,
        form="a host's name or address; user and port are keys of their own",
    ),
    Key(
        _H, "user", "text", "ssh user", '"ubuntu"',
        pattern=USER_PATTERN, form="the name of a user",
    ),
    Key(_H, "port", "whole", "ssh port", "2222", least=1, most=65535),
    Key(_H, "tags", "texts", "words to group hosts by", '["prod", "eu"]'),
    Key(_H, "region", "text", "where it stands", '"berlin"'),
    Key(_H, "price", "table", "what it costs", '{ hourly = 2.1, currency = "USD" }', _PRICE),
    Key(
        _H, "engines", "tables", "engines that no process shows",
        '[{ kind = "ollama", url = "http://127.0.0.1:11435" }]', _ENGINE,
    ),
    Key(_H, "enabled", "switch", "false keeps it listed, unread", "true"),
    Key(
        _H, "transport", "text", '"ssh" runs the system\'s ssh program', '"asyncssh"',
        choices=("asyncssh", "ssh"),
    ),
    Key(_H, "interval_s", "number", "seconds between samples", "5.0", least=0.5, most=3600),
    Key(_H, "disks", "texts", "paths whose disks are shown too", '["/data/models"]'),
    Key(_R, "raw_h", "number", "hours that samples are kept", "48", least=1),
    Key(_R, "ten_seconds_d", "number", "days of 10 s means (not made yet)", "7", least=0),
    Key(_R, "one_minute_d", "number", "days of 1 min means (not made yet)", "90", least=0),
    Key(_R, "ten_minutes_d", "number", "days of 10 min means (not made yet)", "365", least=0),
    Key(_T, "METRIC", "table", "for a metric's value", "{ warn = 85, crit = 95 }", _LIMITS),
)  # fmt: skip


def sections() -> tuple[str, ...]:
    """The names of the top-level tables."""
    return tuple(dict.fromkeys(key.section.partition(".")[0] for key in KEYS))


def keys_of(section: str) -> dict[str, Key]:
    """The keys of ``defaults``, ``hosts.NAME``, ``retention`` or ``thresholds``."""
    return {key.name: key for key in KEYS if key.section == section}
