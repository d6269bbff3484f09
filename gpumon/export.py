"""Recorded samples as CSV (RFC 4180) or JSON lines, streamed."""

from __future__ import annotations

import csv
import difflib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

from gpumon.errors import GpumonError
from gpumon.metrics import metrics_of
from gpumon.store.reader import SUBJECTS, Sample, StoreReader
from gpumon.text import safe

__all__ = ["ExportError", "columns_of", "export", "parse_moment"]

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
#: A spreadsheet takes a cell that begins so for a formula (OWASP, CSV Injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


class ExportError(GpumonError):
    """An export that can't be made as asked."""


def parse_moment(text: str, now: float) -> int:
    """Epoch second of ``30m``, ``24h``, ``7d`` (ago) or an ISO date, UTC where none is named.

    Raises ``ExportError``.
    """
    if text.strip().lower() == "now":
        return int(now)
    if match := _AGO.fullmatch(text.strip()):
        ago_s = float(match[1]) * _UNITS_S[match[2]]
        return int(now - ago_s) if ago_s < now else 0
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ExportError(
            f"{text!r} is no time", "write 30m, 24h, 7d, 2026-11-30 or 2026-11-30T08:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp())


def columns_of(table: str) -> list[str]:
    """The header of an export; measures carry their unit in the name."""
    return ["time", *SUBJECTS[table], *(metric.heading for metric in metrics_of(table))]


def export(
    reader: StoreReader,
    table: str,
    file: TextIO,
    *,
    since: int,
    until: int,
    hosts: Sequence[str] = (),
    form: str = "csv",
    on_progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write the samples of ``[since, until)``; returns how many rows were written.

    ``on_progress`` is called with rows looked at and their number in all. Raises
    ``ExportError`` for an unknown host and ``StoreError``.
    """
    _check_hosts(reader, hosts)
    total = reader.count_rows(table, since, until) if on_progress else 0
    write = _write_csv if form == "csv" else _write_jsonl
    chunks = reader.export_rows(table, since, until, hosts)
    written = 0
    for count, seen in write(file, table, chunks):
        written += count
        if on_progress is not None:
            on_progress(seen, total)
    return written


def _check_hosts(reader: StoreReader, hosts: Sequence[str]) -> None:
    known = reader.host_names()
    for host in hosts:
        if host not in known:
            near = difflib.get_close_matches(host, known, n=1)
            hint = (
                f'did you mean "{near[0]}"?' if near else f"recorded: {', '.join(known) or 'none'}"
            )
            raise ExportError(f"host {host!r} was never recorded", hint)


_Chunks = Iterator[tuple[int, list[Sample]]]


def _write_csv(file: TextIO, table: str, chunks: _Chunks) -> Iterator[tuple[int, int]]:
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(columns_of(table))
    for seen, samples in chunks:
        writer.writerows(_cells(sample) for sample in samples)
        yield len(samples), seen


def _cells(sample: Sample) -> list[str]:
    values = (*sample.subject, *sample.values)
    return [_iso(sample.at), *(_cell(value) for value in values)]


def _cell(value: Any) -> str:
    """Empty = unknown. Text that a spreadsheet would run gets a quote in front.

    Control characters, which RFC 4180 has no place for and a terminal would obey, are escaped.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, str):
        text = safe(value)
        return f"'{text}" if text.startswith(_FORMULA) else text
    return str(value)


def _iso(second: int) -> str:
    # Not fromtimestamp, which ends at the year 9999 and at the platform's own limits.
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _write_jsonl(file: TextIO, table: str, chunks: _Chunks) -> Iterator[tuple[int, int]]:
    names = columns_of(table)
    for seen, samples in chunks:
        for sample in samples:
            row = dict(zip(names, (_iso(sample.at), *sample.subject, *sample.values), strict=True))
            # ASCII, so that no text of a host reaches a terminal as it is.
            file.write(json.dumps(row, allow_nan=False) + "\n")
        yield len(samples), seen
