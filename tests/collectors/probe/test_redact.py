"""No secret leaves a host in a command line, and what monitoring needs stays."""

from __future__ import annotations

import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.collectors.payload import install_probe_modules

install_probe_modules()
from gpumon_probe_redact import (  # noqa: E402
    HIDDEN,
    is_secret_name,
    may_send_variable,
    redact_argv,
    redact_text,
)

#: Of no known shape, so that only its place can give it away.
S = "q7Zr9.tUw2-Xy"


@pytest.mark.parametrize(
    "argv",
    [
        # a flag and its value
        ["llama-server", "--api-key", S, "--port", "8080"],
        ["llama-server", "--api-key", f"{S},{S}"],
        ["vllm", "serve", "--api-key", S, S + "2", "--port", "8000"],
        ["prog", "--hf-token", S],
        ["prog", "-hft", S],
        ["prog", "--token", S],
        ["prog", "--auth-token", S],
        ["prog", "--access_token", S],
        ["prog", "--password", S],
        ["prog", "--passwd", S],
        ["prog", "--db-password", S],
        ["prog", "--pass", S],
        ["prog", "--passphrase", S],
        ["prog", "--secret", S],
        ["prog", "--client-secret", S],
        ["prog", "--clientSecret", S],
        ["prog", "--aws-secret-access-key", S],
        ["prog", "--wandb_api_key", S],
        ["prog", "--credentials", S],
        ["prog", "--bearer", S],
        ["prog", "--authkey", S],
        ["prog", "-token", S],
        ["prog", "--api-key", "-" + S],
        # glued
        ["prog", f"--api-key={S}"],
        ["prog", f"--apikey={S}"],
        ["prog", f"--API_KEY={S}"],
        ["prog", f"--token:{S}"],
        ["prog", f"-Dspring.datasource.password={S}"],
        ["prog", f"--set=auth.token={S}"],
        ["prog", f"/password:{S}"],
        # assignments
        ["env", f"HF_TOKEN={S}", "python", "train.py"],
        ["docker", "run", "-e", f"OPENAI_API_KEY={S}", "image"],
        ["docker", "run", f"--env=MY_SECRET={S}", "image"],
        ["sh", "-c", f"export HUGGING_FACE_HUB_TOKEN={S}; exec vllm serve m"],
        ["sh", "-c", f"HF_TOKEN='{S} {S}' python x.py"],
        ["sh", "-c", f"vllm serve m --api-key {S} --port 8000"],
        ["sh", "-c", f'vllm serve m --api-key "{S}"'],
        ["prog", f'{{"api_key": "{S}", "model": "m"}}'],
        ["prog", f"{{'password':'{S}'}}"],
        ["prog", f"token: {S}"],
        # headers and schemes
        ["curl", "-H", f"Authorization: Bearer {S}", "http://x/"],
        ["curl", "-H", f"authorization: Basic {S}="],
        ["curl", "-H", f"X-Api-Key: {S}"],
        ["curl", f"-HX-Auth-Token: {S}"],
        ["curl", "-H", f"Cookie: session={S}"],
        ["prog", f"Bearer {S}"],
        ["curl", "-u", f"user:{S}", "http://x/"],
        ["curl", f"-uuser:{S}"],
        ["curl", "--user", f"user:{S}"],
        # addresses
        ["git", "clone", f"https://user:{S}@example.com/x.git"],
        ["git", "clone", f"https://{S}@example.com/x.git"],
        ["prog", f"postgres://u:{S}@db:5432/x"],
        ["prog", f"--url=redis://:{S}@h/0"],
        ["prog", f"amqp://u:p@ss{S}@h"],
        ["curl", f"https://x/y?a=1&api_key={S}&b=2"],
        ["curl", f"https://x/y?key={S}"],
        ["curl", f"https://x/y?access_token={S}"],
        ["curl", f"https://s3/x?X-Amz-Signature={S}&X-Amz-Credential={S}"],
        # programs with short flags of their own
        ["sshpass", "-p", S, "ssh", "host"],
        ["sshpass", f"-p{S}", "ssh", "host"],
        ["/usr/bin/mysql", "-u", "root", f"-p{S}"],
        ["redis-cli", "-a", S],
        # a title is one long argument
        [f"worker --token {S} --port 5"],
        ["prog", f"-----BEGIN OPENSSH PRIVATE KEY-----\n{S}\n-----END OPENSSH PRIVATE KEY-----"],
        ["prog", f"-----BEGIN PRIVATE KEY-----\n{S}"],
    ],
    ids=lambda argv: " ".join(argv)[:60],
)
def test_a_secret_is_hidden_by_its_place(argv: list[str]) -> None:
    shown = redact_argv(argv)
    assert len(shown) == len(argv)
    assert S not in " ".join(shown)
    assert HIDDEN in " ".join(shown)
    assert redact_argv(shown) == shown


@pytest.mark.parametrize(
    "key",
    [
        "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567",
        "sk-" + "proj-abcdefghijklmnop0123456789",
        "sk-" + "ant-api03-abcdefghijklmnop",
        "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789",
        "github_pat_" + "11ABCDEFG0abcdefghijkl_mnop",
        "glpat-" + "abcdefghij0123456789",
        "xoxb-" + "123456789012-abcdefghijkl",
        "AKIA" + "IOSFODNN7EXAMPLE",
        "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
        "nvapi-" + "abcdefghijklmnopqrstuvwxyz012345",
        "gsk_" + "abcdefghijklmnopqrstuvwxyz",
        "dckr_pat_" + "abcdefghijklmnopqrstuvw",
        "pypi-" + "AgEIcHlwaS5vcmcCJGFiY2RlZmdo",
        "eyJhbGciOiJIUzI1NiJ9"
        + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0"
        + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
        "sk_live_" + "abcdefghijklmnop",
    ],
)
@pytest.mark.parametrize("form", ["{}", "--x={}", "a,{},b", "https://h/{}/y", "say '{}' now"])
def test_a_key_of_a_known_shape_is_hidden_anywhere(key: str, form: str) -> None:
    for shown in (redact_argv(["prog", form.format(key)])[1], redact_text(form.format(key))):
        assert key not in shown
        assert key[8:-2] not in shown


OLLAMA_RUNNER = (
    "/usr/local/lib/ollama/llama-server --model /usr/share/ollama/.ollama/models/blobs/"
    "sha256-735af2139dc652bf01112746474883d79a52fa1c19038265d363e3d42556f7a2 --port 41235 "
    "--host 127.0.0.1 --no-webui --offline -c 8192 -np 2 --log-verbosity 4 --no-log-prefix "
    "--no-log-timestamps --cache-type-k q8_0 --cache-type-v q8_0 --flash-attn on -b 1024 -ub 1024 "
    "--context-shift --keep 4 -ngl 29 --split-mode none --main-gpu 1 -t 8"
)


@pytest.mark.parametrize(
    "line",
    [
        OLLAMA_RUNNER,
        "ollama serve",
        "/usr/local/bin/ollama runner --ollama-engine --model /x/blobs/sha256-abc123 --port 34567",
        "vllm serve Qwen/Qwen2.5-7B-Instruct --port 8000 --max-model-len 32768 "
        "--tokenizer-mode auto --max-num-batched-tokens 8192 --tokenizer Qwen/Qwen2.5-7B "
        "--trust-remote-code --gpu-memory-utilization 0.92 --served-model-name a b "
        "--ssl-keyfile /etc/key.pem",
        "VLLM::EngineCore",
        "text-generation-launcher --model-id m --max-input-tokens 4096 --max-total-tokens 8192",
        "llama-server -m /m/x.gguf --api-key-file /etc/keys -ctk q8_0 -ctv q8_0 --slots --metrics",
        "python -m torch.distributed.run --nproc_per_node=8 train.py --lr=1e-4 --pad-token-id 0 "
        "--eos_token_id=2 --author someone --keyboard us --monkey 5 --passthrough yes --compass 1",
        "docker run -p 8080:80 -u 1000:1000 --gpus all image:tag",
        "ssh -p 22 -i /home/u/.ssh/id user@host",
        "git@github.com:owner/repo.git http://127.0.0.1:11434/api/ps?x=1 ::1 [::1]:80",
        "java -Xmx4g -Dfile.encoding=UTF-8 -jar x.jar",
        "prog --no-auth --auth=false --require-token --token true --sort-key name --primary-key id",
        "a basic setup with a token limit, and digest sizes",
    ],
)
def test_what_monitoring_needs_stays(line: str) -> None:
    argv = line.split(" ")
    assert redact_argv(argv) == argv
    assert redact_text(line) == line


def test_empty_and_odd_command_lines() -> None:
    assert redact_argv([]) == []
    assert redact_argv([""]) == [""]
    assert redact_argv(["", "", "--api-key"]) == ["", "", "--api-key"]
    assert redact_argv(["p", "--api-key", "--port", "1"]) == ["p", "--api-key", "--port", "1"]
    assert redact_argv(["p", "--api-key", "", "x"]) == ["p", "--api-key", "", HIDDEN]


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("api-key", True), ("apiKey", True), ("OPENAI_API_KEY", True), ("x.y.secret", True),
        ("hfToken", True), ("aws_session_token", True), ("SSH_PRIVATE_KEY", True), ("pwd", True),
        ("port", False), ("model", False), ("max_tokens", False), ("tokenizer", False),
        ("keep-alive", False), ("OLLAMA_KEEP_ALIVE", False), ("key", False),
        ("cache-type-k", False),
        ("author", False), ("authority", False), ("eos-token", False), ("num_keys", False),
    ],
)  # fmt: skip
def test_names(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


@pytest.mark.parametrize(
    "name",
    [
        "OLLAMA_HOST",
        "OLLAMA_KEEP_ALIVE",
        "CUDA_VISIBLE_DEVICES",
        "LLAMA_ARG_ENDPOINT_METRICS",
        "OLLAMA_KV_CACHE_TYPE",
    ],
)
def test_harmless_variables_may_be_sent(name: str) -> None:
    assert may_send_variable(name)


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "LLAMA_API_KEY",
        "OLLAMA_AUTH",
        "VLLM_API_KEY",
        "PGPASSWORD",
        "aws_secret",
        "MY_CREDS",
        "GITHUB_PAT_TOKEN",
    ],
)
def test_no_secrets_variable_may_be_sent(name: str) -> None:
    assert not may_send_variable(name)


SECRET_FLAGS = st.sampled_from(
    ["--api-key", "--token", "--hf-token", "--password", "--secret", "--auth-token", "-token",
     "--db_password", "--clientSecret", "--access-key"]
)  # fmt: skip
#: Printable, no blank; a value that is a switch's word or looks like a flag is another case.
SECRETS = st.text(
    string.ascii_letters + string.digits + "+/=_.~$%^*", min_size=10, max_size=60
).map(lambda text: "Z9" + text)
WORDS = st.text(max_size=30)


@given(st.lists(WORDS, max_size=5), SECRET_FLAGS, SECRETS, st.lists(WORDS, max_size=5), st.data())
@settings(max_examples=300, deadline=None)
def test_property_a_flags_value_never_shows(
    before: list[str], flag: str, secret: str, after: list[str], data: st.DataObject
) -> None:
    separate = data.draw(st.booleans())
    middle = [flag, secret] if separate else [f"{flag}={secret}"]
    if separate and before and before[-1].startswith("-"):
        before.append("x")
    argv = ["prog", *before, *middle, *after]
    shown = redact_argv(argv)
    assert len(shown) == len(argv)
    position = 1 + len(before) + (1 if separate else 0)
    assert secret not in shown[position]


@given(st.lists(st.text(max_size=60), max_size=12))
@settings(max_examples=300, deadline=None)
def test_property_any_argv_keeps_its_length_and_redacting_twice_changes_nothing(
    argv: list[str],
) -> None:
    once = redact_argv(argv)
    assert len(once) == len(argv)
    assert redact_argv(once) == once


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_property_any_text_is_taken(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


FORMS = st.sampled_from(
    [
        "https://u:{}@h/x",
        "https://h/?token={}",
        "Authorization: Bearer {}",
        "MY_TOKEN={}",
        '{{"password": "{}"}}',
    ]
)


@given(SECRETS, FORMS)
@settings(max_examples=200, deadline=None)
def test_property_a_secret_in_text_never_shows(secret: str, form: str) -> None:
    if "/" in secret and "@" in form:
        secret = secret.replace("/", "_")  # there it would end the address's user part
    assert secret not in redact_text("run " + form.format(secret) + " now")


def test_a_long_line_does_not_take_long() -> None:
    parts = ("a=", "--", "a", "://", "--token ", '"', "a-", "-----BEGIN A PRIVATE KEY-----",
             "token ", "a@", "eyJaaaaaaaa.", "?a=", "x-", " ", ":", "'a':", "-a ")  # fmt: skip
    for text in (part * (16000 // len(part)) for part in parts):
        began = time.process_time()
        redact_argv(["p", text])
        assert time.process_time() - began < 1.0, text[:10]
