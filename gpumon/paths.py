"""Where gpumon keeps its files (XDG Base Directory Specification 0.8)."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["config_path", "database_path", "log_path"]


def _base(variable: str, fallback: str) -> Path:
    stated = os.environ.get(variable, "")
    # A relative path in these variables is invalid and to be ignored, says the standard.
    return Path(stated) if stated.startswith("/") else Path.home() / fallback


def config_path() -> Path:
    """``$XDG_CONFIG_HOME/gpumon/config.toml``."""
    return _base("XDG_CONFIG_HOME", ".config") / "gpumon" / "config.toml"


def database_path() -> Path:
    """``$XDG_STATE_HOME/gpumon/gpumon.db``."""
    return _base("XDG_STATE_HOME", ".local/state") / "gpumon" / "gpumon.db"


def log_path() -> Path:
    """``$XDG_STATE_HOME/gpumon/gpumon.log``."""
    return database_path().with_suffix(".log")
