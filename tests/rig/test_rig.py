"""The rig does what it says: hosts are real, separate, and break as told."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig import llama_server, network
from tests.rig.fleet import NAMES, RigFleet
from tests.rig.gguf_models import TINY_LLAMA, write_gguf
from tests.rig.need import need
from tests.rig.replay import Replay, Reply, ollama_routes, read_http
from tests.rig.sshd import Client, SshHost, free_port, wait_until

RECORDINGS = Path(__file__).parents[1] / "recordings" / "ollama"
WITH_SSHD = ("berlin-1", "ams-mig", "cpu-vps", "no-python", "hung", "frozen")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    """One host of its own, for faults."""
    need("sshd", "netns", "iptables", "tc")
    folder = tmp_path_factory.mktemp("host")
    net = network.Network()
    try:
        with SshHost("victim", folder / "victim", Client(folder / "client"), net) as one:
            yield one
    finally:
        net.close()


def speaks(host: SshHost, timeout_s: float = 5.0) -> bool:
    try:
        return host.client.ssh(host.name, "echo here", timeout_s) == "here\n"
    except (RuntimeError, subprocess.TimeoutExpired):
        return False


# --- hosts -----------------------------------------------------------------------------
def test_all_named_hosts_are_there(rig_fleet: RigFleet) -> None:
    need("netns")
    assert rig_fleet.names == NAMES
    assert [config.name for config in rig_fleet.configs] == list(NAMES)


@pytest.mark.parametrize("name", WITH_SSHD)
def test_a_host_is_a_machine_of_its_own(rig_fleet: RigFleet, name: str) -> None:
    need("netns")
    said = rig_fleet.client.ssh(name, "hostname; tr '\\0' ' ' </proc/1/cmdline; echo; pwd")
    hostname, first, home = said.splitlines()
    assert hostname == name
    assert "sshd" in first
    assert f"/{name}/" in first, "its own sshd is its first process"
    assert home == str(rig_fleet.folder / name / "home"), "nothing of this user's is read"
    here = Path("/proc/self/ns/net").stat().st_ino
    assert rig_fleet.client.ssh(name, "stat -Lc %i /proc/self/ns/net").strip() != str(here)


def test_only_the_host_with_an_engine_has_one(rig_fleet: RigFleet) -> None:
    need("netns")
    ask = (
        'python3 -ISc "import socket; s=socket.socket(); '
        "print(s.connect_ex(('127.0.0.1', 11434)))\""
    )
    assert rig_fleet.client.ssh("cpu-vps", ask).strip() == "0"
    assert rig_fleet.client.ssh("berlin-1", ask).strip() != "0"


def test_the_mock_driver_is_loaded_by_the_hosts_own_python(rig_fleet: RigFleet) -> None:
    count = (
        "import ctypes; n=ctypes.CDLL('libnvidia-ml.so.1'); c=ctypes.c_uint();"
        "assert n.nvmlInit_v2()==0; n.nvmlDeviceGetCount_v2(ctypes.byref(c)); print(c.value)"
    )
    assert rig_fleet.client.ssh("berlin-1", f'python3 -ISc "{count}"').strip() == "8"
    with pytest.raises(RuntimeError, match="libnvidia-ml"):
        rig_fleet.client.ssh("cpu-vps", f'python3 -ISc "{count}"')


def test_the_drivers_processes_are_real_ones_there(rig_fleet: RigFleet) -> None:
    need("netns")
    listed = rig_fleet.client.ssh("berlin-1", "ps -A -o pid=,args=")
    lines = [line.split(None, 1) for line in listed.splitlines()]
    pids = {line[0] for line in lines if "finetune.py" in line[1]}
    scenario = (rig_fleet.folder / "berlin-1" / "nvml.ini").read_text()
    assert len(pids) == 1
    assert scenario.count(f"pid={pids.pop()}\n") == 2, "one job on two cards"


def test_no_python_can_be_run_where_there_is_none(rig_fleet: RigFleet) -> None:
    need("netns")
    for program in ("python3", "/usr/bin/python3", "/usr/local/bin/python3"):
        with pytest.raises(RuntimeError, match=r"12[67]"):
            rig_fleet.client.ssh("no-python", f"{program} -c pass")
    asked = "nvidia-smi --query-gpu=index,power.draw,name --format=csv,noheader,nounits"
    assert rig_fleet.client.ssh("no-python", asked).splitlines() == [
        "0, 131.52, NVIDIA RTX A4000",
        "1, [N/A], NVIDIA RTX A4000",
    ]
    with pytest.raises(RuntimeError, match="ssh no-python: 2"):
        rig_fleet.client.ssh("no-python", "nvidia-smi --query-gpu=nonsense")


def test_the_client_is_told_of_a_changed_key(rig_fleet: RigFleet) -> None:
    with pytest.raises(RuntimeError, match="IDENTIFICATION HAS CHANGED"):
        rig_fleet.client.ssh("changed-key", "true")


def test_tarpit_connects_and_refused_refuses(rig_fleet: RigFleet) -> None:
    with pytest.raises(RuntimeError, match="Connection refused"):
        rig_fleet.client.ssh("refused", "true")
    with pytest.raises(subprocess.TimeoutExpired):
        rig_fleet.client.ssh("tarpit", "true", timeout_s=1)


# --- the engine ------------------------------------------------------------------------
def _get(host: SshHost, port: int, path: str, body: object = None) -> object:
    data = "None" if body is None else repr(json.dumps(body).encode())
    code = (
        "import sys,urllib.request as u;"
        f"r=u.Request('http://127.0.0.1:{port}{path}',{data},"
        "{'Content-Type':'application/json'});sys.stdout.write(u.urlopen(r).read().decode())"
    )
    return json.loads(host.client.ssh(host.name, f"python3 -ISc {json.dumps(code)}"))


def test_ollama_and_its_runners_read_like_the_recorded_ones(rig_fleet: RigFleet) -> None:
    rows = rig_fleet.client.ssh("cpu-vps", "ps -A -ww -o pid=,ppid=,comm=,args=").splitlines()
    table = [row.split(None, 3) for row in rows]
    (server,) = [row for row in table if row[3] == "/usr/local/bin/ollama serve"]
    runners = [row for row in table if row[1] == server[0]]
    assert server[2] == "ollama"
    assert {row[2] for row in runners} == {"llama-server"}
    recorded = (
        RECORDINGS / "cpu-defaults/06-two-models-one-forever.runner-7586.cmdline"
    ).read_text()
    shape = recorded.replace("\0", " ").split()
    shape[shape.index("--model") + 1] = str(rig_fleet.models[0].blob)
    shape[shape.index("--port") + 1] = str(rig_fleet.models[0].port)
    assert " ".join(shape) in [row[3] for row in runners]


def test_ollamas_answers_name_what_really_runs(rig_fleet: RigFleet) -> None:
    host, port = rig_fleet.hosts["cpu-vps"], rig_fleet.ollama_port
    assert _get(host, port, "/api/version") == {"version": "0.33.0-rc2"}
    listed = _get(host, port, "/api/ps")
    assert isinstance(listed, dict)
    assert [row["name"] for row in listed["models"]] == [one.name for one in rig_fleet.models]
    for model in rig_fleet.models:
        shown = _get(host, port, "/api/show", {"model": model.name})
        assert isinstance(shown, dict)
        assert f"\nFROM {model.blob}\n" in shown["modelfile"]
    assert all(f"--model {one.blob} " in _arguments(host) for one in rig_fleet.models)


def _arguments(host: SshHost) -> str:
    return host.client.ssh(host.name, "ps -A -ww -o args=")


def test_slots_move_under_a_completion(rig_fleet: RigFleet) -> None:
    host, port = rig_fleet.hosts["cpu-vps"], rig_fleet.ollama_port
    for model in rig_fleet.models:
        asked = {"model": model.name, "prompt": "hello", "options": {"num_predict": 40}}
        _get(host, port, "/api/generate", {**asked, "stream": False})
        slots = _get(host, model.port, "/slots")
        assert isinstance(slots, list)
        assert slots[0]["n_ctx"] == model.context
        assert slots[0]["n_prompt_tokens"] >= 40
        assert slots[0]["is_processing"] is False


def test_the_installed_llama_server_takes_ollamas_arguments(tmp_path: Path) -> None:
    need("gguf", "xllamacpp")
    program = llama_server.install(tmp_path / "bin")
    model, port = write_gguf(tmp_path / "tiny.gguf", TINY_LLAMA), free_port()
    words = ["-c", "1024", "-np", "2", "--metrics", "--cache-type-k", "q8_0", "--cache-type-v"]
    words += ["q8_0", "--flash-attn", "on", "-b", "256", "-ub", "256", "--port", str(port)]
    command = [str(program), "--model", str(model), *words]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=_clean()) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: _status(f"{url}/health") == 200, 20, "llama-server")
            shown = Path(f"/proc/{server.pid}/cmdline").read_bytes()
            assert shown == "\0".join([*command, ""]).encode()
            assert Path(f"/proc/{server.pid}/comm").read_text() == "llama-server\n"
            with urllib.request.urlopen(f"{url}/slots") as got:
                assert [slot["n_ctx"] for slot in json.load(got)] == [512, 512]
            assert _status(f"{url}/metrics") == 200
        finally:
            server.terminate()
    assert server.returncode == 0


def test_the_installed_llama_server_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    need("xllamacpp")
    program = llama_server.install(tmp_path / "bin")
    done = subprocess.run(
        [program, "--nonsense", "x" * 40], check=False, capture_output=True, text=True, env=_clean()
    )
    assert done.returncode == 1
    assert "invalid argument: --nonsense" in done.stderr


def test_a_genuine_llama_server_is_run_where_one_is_named(tmp_path: Path) -> None:
    program = llama_server.install(tmp_path / "bin")
    genuine = tmp_path / "genuine"
    genuine.write_text('#!/bin/sh\necho "genuine $1"\n')
    genuine.chmod(0o755)
    env = {**os.environ, "GPUMON_LLAMA_SERVER": str(genuine)}
    done = subprocess.run(
        [program, "--version"], check=False, capture_output=True, text=True, env=env
    )
    assert done.stdout == "genuine --version\n"


def _clean() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name != "GPUMON_LLAMA_SERVER"}


def _status(url: str) -> int | None:
    try:
        with urllib.request.urlopen(url, timeout=2) as got:
            return int(got.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


# --- faults ----------------------------------------------------------------------------
def test_freezing_stops_the_voice_but_not_the_line(host: SshHost) -> None:
    assert speaks(host)
    host.freeze()
    try:
        with socket.create_connection((host.address, host.port), 2):
            pass
        assert not speaks(host, 0.7)
    finally:
        host.thaw()
    assert speaks(host)


def test_dropping_cuts_the_line(host: SshHost) -> None:
    host.drop()
    try:
        with pytest.raises(TimeoutError):
            socket.create_connection((host.address, host.port), 0.5)
    finally:
        host.restore()
    assert speaks(host)


def test_a_slow_line_is_slow(host: SshHost) -> None:
    host.slow_down(400)
    try:
        before = time.monotonic()
        said = host.client.ssh(host.name, "head -c 60000 /dev/zero | tr '\\0' x")
        took_s = time.monotonic() - before
    finally:
        host.ask_inside("tc qdisc del dev eth0 root")
    assert len(said) == 60000
    assert took_s > 0.8, "60 kB at 400 kbit/s take 1.2 s"


def test_hanging_up_ends_connections_and_not_the_server(host: SshHost) -> None:
    words = ["ssh", "-F", str(host.client.config), host.name, "exec sleep 60"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as session:
        wait_until(lambda: any("60" in one.arguments for one in host.session_processes()))
        host.hang_up()
        assert session.wait(5) == 255
    assert speaks(host)
    for left in host.session_processes():
        os.kill(left.pid, signal.SIGKILL)


def test_a_stopped_host_comes_back_as_the_same(host: SshHost) -> None:
    key = host.client.known_hosts.read_text()
    host.stop()
    assert not speaks(host, 2)
    host.start()
    assert speaks(host)
    assert host.client.known_hosts.read_text() == key


def test_a_changed_key_is_another_key(host: SshHost) -> None:
    host.change_host_key()
    with pytest.raises(RuntimeError, match="IDENTIFICATION HAS CHANGED"):
        host.client.ssh(host.name, "true")
    host.stop()
    host.start()  # makes the new key the known one
    assert speaks(host)


def test_what_a_killed_run_left_behind_is_swept(tmp_path: Path) -> None:
    need("netns", "sshd")
    code = (
        "import os,sys;from pathlib import Path;"
        "from tests.rig.sshd import Client,SshHost;from tests.rig.network import Network;"
        "net=Network();folder=Path(sys.argv[1]);"
        "host=SshHost('orphan',folder/'h',Client(folder/'c'),net).start();"
        "print(host.netns,net.bridge,host._sshd_pid,flush=True);os.kill(os.getpid(),9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        check=False,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    netns, bridge, pid = done.stdout.split()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 5, "its sshd to end by itself")
    gone = network.sweep()
    assert netns in gone
    assert bridge in gone
    listed = subprocess.run(["ip", "netns"], check=True, capture_output=True, text=True)
    assert netns not in listed.stdout


def test_without_namespaces_there_still_is_a_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("sshd", "cc")
    monkeypatch.setenv("GPUMON_RIG_NETNS", "0")
    with RigFleet(tmp_path, only=("frozen", "no-python", "refused", "changed-key")) as fleet:
        assert not fleet.isolated
        assert fleet.names == ("frozen", "refused", "changed-key")
        said = fleet.client.ssh("frozen", "echo $GPUMON_FAKE_NVML; command -v python3; echo $HOME")
        assert said.splitlines() == [
            str(tmp_path / "frozen/nvml.ini"),
            str(tmp_path / "frozen/bin/python3"),
            str(tmp_path / "frozen/home"),
        ]
        host = fleet.hosts["frozen"]
        host.freeze()
        assert not speaks(host, 0.7)
        host.thaw()
        assert speaks(host)
        with pytest.raises(RuntimeError, match="IDENTIFICATION HAS CHANGED"):
            fleet.client.ssh("changed-key", "true")


# --- replay ----------------------------------------------------------------------------
def test_replay_answers_as_told_and_remembers() -> None:
    routes = {
        "GET /api/ps": Reply({"models": []}),
        "/slow": Reply(b"late", delay_s=0.3),
        "/half": Reply(b'{"models":[{"name":"x"', cut_after=10),
        "/locked": Reply({"error": "no"}, 401),
        "/echo": lambda asked: Reply(asked.body),
    }
    with Replay(routes) as server:
        with urllib.request.urlopen(f"{server.url}/api/ps?x=1") as got:
            assert json.load(got) == {"models": []}
        before = time.monotonic()
        assert _status(f"{server.url}/slow") == 200
        assert time.monotonic() - before >= 0.3
        assert _status(f"{server.url}/locked") == 401
        assert _status(f"{server.url}/nowhere") == 404
        with urllib.request.urlopen(f"{server.url}/echo", b"body") as got:
            assert got.read() == b"body"
        with pytest.raises(Exception, match="IncompleteRead"):
            urllib.request.urlopen(f"{server.url}/half").read()
        assert server.count("/api/ps") == 1
        assert [asked.path for asked in server.asked][:2] == ["/api/ps?x=1", "/slow"]


def test_replay_lets_hanging_requests_go_when_it_stops() -> None:
    server = Replay({"/hang": Reply(hang=True)}).start()
    with pytest.raises(TimeoutError):
        urllib.request.urlopen(f"{server.url}/hang", timeout=0.3)
    before = time.monotonic()
    server.stop()
    assert time.monotonic() - before < 1


def test_recordings_are_replayed_byte_for_byte() -> None:
    folder = RECORDINGS / "cpu-defaults"
    with Replay(ollama_routes(folder, "03-idle")) as server:
        with urllib.request.urlopen(f"{server.url}/api/ps") as got:
            assert got.read() == (folder / "03-idle.ps.json").read_bytes()
        asked = urllib.request.Request(f"{server.url}/api/show", b'{"model":"tiny-llama"}')
        with urllib.request.urlopen(asked) as got:
            assert b"FROM" in got.read()
    reply = read_http(folder / "03-idle.runner-7326.slots.http")
    assert reply.status == 200
    assert isinstance(json.loads(reply.data()), list)


def test_replay_runs_by_its_file_path_alone() -> None:
    port = free_port()
    script = Path(__file__).with_name("replay.py")
    words = [sys.executable, "-IS", str(script), "--port", str(port), "--dir"]
    with subprocess.Popen(
        [*words, str(RECORDINGS / "cpu-defaults")], stdout=subprocess.PIPE, cwd="/"
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline().decode().strip() == f"http://127.0.0.1:{port}"
        assert _status(f"http://127.0.0.1:{port}/api/version") == 200
        server.kill()
