"""The wheel and the sdist hold what the tree holds, and the wheel runs."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: folder of the tree -> its place in the wheel
ROOMS = {"gpumon": "gpumon", "tui": "gpumon/tui", "collectors": "gpumon/collectors"}
KINDS = ("*.py", "*.sh", "*.tcss", "py.typed")


def files_of_the_tree() -> set[str]:
    found = set()
    for room, place in ROOMS.items():
        for kind in KINDS:
            for path in (ROOT / room).rglob(kind):
                inside = path.relative_to(ROOT / room)
                if not (room == "gpumon" and inside.parts[0] in ("tui", "collectors")):
                    found.add(f"{place}/{inside.as_posix()}")
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what git tracks, so that nothing of this machine goes in."""
    folder = tmp_path_factory.mktemp("dist")
    source = folder / "source"
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, names):
        path = ROOT / name
        if name.startswith(("tests/", "benchmarks/", "screenshots/")) or not path.exists():
            continue
        copy = source / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            copy.symlink_to(path.readlink())
        else:
            copy.write_bytes(path.read_bytes())
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


def test_the_wheel_holds_every_file_of_the_tree(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name.startswith("gpumon_fleet-")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == files_of_the_tree()


def test_the_sdist_holds_every_file_of_the_tree(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for room, place in ROOMS.items():
        for name in files_of_the_tree():
            if name.startswith(f"{place}/") and not (
                room == "gpumon" and name.startswith(("gpumon/tui/", "gpumon/collectors/"))
            ):
                assert f"{room}/{name.removeprefix(f'{place}/')}" in names
    assert {"README.md", "LICENSE", "pyproject.toml"} <= names


def test_the_wheel_runs_in_a_fresh_environment(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    # Its dependencies are lent by this environment: a download would test the network.
    lent = next(path for path in sys.path if path.endswith("site-packages"))
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel],
        check=True,
    )
    command = tmp_path / "venv" / "bin" / "gpumon"
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == "gpumon 0.1.0\n"
    where = (
        f"import sys; sys.path.append({lent!r}); import gpumon.tui.app, gpumon.collectors.fleet;"
        "print(gpumon.tui.__file__)"
    )
    shown = subprocess.run(
        [python, "-c", where], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith(str(tmp_path))
