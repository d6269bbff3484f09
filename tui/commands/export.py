"""``gpumon export``: recorded samples as CSV or JSON lines."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from gpumon.export import ExportError, export, parse_moment
from gpumon.store import open_reader
from gpumon.tui.commands.settings import choose_database, read_config

__all__ = ["run"]

_BAR_CELLS = 30


def run(options: argparse.Namespace) -> int:
    """Write the samples asked for. Raises ``ExportError`` and ``StoreError``."""
    inventory = read_config(options)
    now = time.time()
    since = parse_moment(options.since, now)
    until = parse_moment(options.until, now) if options.until else int(now) + 1
    if until <= since:
        raise ExportError("--until is not after --since", "swap them")
    reader = open_reader(choose_database(options, inventory))
    ending = Path(options.output).suffix
    form = options.format or ("jsonl" if ending in (".jsonl", ".ndjson") else "csv")
    on_screen = options.output == "-" and sys.stdout.isatty()
    progress = _show_progress if sys.stderr.isatty() and not on_screen else None
    try:
        with _open_output(options.output, force=options.force) as file:
            rows = export(
                reader,
                options.table,
                file,
                since=since,
                until=until,
                hosts=options.host or (),
                form=form,
                on_progress=progress,
            )
    finally:
        reader.close()
        if progress:
            print("\r\x1b[K", end="", file=sys.stderr)
    if options.output != "-":
        print(f"{rows} rows written to {options.output}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def _open_output(name: str, *, force: bool) -> Iterator[TextIO]:
    """Standard output, or a file that appears only when it is whole."""
    if name == "-":
        # Line ends as the format has them, whatever the platform's are.
        with open(sys.stdout.fileno(), "w", encoding="utf-8", newline="", closefd=False) as file:
            yield file
        return
    # A link is followed, so that not the link but its file is replaced.
    path = Path(name).expanduser().resolve()
    if path.exists() and not path.is_file():
        with _explained(path), path.open("w", encoding="utf-8", newline="") as file:
            yield file  # a pipe or a device is never replaced
        return
    if path.exists() and not force:
        raise ExportError(f"{path}: exists already", "name another file, or add --force")
    with _explained(path):
        descriptor, part = tempfile.mkstemp(prefix=f".{path.name[:200]}.", dir=path.parent)
    try:
        with _explained(path):
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                yield file
            Path(part).replace(path)
    finally:
        Path(part).unlink(missing_ok=True)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Name the file where the system says why it can't be written."""
    try:
        yield
    except OSError as error:
        fix = "make room, or name another file with -o"
        raise ExportError(f"{path}: {error.strerror or error}", fix) from None


def _show_progress(seen: int, total: int) -> None:
    share = min(1.0, seen / total) if total else 1.0
    bar = "#" * round(share * _BAR_CELLS)
    print(f"\r[{bar:<{_BAR_CELLS}}] {share:4.0%} {seen} rows", end="", file=sys.stderr)
