"""What several commands begin with: the inventory, the database's path, the log."""

from __future__ import annotations

import argparse
import io
import logging
import logging.handlers
import os
from pathlib import Path

from gpumon.config_file import load_config
from gpumon.inventory import Inventory
from gpumon.paths import config_path, database_path, log_path
from gpumon.targets import choose_hosts

__all__ = ["choose_database", "read_config", "read_inventory", "start_log"]

_LOG_BYTES = 2_000_000
#: Loggers that tell of every connection, and at finer levels of what passes through.
_TALKATIVE = ("asyncio", "asyncssh", "httpcore", "httpx")


def read_config(options: argparse.Namespace) -> Inventory:
    """What the config says. Raises ``ConfigError``."""
    path = Path(options.config).expanduser() if options.config else config_path()
    return load_config(path, required=bool(options.config))


def read_inventory(options: argparse.Namespace) -> Inventory:
    """The config with the hosts to watch. Raises ``ConfigError`` and ``TargetError``."""
    return choose_hosts(read_config(options), options.hosts, options.interval)


def choose_database(options: argparse.Namespace, inventory: Inventory) -> Path:
    """Where samples are kept: the option, else the config, else the user's state folder."""
    stated = options.db or inventory.database
    return Path(stated).expanduser() if stated else database_path()


class _PrivateLog(logging.handlers.RotatingFileHandler):
    """Readable by its owner only, also after it was begun anew."""

    def _open(self) -> io.TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")


def start_log(options: argparse.Namespace) -> None:
    """Log to a file of the user's own; where none can be written, to nowhere.

    Never to stderr: the screen is drawn there.
    """
    handler: logging.Handler = logging.NullHandler()
    path = log_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = _PrivateLog(path, maxBytes=_LOG_BYTES, backupCount=1)
    except OSError:
        pass
    debug = options.debug or os.environ.get("GPUMON_DEBUG") == "1"
    form = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
    handler.setFormatter(logging.Formatter(form))
    # A log that can't be written must not draw a traceback across the screen.
    logging.raiseExceptions = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
