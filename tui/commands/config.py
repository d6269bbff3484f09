"""``gpumon config``: make, find or check the configuration."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpumon.config_file import load_config, write_template
from gpumon.paths import config_path

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Do one of init, path, validate. Raises ``ConfigError``."""
    path = Path(options.config) if options.config else config_path()
    if options.action == "path":
        print(path)
    elif options.action == "init":
        write_template(path)
        print(f"{path} written; every key stands in it as a comment")
    else:
        inventory = load_config(path, required=True)
        count = len(inventory.hosts)
        print(f"{path}: good, {count} host{'' if count == 1 else 's'}")
    return 0
