"""``gpumon config``: make, find or check the configuration."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from gpumon.config_file import ConfigError, load_config, write_template
from gpumon.paths import config_path

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Do one of init, path, validate. Raises ``ConfigError``."""
    path = Path(options.config).expanduser() if options.config else config_path()
    if options.action == "path":
        print(path)
    elif options.action == "init":
        write_template(path)
        print(f"{path} written; every key stands in it as a comment")
    else:
        count = _validate(path)
        print(f"{path}: OK, {count} host{'' if count == 1 else 's'}")
    return 0


def _validate(path: Path) -> int:
    """Check all that can be checked without a host; returns the number of hosts."""
    inventory = load_config(path, required=True)
    if inventory.theme:
        # Its names come from Textual, which is loaded for a config that names one only.
        from gpumon.tui.themes import UnknownThemeError, choose_theme

        try:
            choose_theme(inventory.theme, os.environ)
        except UnknownThemeError as error:
            raise ConfigError([f"{path}: defaults.theme: {error}"]) from None
    return len(inventory.hosts)
