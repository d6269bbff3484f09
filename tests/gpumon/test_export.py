"""CSV by RFC 4180 and JSON lines, safe for a spreadsheet, streamed."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from gpumon.export import ExportError, columns_of, export, parse_moment
from gpumon.inventory import Retention
from gpumon.metrics import TABLES
from gpumon.store import open_reader, open_writer
from gpumon.store.reader import StoreReader
from tests.gpumon.store.conftest import HOSTILE, make_view

T = 1_800_000_000


@pytest.fixture
async def reader(tmp_path: Path):
    database = tmp_path / "gpumon.db"
    writer = open_writer(database, retention=Retention())
    for step in range(3):
        writer.offer(make_view(T + 2 * step, host="=berlin"))
        writer.offer(make_view(T + 2 * step, host="ams"))
    await writer.flush()
    await writer.close()
    found = open_reader(database)
    yield found
    found.close()


def write(reader: StoreReader, table: str, **more: object) -> str:
    file = io.StringIO(newline="")
    export(reader, table, file, **({"since": T, "until": T + 100} | more))  # type: ignore[arg-type]
    return file.getvalue()


@pytest.mark.parametrize("table", TABLES)
def test_csv_is_rfc_4180(reader: StoreReader, table: str) -> None:
    text = write(reader, table)
    assert text.endswith("\r\n")
    assert "\n" not in text.replace("\r\n", "")
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == columns_of(table)
    assert {len(row) for row in rows} == {len(rows[0])}
    assert rows[1][0] == "2027-01-15T08:00:00Z"


def test_unknown_is_an_empty_cell_and_0_is_not(reader: StoreReader) -> None:
    rows = list(csv.DictReader(io.StringIO(write(reader, "gpu"))))
    assert rows[0]["temperature_c"] == ""
    assert rows[0]["util_percent"] == "12.3"
    models = list(csv.DictReader(io.StringIO(write(reader, "model"))))
    assert models[0]["prefill_tokens_per_s"] == "0.0"
    assert models[0]["vram_bytes"] == ""


def test_no_cell_begins_like_a_formula(reader: StoreReader) -> None:
    for row in csv.reader(io.StringIO(write(reader, "process"))):
        for cell in row:
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    rows = list(csv.DictReader(io.StringIO(write(reader, "process"))))
    assert rows[0]["command"] == "'=cmd|' /C'!A0"
    assert {row["host"] for row in rows} == {"'=berlin", "ams"}


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("table", ["gpu", "model"])
def test_nothing_that_a_terminal_obeys_is_written(
    reader: StoreReader, table: str, form: str
) -> None:
    text = write(reader, table, form=form)
    assert "evil" in text
    assert all(one.isprintable() or one in "\r\n" for one in text)
    assert "\u202e" not in text


def test_json_lines_keep_types_and_text(reader: StoreReader) -> None:
    rows = [json.loads(line) for line in write(reader, "gpu", form="jsonl").splitlines()]
    assert len(rows) == 18
    assert (rows[0]["host"], rows[0]["name"]) == ("=berlin", HOSTILE)
    assert (rows[0]["temperature_c"], rows[0]["util_percent"]) == (None, 12.3)


def test_a_host_and_a_time_may_be_chosen(reader: StoreReader) -> None:
    rows = list(
        csv.DictReader(io.StringIO(write(reader, "host", hosts=("ams",), since=T + 2, until=T + 4)))
    )
    assert [(row["host"], row["time"]) for row in rows] == [("ams", "2027-01-15T08:00:02Z")]


def test_a_host_never_recorded_is_told_with_the_nearest(reader: StoreReader) -> None:
    with pytest.raises(ExportError) as caught:
        write(reader, "host", hosts=("amz",))
    assert caught.value.fix == 'did you mean "ams"?'


def test_progress_reaches_all_rows(reader: StoreReader) -> None:
    seen: list[tuple[int, int]] = []
    write(reader, "gpu", on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(18, 18)]


@pytest.mark.parametrize(
    ("text", "second"),
    [
        ("30m", T - 1800),
        ("24h", T - 86400),
        ("1.5h", T - 5400),
        ("7d", T - 7 * 86400),
        ("now", T),
        ("2027-01-15", T - 8 * 3600),
        ("2027-01-15T08:00", T),
        ("2027-01-15T08:00:00Z", T),
        ("2027-01-15T09:00+01:00", T),
        ("99999w", 0),
        ("9" * 400 + "w", 0),
    ],
)
def test_moments(text: str, second: int) -> None:
    assert parse_moment(text, T + 0.5) == second


@pytest.mark.parametrize("text", ["", "yesterday", "5", "-3h", "2027-13-01", "7 dd"])
def test_no_moment(text: str) -> None:
    with pytest.raises(ExportError):
        parse_moment(text, T)
