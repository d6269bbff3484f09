"""Ollama's servers and runners, told by their processes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gpumon.collectors.engines.ollama import Ollama
from gpumon.collectors.engines.ollama_processes import (
    is_server,
    read_model_process,
    runners_of,
    server_address,
    settings_of,
)
from gpumon.collectors.wire import Ancestor, WatchedProcess
from gpumon.inventory import EngineConfig
from tests.collectors.engines.recorded_ollama import SERVER, runner_of


def server(pid: int = 5, host: str | None = None, **fields: object) -> WatchedProcess:
    env = {} if host is None else {"OLLAMA_HOST": host}
    made = WatchedProcess(pid=pid, comm="ollama", cmd=("/usr/bin/ollama", "serve"), env=env)
    return replace(made, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stated", "host", "port"),
    [
        (None, "127.0.0.1", 11434),
        ("", "127.0.0.1", 11434),
        ("0.0.0.0", "127.0.0.1", 11434),
        ("0.0.0.0:11500", "127.0.0.1", 11500),
        (":11500", "127.0.0.1", 11500),
        ("10.0.0.7:11500", "10.0.0.7", 11500),
        ("10.0.0.7", "10.0.0.7", 11434),
        ("localhost:11500", "localhost", 11500),
        (' "10.0.0.7:11500" ', "10.0.0.7", 11500),
        ("http://10.0.0.7", "10.0.0.7", 80),
        ("https://10.0.0.7", "10.0.0.7", 443),
        ("http://0.0.0.0:11500/", "127.0.0.1", 11500),
        ("https://10.0.0.7:11500/path", "10.0.0.7", 11500),
        ("[::1]:11500", "::1", 11500),
        ("[::]:11500", "127.0.0.1", 11500),
        ("[::1]", "::1", 11434),
        ("::1", "::1", 11434),
        ("::", "127.0.0.1", 11434),
        ("10.0.0.7:99999", "10.0.0.7", 11434),
        ("10.0.0.7:port", "10.0.0.7", 11434),
    ],
)
def test_where_a_server_listens(stated: str | None, host: str, port: int) -> None:
    assert server_address(server(host=stated)) == (host, port)


def test_where_a_server_listens_whose_environment_is_hidden() -> None:
    hidden = server(env_readable=False)
    assert server_address(replace(hidden, ports=(11500,))) == ("127.0.0.1", 11500)
    assert server_address(replace(hidden, ports=(11434, 11500))) == ("127.0.0.1", 11434)
    assert server_address(replace(hidden, ports=None)) == ("127.0.0.1", 11434)


@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        ("/usr/bin/ollama serve", True),
        ("ollama start", True),
        ("ollama --verbose serve", True),
        ("ollama run serve", False),
        ("ollama runner --model /b --port 1", False),
        ("ollama ps", False),
        ("ollama", False),
        ("vi ollama serve", False),
    ],
)
def test_what_is_a_server(command: str, is_one: bool) -> None:
    process = WatchedProcess(pid=1, comm="ollama", cmd=tuple(command.split()))
    assert is_server(process) is is_one


@pytest.mark.parametrize(
    "command",
    [
        "/usr/bin/ollama serve",
        "/usr/bin/ollama start",
        "/usr/local/lib/ollama/llama-server --model /b --port 1",
        "/usr/bin/ollama runner --ollama-engine --model /b --port 1",
        "/tmp/ollama1/runners/cuda_v12/ollama_llama_server --model /b --port 1",
    ],
)
def test_the_probe_is_told_to_look_for_it(command: str) -> None:
    name = command.split(maxsplit=1)[0].rpartition("/")[2]
    texts = (name[:15], name, command)
    assert any(re.search(pattern, text) for pattern in Ollama.watch for text in texts)


def test_two_servers_on_one_host() -> None:
    sites = Ollama().find((server(5), server(6, "http://0.0.0.0:11500")), ())
    assert [(one.host, one.port, one.pid) for one in sites] == [
        ("127.0.0.1", 11434, 5),
        ("127.0.0.1", 11500, 6),
    ]


def test_a_config_names_a_server_that_was_found() -> None:
    found = (server(5), server(6, "10.0.0.7:11500"))
    named = EngineConfig("ollama", "http://localhost:11434")
    far = EngineConfig("ollama", "http://10.0.0.9:11500")
    sites = Ollama().find(found, (named, far, EngineConfig("vllm", "http://localhost:8000")))
    assert {(one.host, one.port, one.pid) for one in sites} == {
        ("localhost", 11434, 5),
        ("10.0.0.7", 11500, 6),
        ("10.0.0.9", 11500, None),
    }
    assert len({one.key for one in sites}) == 3


def test_a_key_does_not_show_in_what_may_be_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIG_KEY", "hush")
    (site,) = Ollama().find((), (EngineConfig("ollama", "http://h:1", "RIG_KEY"),))
    assert site.bearer == "hush"
    assert "hush" not in repr(site)


def test_runners_are_the_servers_own() -> None:
    mine = runner_of("cpu-defaults", "03-idle", 7326)
    deep = replace(mine, pid=8, ppid=9, ancestors=(Ancestor(9), Ancestor(SERVER.pid)))
    foreign = replace(mine, pid=9, ppid=77)
    alone = WatchedProcess(pid=10, ppid=SERVER.pid, cmd=("llama-server", "--version"))
    processes = (SERVER, mine, deep, foreign, alone)
    assert runners_of(SERVER.pid, processes) == [mine, deep]
    assert runners_of(None, processes) == []


def old_runner(*extra: str, **fields: object) -> WatchedProcess:
    command = ("/usr/bin/ollama", "runner", *extra, "--port", "4001")
    made = WatchedProcess(pid=9, ppid=SERVER.pid, start_ticks=90, comm="ollama", cmd=command)
    return replace(made, **fields)  # type: ignore[arg-type]


def test_an_old_runner_says_little_and_why() -> None:
    runner = read_model_process(old_runner("--ollama-engine", "--model", "/b/sha256-x"))
    assert (runner.model_path, runner.port) == ("/b/sha256-x", 4001)
    for field in ("context_total_tokens", "parallel_slots", "flash_attention", "slots"):
        assert getattr(runner, field) is None
        assert runner.unknown[field] == "engine-too-old"
    assert runner.cache_type_k == "f16", "the environment was read and names no other"


def test_the_cache_type_of_an_old_runner_is_the_environments() -> None:
    quantised = old_runner("--model", "/b", env={"OLLAMA_KV_CACHE_TYPE": "Q8_0"})
    assert read_model_process(quantised).cache_type_v == "q8_0"
    hidden = read_model_process(old_runner("--model", "/b", env_readable=False))
    assert hidden.cache_type_k is None
    assert hidden.unknown["cache_type_k"] == "no-permission"


def test_a_runner_of_2025_has_settings_in_its_argv() -> None:
    words = "--model /b --ctx-size 16384 --batch-size 512 --n-gpu-layers 33 --parallel 4"
    runner = read_model_process(old_runner(*words.split()))
    assert (runner.context_total_tokens, runner.parallel_slots) == (16384, 4)
    assert (runner.batch, runner.gpu_layers) == (512, 33)
    assert "context_total_tokens" not in runner.unknown


def test_an_mlx_runner_lacks_slots_for_another_reason() -> None:
    runner = read_model_process(old_runner("--mlx-engine", "--model", "gemma3:4b"))
    assert runner.model_path == "gemma3:4b"
    assert runner.unknown["slots"] == runner.unknown["cache_type_k"] == "engine-lacks"


def test_the_cards_a_runner_may_use() -> None:
    base = runner_of("cpu-defaults", "03-idle", 7326)
    one = replace(base, env={"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"})
    assert read_model_process(one).visible_devices == "GPU-1,GPU-2"
    amd = replace(base, env={"ROCR_VISIBLE_DEVICES": "0"})
    assert read_model_process(amd).visible_devices == "0"
    hidden = read_model_process(replace(base, env={}, env_readable=False))
    assert hidden.visible_devices is None
    assert hidden.unknown["visible_devices"] == "no-permission"
    words = (*base.cmd, "--split-mode", "none", "--main-gpu", "1")
    single = read_model_process(replace(base, cmd=words))
    assert (single.split_mode, single.main_gpu) == ("none", 1)


def test_numbers_in_an_argv_that_no_database_could_hold() -> None:
    base = runner_of("cpu-defaults", "03-idle", 7326)
    for number in ("9" * 30, "9" * 5000, "x", "1.5"):
        runner = read_model_process(replace(base, cmd=(*base.cmd, "-c", number)))
        assert runner.context_total_tokens is None


def test_settings_come_from_whoever_may_be_read() -> None:
    hidden = server(env_readable=False)
    child = runner_of("cpu-parallel2-q8_0", "02-busy-1", 8093)
    settings, reason = settings_of(hidden, [child])
    assert (settings["OLLAMA_KEEP_ALIVE"], reason) == ("-1", None)
    assert settings_of(hidden, [replace(child, env={}, env_readable=False)]) == (
        {},
        "no-permission",
    )
    assert settings_of(None, []) == ({}, "no-process")
    assert settings_of(server(), []) == ({}, None), "read, and nothing was set"
