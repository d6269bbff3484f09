"""Every key of the config file, once: its section, type, meaning and an example."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KEYS", "Key", "keys_of", "sections"]


@dataclass(frozen=True, slots=True)
class Key:
    """One key; ``kind`` is text, whole, number, switch, texts, table or tables."""

    section: str
    name: str
    kind: str
    text: str
    example: str
    #: keys of a table (name -> kind), where ``kind`` is table or tables
    parts: tuple[tuple[str, str], ...] = ()
    #: the only values allowed
    choices: tuple[str, ...] = ()
    least: float | None = None


_PRICE = (("hourly", "number"), ("monthly", "number"), ("currency", "text"))
_ENGINE = (("kind", "text"), ("url", "text"), ("key_env", "text"))

KEYS: tuple[Key, ...] = (
    Key("defaults", "interval_s", "number", "seconds between two samples", "2.0", least=0.5),
    Key("defaults", "user", "text", "ssh user where a host names none", '"ops"'),
    Key("defaults", "theme", "text", "colour theme; see gpumon --help", '"dark"'),
    Key("defaults", "mouse", "switch", "false leaves the mouse to the terminal", "true"),
    Key("defaults", "database", "text", "where samples are kept", '"/var/lib/gpumon/gpumon.db"'),
    Key("defaults", "local", "switch", "show this machine beside the hosts", "true"),
    Key("hosts.NAME", "address", "text", 'ssh alias or address; "local" = here', '"10.0.0.7"'),
    Key("hosts.NAME", "user", "text", "ssh user", '"ubuntu"'),
    Key("hosts.NAME", "port", "whole", "ssh port", "2222", least=1),
    Key("hosts.NAME", "tags", "texts", "words to filter by", '["prod", "eu"]'),
    Key("hosts.NAME", "region", "text", "where it stands", '"berlin"'),
    Key(
        "hosts.NAME",
        "price",
        "table",
        "what it costs",
        '{ hourly = 2.1, currency = "USD" }',
        _PRICE,
    ),
    Key(
        "hosts.NAME",
        "engines",
        "tables",
        "engines that no process shows",
        '[{ kind = "ollama", url = "http://127.0.0.1:11434" }]',
        _ENGINE,
    ),
    Key("hosts.NAME", "enabled", "switch", "false keeps the host listed, unread", "true"),
    Key(
        "hosts.NAME",
        "transport",
        "text",
        '"ssh" runs the system\'s ssh program',
        '"asyncssh"',
        choices=("asyncssh", "ssh"),
    ),
    Key("hosts.NAME", "interval_s", "number", "seconds between two samples", "2.0", least=0.5),
    Key("hosts.NAME", "disks", "texts", "paths whose disks are shown", '["/data/models"]'),
    Key("retention", "raw_h", "number", "hours that samples are kept", "48", least=1),
    Key("retention", "ten_seconds_d", "number", "days of 10 s means (not made yet)", "7", least=0),
    Key("retention", "one_minute_d", "number", "days of 1 min means (not made yet)", "90", least=0),
    Key(
        "retention",
        "ten_minutes_d",
        "number",
        "days of 10 min means (not made yet)",
        "365",
        least=0,
    ),
    Key(
        "thresholds",
        "METRIC",
        "table",
        "warn and crit",
        "{ warn = 85, crit = 95 }",
        (("warn", "number"), ("crit", "number")),
    ),
)


def sections() -> tuple[str, ...]:
    """The names of the top-level tables."""
    return tuple(dict.fromkeys(key.section.partition(".")[0] for key in KEYS))


def keys_of(section: str) -> dict[str, Key]:
    """The keys of ``defaults``, ``hosts.NAME``, ``retention`` or ``thresholds``."""
    return {key.name: key for key in KEYS if key.section == section}
