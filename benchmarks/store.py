"""What recording 80 GPUs at 2 s costs, and what reading them takes.

Ten hosts of 8 cards, 4 GPU processes and a model each go through the real ``StoreWriter``, a
flush per simulated second, with a reader attached; clocks run as fast as the disk lets them.
Samples are kept for six minutes, so that old ones leave while new ones come. Bytes written
are those given to ``write``, the log's and the checkpoints'.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from benchmarks.figures import Figure, median, percentile
from gpumon.export import export
from gpumon.inventory import Retention
from gpumon.metrics import metrics_of
from gpumon.snapshot import (
    Engine,
    EngineState,
    Gpu,
    GpuProcess,
    HostSnapshot,
    HostState,
    HostStatus,
    HostView,
    Model,
    Nvml,
    NvmlState,
    Runner,
    Slot,
    System,
)
from gpumon.store import open_reader, open_writer
from gpumon.store.rows import insert_statement
from gpumon.store.schema import SERIES_BITS

__all__ = ["measure"]

_HOSTS, _CARDS, _EVERY_S = 10, 8, 2
_START = 1_800_000_000
_DAY_S = 86_400
_KEEP_H = 0.1


def _view(host: int, second: float, dice: random.Random) -> HostView:
    def card(number: int) -> Gpu:
        busy = dice.random()
        return Gpu(
            f"GPU-{host:08d}-0000-0000-0000-{number:012d}",
            index=number,
            pci_id=f"00000000:{number:02X}:00.0",
            name="NVIDIA H100 80GB HBM3",
            util_percent=100 * busy,
            memory_util_percent=60 * busy,
            memory_used_bytes=int(8e10 * dice.random()),
            memory_total_bytes=85_520_809_984,
            temperature_c=30 + 40 * busy,
            memory_temperature_c=35 + 45 * busy,
            power_w=70 + 600 * busy,
            power_limit_w=700.0,
            energy_j=1e6 + 300 * (second - _START),
            sm_clock_mhz=dice.randrange(345, 1980),
            memory_clock_mhz=2619,
            pcie_tx_bytes_per_s=1e9 * busy,
            pcie_rx_bytes_per_s=2e9 * busy,
            ecc_corrected=0,
            ecc_uncorrected=0,
            unknown={"fan_percent": "unsupported"},
        )

    slots = tuple(
        Slot(number, 8192, dice.randrange(8192), processing=True, decode_tokens_per_s=31.5)
        for number in range(4)
    )
    runner = Runner(7, context_total_tokens=32_768, parallel_slots=4, slots=slots)
    model = Model("llama3.3:70b", "d" * 64, size_bytes=46_000_000_000, runner=runner)
    snapshot = HostSnapshot(
        f"h{host}",
        int(second),
        second,
        second - _START,
        system=System(dice.random() * 100, 1.0, 1.0, 1.0, 2**40, int(2**39 * dice.random())),
        nvml=Nvml(NvmlState.OK),
        gpus=tuple(card(number) for number in range(_CARDS)),
        processes=tuple(
            GpuProcess(100 + number, f"GPU-{host}-{number}", 7, memory_bytes=2**34)
            for number in range(4)
        ),
        engines=(Engine("ollama", EngineState.UP, port=11434, models=(model,)),),
    )
    return HostView(f"h{host}", HostStatus(HostState.UP, since=_START), snapshot)


def _bytes_written() -> int:
    """By this process to ``write`` and its kin (proc(5))."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


@contextmanager
def _simulated_clock() -> Iterator[SimpleNamespace]:
    """The store's clocks, moved by hand through ``now``."""
    clock = SimpleNamespace(now=float(_START))
    fake = SimpleNamespace(time=lambda: clock.now, monotonic=lambda: clock.now)
    with (
        patch("gpumon.store.writer.time", fake),
        patch("gpumon.store.retention.time", fake),
        patch("gpumon.store.retention._uptime_s", lambda: clock.now),
    ):
        yield clock


async def _record(database: Path, seconds: int) -> dict[str, Any]:
    dice = random.Random(1)
    ticks_s: list[float] = []
    cpu_s, log_bytes, began_bytes = 0.0, 0, 0
    log = database.with_name(f"{database.name}-wal")
    warm_up = int(_KEEP_H * 3600) + 30
    with _simulated_clock() as clock:
        writer = open_writer(database, retention=Retention(raw_h=_KEEP_H))
        reader = None
        for step in range(warm_up + seconds):
            if step == warm_up:
                cpu_s, began_bytes = 0.0, _bytes_written()
                ticks_s.clear()
            clock.now = _START + step
            # Half of the hosts are heard in every second.
            for host in range(step % _EVERY_S, _HOSTS, _EVERY_S):
                writer.offer(_view(host, clock.now, dice))
            began, cpu_began = time.perf_counter(), time.process_time()
            await writer.flush()
            ticks_s.append(time.perf_counter() - began)
            cpu_s += time.process_time() - cpu_began
            if writer.trouble:
                raise RuntimeError(writer.trouble)
            reader = reader or open_reader(database)
            log_bytes = max(log_bytes, log.stat().st_size)
        written = _bytes_written() - began_bytes
        if reader is not None:
            reader.close()
        await writer.close()
    rows = seconds * _HOSTS * _CARDS / _EVERY_S
    return {
        "us_per_row": cpu_s * 1e6 / rows,
        "rows_per_s": rows / sum(ticks_s),
        "tick_ms": 1e3 * median(ticks_s),
        "tick_p99_ms": 1e3 * percentile(ticks_s, 0.99),
        "gb_a_day": written / seconds * _DAY_S / 1e9,
        "log_mb": log_bytes / 1e6,
    }


async def _generate(database: Path, hours: float) -> tuple[int, float]:
    """Fill a database with its cards' samples; returns (its last second, bytes a row)."""
    writer = open_writer(database, retention=Retention(raw_h=1e6))
    dice = random.Random(2)
    views = [_view(host, _START, dice) for host in range(_HOSTS)]
    for view in views:
        writer.offer(view)
    await writer.flush()
    await writer.close()
    empty = database.stat().st_size
    # Straight in: what recording costs is measured above.
    import sqlite3

    connection = sqlite3.connect(database, isolation_level=None)
    cards = [
        tuple(one.encode(gpu) for one in metrics_of("gpu"))
        for view in (_view(host, _START, dice) for host in range(_HOSTS) for _ in range(20))
        if view.snapshot
        for gpu in view.snapshot.gpus
    ]
    numbers = range(1, _HOSTS * _CARDS + 1)
    end = _START + int(hours * 3600)
    count = 0
    for begin in range(_START + _EVERY_S, end, 600):
        rows = [
            (second << SERIES_BITS | number, *dice.choice(cards))
            for second in range(begin, min(end, begin + 600), _EVERY_S)
            for number in numbers
        ]
        connection.execute("BEGIN")
        connection.executemany(insert_statement("gpu"), rows)
        connection.execute("COMMIT")
        count += len(rows)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return end, (database.stat().st_size - empty) / count


def _read(database: Path, end: int) -> dict[str, float]:
    def median_ms(work: Any, times: int) -> float:
        """Of so many runs."""
        taken = []
        for _ in range(times):
            began = time.perf_counter()
            work()
            taken.append(time.perf_counter() - began)
        return 1e3 * median(taken)

    began = time.perf_counter()
    reader = open_reader(database)
    reader.latest_views()
    opened_ms = 1e3 * (time.perf_counter() - began)

    def last_hour() -> None:
        if len(reader.history("gpu", 17, "util_percent", end - 3600, end)) < 1790:
            raise RuntimeError("samples are missing")

    found = {
        "opened_ms": opened_ms,
        "now_ms": median_ms(reader.latest_views, 20),
        "hour_ms": median_ms(last_hour, 20),
    }
    with tempfile.TemporaryFile("w", newline="") as file:
        began = time.perf_counter()
        rows = export(reader, "gpu", file, since=end - 600, until=end)
        found["export_rows_per_s"] = rows / (time.perf_counter() - began)
    reader.close()
    return found


def measure(*, quick: bool) -> list[Figure]:
    """Record, then read."""
    seconds, hours = (300, 1.5) if quick else (1800, 12.0)
    with tempfile.TemporaryDirectory(prefix="gpumon-bench-") as folder:
        recorded = asyncio.run(_record(Path(folder) / "record.db", seconds))
        end, row_bytes = asyncio.run(_generate(Path(folder) / "read.db", hours))
        read = _read(Path(folder) / "read.db", end)
    kept = 48 * 3600 / _EVERY_S * _HOSTS * _CARDS * row_bytes / 1e9
    size = f"{hours:g} h of 80 GPUs"
    return [
        Figure("written a day, 80 GPUs at 2 s", recorded["gb_a_day"], "GB", 1.5),
        Figure("on disk, GPUs' raw samples of 48 h", kept, "GB", 1.5, f"{row_bytes:.1f} B a row"),
        Figure("write-ahead log at most, reader attached", recorded["log_mb"], "MB", 64),
        Figure(
            "CPU from a host's view to its rows",
            recorded["us_per_row"] * _CARDS / 1e3,
            "ms",
            0.4,
            "the budget is for the probe's line too",
        ),
        Figure("CPU per GPU row, all tables", recorded["us_per_row"], "us"),
        Figure("GPU rows a second, one flush per 40", recorded["rows_per_s"], "rows/s"),
        Figure("a second's flush of 5 hosts, median", recorded["tick_ms"], "ms"),
        Figure("a second's flush of 5 hosts, p99", recorded["tick_p99_ms"], "ms"),
        Figure("open and read the fleet's newest views", read["opened_ms"], "ms", None, size),
        Figure("fleet now", read["now_ms"], "ms", 5, size),
        Figure("last hour of one GPU", read["hour_ms"], "ms", 20, size),
        Figure("export as CSV", read["export_rows_per_s"], "rows/s"),
    ]
