"""The benchmarks' own arithmetic and command line; their figures are no test."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES
from benchmarks.figures import Figure, cpu_s, percentile, rss_mb, table

ROOT = Path(__file__).parents[1]


def test_a_figure_over_its_budget_is_marked() -> None:
    lines = table(
        [
            Figure("quick", 30.0, "ms", 60),
            Figure("slow", 90.0, "ms", 60, "a note"),
            Figure("on the line", 6.001, "s", 6),
            Figure("free", 1.0, "s"),
        ]
    )
    assert [line.split() for line in lines[1:]] == [
        ["quick", "30", "ms", "60", "ms", "0.50"],
        ["slow", "90", "ms", "60", "ms", "1.50", "OVER", "a", "note"],
        ["on", "the", "line", "6", "s", "6", "s", "1.00"],
        ["free", "1", "s"],
    ]


@pytest.mark.parametrize(("share", "wanted"), [(0.0, 1), (0.5, 51), (0.99, 100), (1.0, 100)])
def test_percentiles(share: float, wanted: float) -> None:
    assert percentile([float(n) for n in range(100, 0, -1)], share) == wanted


def test_cpu_and_memory_are_read_of_the_process() -> None:
    before = cpu_s(os.getpid())
    while cpu_s(os.getpid()) - before < 0.05:
        sum(range(10_000))
    assert 5 < rss_mb(os.getpid()) < 4000


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_can_be_run(name: str) -> None:
    measure = importlib.import_module(f"benchmarks.{name}").measure
    assert list(inspect.signature(measure).parameters) == ["quick"]
    assert (ROOT / "benchmarks" / f"{name}.py").is_file()


def test_an_unknown_benchmark_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nonsense"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "no benchmark is called nonsense" in done.stderr
