"""The processes on a host's cards: one row for each process and card."""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.snapshot import GpuProcess, HostView
from gpumon.text import safe
from gpumon.tui.format import age, gib_tenths, percent
from gpumon.tui.rows.cell import Cell, Row, figure, unknown
from gpumon.tui.rows.figures import Freshness, gpus_freshness
from gpumon.tui.rows.gpus import gpu_label
from gpumon.tui.tones import Tone
from gpumon.tui.widgets.columns import Column, Content

__all__ = ["PROCESS_COLUMNS", "no_processes_text", "process_rows"]

PROCESS_COLUMNS = (
    Column("pid", "PID", Content.FIGURES),
    Column("user", "USER", Content.NAME, least=6, usual=9, most=16, gives_way=2),
    Column("gpu", "GPU", Content.WORD, least=3, usual=6),
    Column("name", "PROCESS", Content.NAME, usual=14, names_row=True),
    Column("kind", "KIND", Content.WORD, usual=7, gives_way=5),
    Column("vram", "VRAM GiB", Content.GIB, short="GiB"),
    Column("sm", "SM", Content.PERCENT),
    Column("cpu", "CPU", Content.PERCENT, gives_way=1),
    Column("rss", "RSS GiB", Content.GIB, short="RSS", gives_way=3),
    Column("since", "UP", Content.AGE, gives_way=4),
    Column("command", "COMMAND", Content.TEXT, stretches=True),
)


def no_processes_text(view: HostView | None) -> str:
    """Why there is no row."""
    if view is None or view.snapshot is None:
        return "not read yet"
    if not view.snapshot.gpus:
        return "none: there is no GPU to be on"
    if view.snapshot.processes is None:
        return "n/a: the list could not be read"
    return "none on any GPU"


def process_rows(view: HostView, now: float) -> list[Row]:
    """Rows in the driver's order."""
    snapshot = view.snapshot
    if snapshot is None:
        return []
    old = gpus_freshness(view, now) is not Freshness.FRESH
    labels = {gpu.uuid: gpu for gpu in snapshot.gpus}
    rows = []
    for process in snapshot.processes or ():
        gpu = labels.get(process.gpu_uuid)
        slice_of = labels.get(gpu.parent_uuid) if gpu and gpu.parent_uuid else None
        label = "?" if gpu is None else gpu_label(slice_of or gpu)
        rows.append(_row(process, f"{label} MIG" if slice_of else label, old=old))
    return rows


def _row(process: GpuProcess, gpu: str, *, old: bool) -> Row:
    why: Mapping[str, str] = process.unknown
    command = safe(process.command, 400) if process.command else ""
    cells = (
        Cell(str(process.pid), sort=process.pid),
        _text(process.user, "user", why, 32),
        Cell(gpu, sort=gpu),
        _text(process.name, "name", why, 40, Tone.STRONG),
        Cell(safe(process.kind, 20), Tone.DIM, sort=process.kind),
        figure(process.memory_bytes, gib_tenths(process.memory_bytes or 0), "memory_bytes", why),
        figure(process.sm_percent, percent(process.sm_percent or 0), "sm_percent", why),
        figure(process.cpu_percent, percent(process.cpu_percent or 0), "cpu_percent", why),
        figure(process.rss_bytes, gib_tenths(process.rss_bytes or 0), "rss_bytes", why),
        figure(process.started_s_ago, age(process.started_s_ago or 0), "started_s_ago", why),
        Cell(command, Tone.DIM, sort=command)
        if command
        else unknown(why.get("command", "unreadable")),
    )
    words = safe(process.container or "", 80)
    key = f"{process.pid} {process.start_ticks} {process.gpu_uuid}"
    return Row(key, cells, faded=old, words=words, remark=command)


def _text(
    value: str | None, field: str, why: Mapping[str, str], limit: int, tone: Tone = Tone.NORMAL
) -> Cell:
    if not value:
        return unknown(why.get(field, "unreadable"))
    text = safe(value, limit)
    return Cell(text, tone, sort=text)
