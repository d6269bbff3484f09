"""What several commands begin with: the inventory, the database's path, the log."""

from __future__ import annotations

import argparse
import logging
import logging.handlers
import os
from pathlib import Path

from gpumon.config_file import load_config
from gpumon.inventory import Inventory
from gpumon.paths import config_path, database_path, log_path
from gpumon.targets import choose_hosts

__all__ = ["choose_database", "read_inventory", "start_log"]

_LOG_BYTES = 2_000_000


def read_inventory(options: argparse.Namespace) -> Inventory:
    """The config with the hosts to watch. Raises ``ConfigError`` and ``TargetError``."""
    path = Path(options.config) if options.config else config_path()
    inventory = load_config(path, required=bool(options.config))
    return choose_hosts(inventory, getattr(options, "hosts", ()), options.interval)


def choose_database(options: argparse.Namespace, inventory: Inventory) -> Path:
    """Where samples are kept: the option, else the config, else the user's state folder."""
    stated = options.db or inventory.database
    return Path(stated).expanduser() if stated else database_path()


def start_log(options: argparse.Namespace) -> None:
    """Log to a file of the user's own; where none can be written, to nowhere.

    Never to stderr: the screen is drawn there.
    """
    path = log_path()
    handler: logging.Handler = logging.NullHandler()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        handler = logging.handlers.RotatingFileHandler(
            path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8"
        )
    except OSError:
        pass
    debug = options.debug or os.environ.get("GPUMON_DEBUG") == "1"
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    # It tells of every connection, and at its finer levels of what passes through.
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    logging.getLogger("httpx").setLevel(logging.WARNING)
