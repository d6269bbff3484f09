"""The first line of every screen: the fleet in one sentence, badges, the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len

from gpumon.feed import FeedMode, FeedStatus
from gpumon.snapshot import HostView
from gpumon.text import safe
from gpumon.tui.format import at_least, clock, count, gib
from gpumon.tui.frame import Frame
from gpumon.tui.rows.figures import Freshness, add_up, cards, host_freshness
from gpumon.tui.rows.fleet import host_rate, host_vram
from gpumon.tui.rows.troubles import Trouble, severity_of
from gpumon.tui.tones import Line, Severity, Span, Tone, tone_of

__all__ = ["banner_lines", "top_line"]


def top_line(
    frame: Frame, found: Mapping[str, Sequence[Trouble]], width: int, place: str = ""
) -> Line:
    """Totals over hosts whose values are of now; ``place`` is where in the program.

    Where the width is short, whole figures are left out rather than cut: on a host the
    fleet's totals, on the fleet the program's name.
    """
    title = [Span(" gpumon", Tone.TITLE)]
    if place:
        title += [Span(" › ", Tone.DIM), Span(place, Tone.STRONG)]
    counts, severities = _counts(frame.views), _severities(frame.views, found)
    vram, speed = _totals(frame)
    badges = _badges(frame)
    choices = (
        (title, counts, severities, vram, speed),
        (title, severities, vram, speed) if place else ([], counts, severities, vram, speed),
        (title, severities) if place else ([], counts, severities, vram),
        (title,) if place else ([], counts, severities),
    )
    for gap in (3, 2):
        for parts in choices[: 1 if gap == 3 else None]:
            spans = _joined(parts, gap)
            if _size(spans) + _size(badges) < width:
                return Line(tuple(spans), tuple(badges))
    return Line(tuple(title), tuple(badges))


def _joined(parts: Iterable[Sequence[Span]], gap: int) -> list[Span]:
    spans: list[Span] = []
    for part in parts:
        if part:
            spans += [Span(" " * gap) if spans else Span(""), *part]
    if spans and not spans[1].text.startswith(" "):
        spans[0] = Span(" ")
    return spans


def _size(spans: Iterable[Span]) -> int:
    return sum(cell_len(span.text) for span in spans)


def banner_lines(status: FeedStatus) -> list[Line]:
    """One line for each trouble of the feed itself; none when all is well."""
    lines = []
    if status.mode is FeedMode.ORPHANED:
        who = f" (pid {status.collector_pid})" if status.collector_pid is not None else ""
        text = f"the gpumon that collected{who} has died: these are its last values"
        lines.append(
            Line((Span(" X ", Tone.CRIT), Span(f" {text}; "), Span("t", Tone.KEY),
                  Span(" takes over")))
        )  # fmt: skip
    if status.store_trouble:
        text = f" history: {safe(status.store_trouble, 300)}"
        lines.append(Line((Span(" ! ", Tone.WARN), Span(text.lstrip()))))
    return lines


def _counts(views: Sequence[HostView]) -> list[Span]:
    gpus = sum(len(cards(view.snapshot)) for view in views if view.snapshot is not None)
    hosts = "host" if len(views) == 1 else "hosts"
    cards_word = "GPU" if gpus == 1 else "GPUs"
    return [
        Span(str(len(views)), Tone.STRONG), Span(f" {hosts} · ", Tone.DIM),
        Span(str(gpus), Tone.STRONG), Span(f" {cards_word}", Tone.DIM),
    ]  # fmt: skip


def _severities(views: Sequence[HostView], found: Mapping[str, Sequence[Trouble]]) -> list[Span]:
    """How many hosts are in each bad state."""
    spans: list[Span] = []
    for severity in (Severity.CRIT, Severity.WARN, Severity.UNKNOWN):
        number = sum(
            1 for view in views if severity_of(view, list(found.get(view.host, ()))) is severity
        )
        if number:
            glyph = Span(severity.glyph, tone_of(severity))
            spans += [Span("  ") if spans else Span(""), glyph, Span(f" {number}")]
    return spans


def _totals(frame: Frame) -> tuple[list[Span], list[Span]]:
    """GPU memory, and tokens a second."""
    fresh = [
        view.snapshot
        for view in frame.views
        if view.snapshot is not None
        and host_freshness(view, frame.now) in (Freshness.FRESH, Freshness.LATE)
    ]
    missing = len(fresh) < sum(1 for view in frame.views if view.snapshot is not None)
    pairs = [host_vram(snapshot) for snapshot in fresh if snapshot.gpus]
    used = add_up((used.value, "no-data") for used, _ in pairs)
    total = add_up((total.value, "no-data") for _, total in pairs)
    vram: list[Span] = []
    if used.value is not None and total.value is not None:
        whole = not missing and all(u.complete and t.complete for u, t in pairs)
        text = at_least(f"{gib(used.value)}/{gib(total.value)}", whole)
        vram = [Span("VRAM ", Tone.DIM), Span(text, Tone.STRONG), Span(" GiB", Tone.DIM)]
    rates = [r for r in (host_rate(snapshot) for snapshot in fresh) if r is not None]
    speed = add_up((each.value, "no-data") for each in rates)
    tokens: list[Span] = []
    if rates:
        whole = speed.complete and not missing and all(each.complete for each in rates)
        text = "n/a" if speed.value is None else at_least(count(speed.value), whole)
        tokens = [Span(text, Tone.STRONG), Span(" tok/s", Tone.DIM)]
    return vram, tokens


def _badges(frame: Frame) -> list[Span]:
    spans: list[Span] = []
    if any(view.simulated for view in frame.views):
        spans += [Span(" SIMULATED ", Tone.BADGE), Span(" ")]
    if frame.status.mode is FeedMode.VIEWER:
        who = frame.status.collector_pid
        text = f" viewing pid {who} " if who is not None else " viewing "
        spans += [Span(text, Tone.BADGE), Span(" ")]
    elif frame.status.mode is FeedMode.ORPHANED:
        spans += [Span(" ORPHANED ", Tone.CRIT), Span(" ")]
    if frame.paused_at is not None:
        minutes = frame.paused_minutes
        since = f", {minutes} min old" if minutes else ""
        spans.append(Span(f" PAUSED {clock(frame.paused_at)}{since} ", Tone.BADGE))
    else:
        spans.append(Span(clock(frame.now), Tone.STRONG))
    spans.append(Span(" "))
    return spans
