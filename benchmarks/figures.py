"""What a benchmark gives: a figure beside its budget."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Figure", "cpu_s", "median", "percentile", "rss_mb", "table"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One row; ``budget`` None = measured for its own sake."""

    what: str
    value: float
    unit: str
    budget: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Share of the budget that is used."""
        return None if not self.budget else self.value / self.budget


def table(figures: Iterable[Figure]) -> list[str]:
    """The rows as text, aligned."""
    rows = [("figure", "measured", "budget", "ratio", "")]
    for one in figures:
        ratio = one.ratio
        rows.append(
            (
                one.what,
                f"{_text(one.value)} {one.unit}",
                "" if one.budget is None else f"{_text(one.budget)} {one.unit}",
                "" if ratio is None else f"{ratio:.2f}{'  OVER' if round(ratio, 2) > 1 else ''}",
                one.note,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), row[1].rjust(widths[1]), row[2].rjust(widths[2])]
        cells.append(row[3].ljust(widths[3]))
        lines.append("  ".join([*cells, row[4]]).rstrip())
    return lines


def _text(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used, its ended children included (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / 100.0


def rss_mb(pid: int) -> float:
    """Resident memory in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6
