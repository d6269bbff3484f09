"""What is sent to a host: complete, old-Python-proof, and leaving no trace there."""

from __future__ import annotations

import ast
import json
import sys
import time
import zlib
from pathlib import Path

import pytest

from gpumon.collectors.payload import (
    ProbeConfig,
    Request,
    build_payload,
    probe_sources,
    pynvml_source,
    set_line,
)
from tests.collectors.probe_process import NONCE, RunningProbe

PROBE = sorted(Path(__file__).resolve().parents[2].joinpath("collectors/probe").glob("*.py"))


@pytest.mark.parametrize("path", PROBE, ids=lambda path: path.name)
def test_probe_code_is_python_3_6(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))
    for node in ast.walk(tree):
        # what feature_version lets pass
        assert not isinstance(node, ast.NamedExpr | ast.Match)
        if isinstance(node, ast.arguments):
            assert not node.posonlyargs


@pytest.mark.parametrize("path", PROBE, ids=lambda path: path.name)
def test_probe_code_imports_the_standard_library_and_itself(path: Path) -> None:
    carried = set(probe_sources()) | {"pynvml"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module or ""]
        for name in names:
            assert name in carried or name.partition(".")[0] in sys.stdlib_module_names, name


def test_every_probe_module_travels() -> None:
    text = zlib.decompress(build_payload(ProbeConfig(nonce="x"))).decode()
    for path in PROBE:
        if path.stem not in ("__init__", "loader"):
            assert f"'gpumon_probe_{path.stem}'" in text


def test_pynvml_travels_whole_with_its_licence() -> None:
    source = pynvml_source()
    assert source is not None
    assert source.startswith(b"#####\n# Copyright")
    assert b"NVIDIA CORPORATION" in source.upper()
    text = zlib.decompress(build_payload(ProbeConfig(nonce="x"), with_pynvml=True)).decode()
    scope: dict[str, object] = {}
    head = text.partition("from gpumon_probe_main import run\nrun(")[0]
    exec(head.replace(".install()", ""), scope)  # the loader's class and nothing more
    finder = eval(text[text.index("SourceFinder({") : text.index(".install()\nfrom")], scope)
    assert finder.source_of("pynvml") == source
    without = zlib.decompress(build_payload(ProbeConfig(nonce="x"), with_pynvml=False)).decode()
    assert "'pynvml':" not in without


def test_the_payload_is_small_and_cheap_for_the_second_host() -> None:
    first = build_payload(ProbeConfig(nonce="a", watch=("ollama",)))
    assert len(first) < 160_000
    began = time.process_time()
    for number in range(100):
        build_payload(ProbeConfig(nonce=f"n{number}"))
    # anew it takes 50 ms each
    assert (time.process_time() - began) / 100 < 0.01


def test_the_config_arrives_as_it_is() -> None:
    config = ProbeConfig(
        nonce="q'\"\\\n\u2028é\U0001f600",
        requests=(Request("a", 1, "/x", body='{"k": "v\\n"}', bearer="s'ecret"),),
        watch=("(?i)ollama\\b", "it's"),
    )
    text = zlib.decompress(build_payload(config)).decode()
    call = ast.parse(text).body[-1]
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    plain = json.loads(ast.literal_eval(call.value.args[0]))
    assert plain["nonce"] == config.nonce
    assert plain["watch"] == list(config.watch)
    assert plain["requests"][0]["bearer"] == "s'ecret"
    assert set(plain) == set(ProbeConfig.__dataclass_fields__)


def test_set_line_names_fields_only() -> None:
    line = set_line(interval_s=5, requests=(Request("a", 80, "/"),))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    found = json.loads(line)["set"]
    assert found["interval_s"] == 5
    assert found["requests"][0]["port"] == 80
    assert set(found["requests"][0]) == set(Request.__dataclass_fields__)
    with pytest.raises(TypeError, match="no field intervall"):
        set_line(intervall=5)


def test_pynvml_is_not_even_compiled_where_there_is_no_driver() -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has an NVIDIA driver")
    spy = (
        "import threading, time\n"
        "def tell():\n"
        "    time.sleep(0.5)\n"
        "    sys.stderr.write('loaded %s\\n' % sorted(m for m in sys.modules if 'nvml' in m))\n"
        "    sys.stderr.flush()\n"
        "threading.Thread(target=tell, daemon=True).start()\n"
    )
    payload = _prefixed(spy, interval_s=0.2)
    with RunningProbe(payload=payload) as probe:
        probe.hello()
        probe.until(lambda one: one["nvml"]["state"] != "starting")
        assert probe.process.stderr is not None
        told = probe.process.stderr.readline().decode()
    assert "gpumon_probe_nvml" in told
    assert "'pynvml'" not in told


def test_the_probe_writes_nothing_and_starts_nothing_on_the_host() -> None:
    """Every attempt is an audit event of the interpreter (PEP 578), and none is made."""
    spy = (
        "import os, sys\n"
        "def hook(event, arguments):\n"
        "    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND\n"
        "    bad = event == 'open' and bool((arguments[2] or 0) & writes)\n"
        "    bad = bad or event.startswith(('subprocess.', 'os.system', 'os.exec', 'os.fork',\n"
        "        'os.posix_spawn', 'os.mkdir', 'os.remove', 'os.rename', 'os.rmdir', 'os.link',\n"
        "        'os.symlink', 'os.chmod', 'os.chown', 'os.truncate', 'os.kill', 'os.setxattr',\n"
        "        'os.utime', 'shutil.', 'tempfile.', 'socket.bind', 'sqlite3.'))\n"
        "    if bad:\n"
        "        os.write(2, ('WROTE %s %r\\n' % (event, arguments)).encode())\n"
        "sys.addaudithook(hook)\n"
    )
    payload = _prefixed(spy + "open('/dev/null', 'w').close()\n", interval_s=0.1)
    with RunningProbe(payload=payload) as probe:
        probe.hello()
        probe.set(
            watch=(".",), env_names=(".*",), requests=(Request("x", 1, "/"),), disks=("/tmp",)
        )
        for _ in range(5):
            probe.record()
        told = probe.stderr()
    # the hook sees a write, and it is the only one
    assert told.count("WROTE") == 1, told
    assert "/dev/null" in told


def _prefixed(prefix: str, **config: object) -> bytes:
    text = zlib.decompress(build_payload(ProbeConfig(nonce=NONCE, **config))).decode()  # type: ignore[arg-type]
    return zlib.compress(("import sys\n" + prefix + text).encode())
