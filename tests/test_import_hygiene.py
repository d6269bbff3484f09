"""What a command loads: proved in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ("textual", "asyncssh", "sqlite_utils", "httpx", "ollama", "pynvml")


def loaded_after(code: str) -> set[str]:
    """Top-level modules and gpumon's rooms that are loaded after some code ran."""
    script = f"import sys\n{code}\nprint('LOADED', *sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    line = next(text for text in done.stderr.splitlines() if text.startswith("LOADED"))
    return set(line.split()[1:])


def run_command(*arguments: str) -> str:
    return (
        "from gpumon.tui.cli import main\n"
        f"try:\n    main({list(arguments)!r})\nexcept SystemExit:\n    pass"
    )


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["collect", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    loaded = loaded_after(run_command(*arguments))
    assert not loaded & {*HEAVY, "asyncio", "sqlite3"}
    assert len(loaded) < 200, "modules, not milliseconds, are counted here"


def test_collect_and_export_load_no_screen(tmp_path: Path) -> None:
    """Both are really run: what is imported late counts as well."""
    database = str(tmp_path / "gpumon.db")
    stop = (
        "import os, signal, threading, time\n"
        "def stop():\n"
        f"    while not os.path.exists({database!r}) or len(sys.modules) < 100: time.sleep(0.05)\n"
        "    time.sleep(1.5)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "threading.Thread(target=stop).start()\n"
    )
    collect = run_command("collect", "--interval", "0.5", "--db", database, "localhost")
    loaded = loaded_after(stop + collect)
    assert {"gpumon.collectors.fleet", "gpumon.store", "asyncio"} <= loaded
    assert not loaded & {"textual", "rich", "gpumon.tui.app"}
    assert "asyncssh" not in loaded, "no host needs it"
    loaded = loaded_after(
        run_command("export", "--table", "host", "--db", database, "-o", str(tmp_path / "x.csv"))
    )
    assert "localhost" in (tmp_path / "x.csv").read_text()
    assert not loaded & {"textual", "rich", "asyncssh", "httpx", "ollama", "gpumon.collectors"}


def test_the_core_loads_neither() -> None:
    names = [path.stem for path in (ROOT / "gpumon").glob("*.py") if not path.stem.startswith("__")]
    loaded = loaded_after(f"import {', '.join(f'gpumon.{name}' for name in names)}")
    assert not loaded & {*HEAVY, "gpumon.tui", "gpumon.collectors"}


def test_screens_load_no_network_and_no_database() -> None:
    loaded = loaded_after("import gpumon.tui.app")
    assert not loaded & {"asyncssh", "httpx", "sqlite3", "gpumon.collectors", "gpumon.store"}
