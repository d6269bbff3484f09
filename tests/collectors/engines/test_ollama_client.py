"""Calls that a person waits for, by the ollama package over a host's connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpumon.collectors.connect import open_transport
from gpumon.collectors.engines.contract import Site
from gpumon.collectors.engines.ollama_client import OllamaCallFailed, OllamaClient
from gpumon.collectors.failures import ForwardRefused
from gpumon.collectors.local import LocalTransport
from gpumon.inventory import HostConfig
from tests.collectors.real_sshd import Client, Sshd
from tests.rig.replay import Asked, Replay, Reply

RECORDINGS = Path(__file__).parents[2] / "recordings" / "ollama"
TAGS = json.loads((RECORDINGS / "cpu-defaults" / "01-empty.tags.json").read_text())
VERBOSE = json.loads((RECORDINGS / "show" / "tiny-llama.verbose-true.json").read_text())


def show(asked: Asked) -> Reply:
    wanted = json.loads(asked.body)
    if wanted["model"] != "tiny-llama:latest":
        return Reply({"error": f"model '{wanted['model']}' not found"}, 404)
    assert wanted["verbose"] is True
    return Reply(VERBOSE)


@pytest.fixture
async def server() -> AsyncIterator[Replay]:
    with Replay({"GET /api/tags": Reply(TAGS), "POST /api/show": show}) as made:
        yield made


def client_of(server: Replay, *, bearer: str | None = None) -> OllamaClient:
    return OllamaClient(LocalTransport(), Site("ollama", server.port, bearer=bearer))


async def test_tags(server: Replay) -> None:
    async with client_of(server) as calls:
        models = await calls.tags()
    assert [model.name for model in models] == [row["name"] for row in TAGS["models"]]
    first = models[0]
    assert (first.size_bytes, first.quantization, first.family) == (253113180, "Q4_K_M", "gemma3")
    assert first.digest == TAGS["models"][0]["digest"]


async def test_show_is_verbose_and_asked_once_for_a_digest(server: Replay) -> None:
    async with client_of(server) as calls:
        several = await asyncio.gather(*(calls.show("tiny-llama:latest", "d") for _ in range(5)))
        assert all(one is several[0] for one in several)
        assert len(server.asked) == 1
        await calls.show("tiny-llama:latest", "another digest")
        assert len(server.asked) == 2
    shown = several[0]
    assert shown.model_info["general.architecture"] == "llama"
    assert shown.model_info["llama.block_count"] == 4
    assert shown.capabilities == ("completion",)
    assert len(shown.tensors) == len(VERBOSE["tensors"]) > 10
    assert shown.tensors[0].keys() == {"name", "type", "shape"}
    assert "\nFROM " in (shown.modelfile or "")


async def test_the_vocabulary_is_dropped_and_lists_per_layer_are_kept(server: Replay) -> None:
    info = {
        "tokenizer.ggml.tokens": ["x"] * 262_144,
        "gemma3.attention.head_count_kv": [1, 1, 4] * 20,
    }
    server.routes["POST /api/show"] = Reply({"model_info": info, "tensors": None})
    async with client_of(server) as calls:
        shown = await calls.show("big", "d")
    assert shown.model_info == {"gemma3.attention.head_count_kv": [1, 1, 4] * 20}
    assert shown.tensors == ()


async def test_a_failure_is_told_and_not_remembered(server: Replay) -> None:
    async with client_of(server) as calls:
        with pytest.raises(OllamaCallFailed, match="no such model"):
            await calls.show("missing", "d")
        assert (await calls.show("tiny-llama:latest", "d")).model_info


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply({"error": "unauthorized"}, 401), "key_env"),
        (Reply(b"<html>", 502), "HTTP 502"),
        (Reply(b"<html>"), "could not be understood"),
        (Reply(b'{"models": [{"na'), "could not be understood"),
        (Reply([1, 2]), "could not be understood"),
        (Reply({"models": 5}), "could not be understood"),
        (Reply(b"[" * 100_000), "could not be understood"),
        (Reply({"models": []}, cut_after=3), "whether it still runs"),
        (Reply("", 302, headers={"Location": "/elsewhere"}), "HTTP 302"),
    ],
    ids=["401", "502", "html", "half", "list", "number", "deep", "cut", "redirect"],
)
async def test_bad_answers_in_words(server: Replay, reply: Reply, words: str) -> None:
    server.routes.update({"GET /api/tags": reply, "POST /api/show": reply})
    async with client_of(server) as calls:
        with pytest.raises(OllamaCallFailed) as raised:
            await calls.tags()
        assert words in str(raised.value)
        assert f"127.0.0.1:{server.port} of this machine" in str(raised.value)
        if reply.body != {"models": 5}:
            with pytest.raises(OllamaCallFailed, match=words):
                await calls.show("tiny-llama:latest", "d")
    assert not any(asked.path == "/elsewhere" for asked in server.asked)


async def test_the_users_own_cloud_key_is_not_given_to_a_host(
    server: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_API_KEY", "of the user")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    for bearer in (None, "of the host"):
        async with client_of(server, bearer=bearer) as calls:
            await calls.tags()
            await calls.show("tiny-llama:latest", "d")
    sent = [asked.headers.get("Authorization") for asked in server.asked]
    assert sent == [None, None, "Bearer of the host", "Bearer of the host"]


async def test_nobody_listens(unused_tcp_port: int) -> None:
    async with OllamaClient(LocalTransport(), Site("ollama", unused_tcp_port)) as calls:
        for call in (calls.tags(), calls.show("m", "d")):
            with pytest.raises(ForwardRefused):
                await call


async def test_over_ssh_and_where_forwarding_is_forbidden(
    start_sshd: object, client: Client, server: Replay
) -> None:
    assert callable(start_sshd)
    for name, extra, allowed in (("open", "", True), ("shut", "AllowTcpForwarding no", False)):
        sshd: Sshd = start_sshd(name, extra=extra)
        client.trust(sshd)
        pool = client.pool()
        config = HostConfig("gpu1", address=sshd.address, port=sshd.port)
        transport = await open_transport(config, pool)
        async with OllamaClient(transport, Site("ollama", server.port)) as calls:
            if allowed:
                assert len(await calls.tags()) == 3
                assert (await calls.show("tiny-llama:latest", "d")).model_info
            else:
                with pytest.raises(ForwardRefused) as raised:
                    await calls.tags()
                assert raised.value.forbidden
        await transport.close()
        await pool.close()
