"""The probe's asker against a real server on loopback, good and bad."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpumon.collectors.payload import Request, install_probe_modules
from gpumon.collectors.wire import read_answers
from tests.collectors.probe.loopback_server import LoopbackServer, free_port, raw, reply
from tests.collectors.probe_process import RunningProbe, request

install_probe_modules()
from gpumon_probe_http import Asker, Entry, clean_request  # noqa: E402
from gpumon_probe_http_exchange import ERRORS, ask  # noqa: E402

BODY_10_MB = b'{"a":"' + b"x" * 10_000_000 + b'"}'


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(
        ok=reply(b'{"version":"0.33.0"}'),
        empty=reply(b""),
        unauthorized=reply(b'{"error":"Invalid API Key"}', "401 Unauthorized"),
        missing=reply(b"404 page not found", "404 Not Found"),
        loading=reply(b'{"error":{"message":"Loading model"}}', "503 Service Unavailable"),
        html=reply(b"<html><body>It works!</body></html>", headers="Content-Type: text/html\r\n"),
        half=raw(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"models":[{"na'),
        big=reply(BODY_10_MB),
        bytes=reply(b"caf\xe9 \xff\xfe \xe2\x82\xac"),
        chunked=raw(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"4\r\nWiki\r\n6;x=y\r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n0\r\n\r\n"
        ),
        half_chunk=raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc"),
        bad_chunk=raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n"),
        until_close=raw(b"HTTP/1.0 200 OK\r\n\r\nuntil the end"),
        interim=raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"),
        nothing=raw(b""),
        ssh=raw(b"SSH-2.0-OpenSSH_9.2\r\n"),
        garbage=raw(bytes(range(256)) * 40),
        endless_head=raw(b"HTTP/1.1 200 OK\r\n" + b"X-A: " + b"a" * 300_000),
        many_heads=raw(b"HTTP/1.1 200 OK\r\n" + b"X-A: abcdefghij\r\n" * 20_000),
        bad_length=raw(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nbody"),
        negative_length=raw(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nbody"),
        no_body=raw(b"HTTP/1.1 204 No Content\r\n\r\n"),
    ) as running:
        for name in ("hang", "drip", "endless"):
            running.paths["/" + name] = getattr(running, name)
        yield running


def asked(server: LoopbackServer, path: str, **fields: Any) -> dict[str, Any]:
    given = {"id": "x", "port": server.port, "path": path, "timeout_s": 5, **fields}
    answer: dict[str, Any] = ask(clean_request(given))
    assert set(answer) == {"status", "body", "error", "truncated"}
    if answer["error"] is not None:
        assert answer["error"].partition(":")[0] in ERRORS
    return answer


@pytest.mark.parametrize(
    ("path", "status", "body", "error"),
    [
        ("/ok", 200, '{"version":"0.33.0"}', None),
        ("/empty", 200, "", None),
        ("/unauthorized", 401, '{"error":"Invalid API Key"}', None),
        ("/missing", 404, "404 page not found", None),
        ("/loading", 503, '{"error":{"message":"Loading model"}}', None),
        ("/html", 200, "<html><body>It works!</body></html>", None),
        ("/half", 200, '{"models":[{"na', "closed"),
        ("/bytes", 200, "caf\ufffd \ufffd\ufffd €", None),
        ("/chunked", 200, "Wikipedia in \r\n\r\nchunks.", None),
        ("/half_chunk", 200, "abc", "closed"),
        ("/until_close", 200, "until the end", None),
        ("/interim", 200, "hi", None),
        ("/no_body", 204, "", None),
        ("/nothing", None, None, "closed"),
    ],
)
def test_whatever_a_server_says_is_an_answer(
    server: LoopbackServer, path: str, status: int | None, body: str | None, error: str | None
) -> None:
    answer = asked(server, path)
    assert answer == {"status": status, "body": body, "error": error, "truncated": False}


@pytest.mark.parametrize(
    "path", ["/ssh", "/garbage", "/endless_head", "/many_heads", "/bad_length", "/negative_length",
             "/bad_chunk"]
)  # fmt: skip
def test_what_is_no_http_is_named_so(server: LoopbackServer, path: str) -> None:
    assert asked(server, path)["error"].startswith("not-http: ")


def test_a_long_body_stops_at_the_cap(server: LoopbackServer) -> None:
    began = time.monotonic()
    answer = asked(server, "/big", cap_bytes=1000)
    assert answer["status"] == 200
    assert answer["truncated"] is True
    assert answer["error"] is None
    assert answer["body"] == BODY_10_MB[:1000].decode()
    assert len(asked(server, "/endless", cap_bytes=100_000)["body"]) == 100_000
    assert time.monotonic() - began < 4


@pytest.mark.parametrize("path", ["/hang", "/drip"])
def test_the_deadline_is_for_the_whole_exchange(server: LoopbackServer, path: str) -> None:
    began = time.monotonic()
    answer = asked(server, path, timeout_s=0.5)
    assert 0.4 < time.monotonic() - began < 2
    assert answer["error"] == "timeout"
    assert answer["status"] == (200 if path == "/drip" else None)


def test_nobody_there_is_refused(server: LoopbackServer) -> None:
    assert asked(server, "/", port=free_port())["error"] == "refused"
    assert asked(server, "/", host="no-such-name.invalid", timeout_s=2)["error"].startswith(
        ("unreachable", "failed")
    )


def test_what_is_sent(server: LoopbackServer) -> None:
    server.heads.clear()
    asked(server, "/ok", method="POST", body='{"model":"é"}', bearer="k3y")
    head, _, body = server.heads[-1].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /ok HTTP/1.1"
    assert b"Authorization: Bearer k3y" in lines
    assert b"Host: 127.0.0.1:%d" % server.port in lines
    assert b"Connection: close" in lines
    assert json.loads(body) == {"model": "é"}
    assert b"Content-Length: %d" % len(body) in lines


@pytest.mark.parametrize(
    "fields",
    [
        {"path": "/ok\r\nX-Evil: 1"},
        {"path": "/o k"},
        {"bearer": "a\r\nb: c"},
        {"host": "127.0.0.1\r\n"},
        {"method": "GET /x"},
        {"path": "/\u4e2d"},
    ],
)
def test_a_field_cannot_break_out_of_its_line(server: LoopbackServer, fields: Any) -> None:
    before = sum(server.asked.values())
    given = {"path": "/ok", **fields}
    assert asked(server, **given)["error"] == "bad-request"
    assert sum(server.asked.values()) == before


# --- when to ask: no clock and no socket but the given ------------------------------------
def entry(**fields: Any) -> Any:
    made = clean_request({"id": "x", "port": 1, "path": "/", **fields})
    assert made is not None
    return Entry(made)


def fly(one: Any, mono: float, status: int = 200) -> None:
    one.asked_at = mono
    one.status = status
    one.settled = status != 503


def test_cadence() -> None:
    one = entry(every_s=15)
    assert one.is_due(100.0, False, True, False)
    fly(one, 100.0)
    assert not one.is_due(102.0, False, True, False)
    assert not one.is_due(114.0, False, True, False)
    assert one.is_due(114.95, False, True, False)
    one.in_flight = True
    assert not one.is_due(999.0, False, True, True)


def test_at_once_when_other_processes_are_watched_but_not_in_a_flurry() -> None:
    one = entry(every_s=15)
    fly(one, 100.0)
    assert not one.is_due(101.0, False, True, True)
    assert one.is_due(102.0, False, True, True)
    never = entry(every_s=15, on_change=False)
    fly(never, 100.0)
    assert not never.is_due(110.0, False, True, True)


def test_a_busy_pid_is_asked_while_it_burns_once_at_the_start_and_once_after() -> None:
    one = entry(every_s=2, busy_pid=7)
    assert one.is_due(100.0, False, True, False)  # at the start
    fly(one, 100.0)
    assert not one.is_due(110.0, False, True, True)  # idle: left alone, whatever changes
    assert one.is_due(120.0, True, True, False)
    fly(one, 120.0)
    assert not one.is_due(121.0, True, True, False)
    assert one.is_due(122.0, True, True, False)
    fly(one, 122.0)
    assert one.is_due(122.5, False, True, False)  # it stopped
    fly(one, 122.5)
    assert not one.is_due(200.0, False, True, False)


def test_an_idle_pid_is_asked_again_until_it_is_loaded() -> None:
    one = entry(every_s=2, busy_pid=7)
    fly(one, 100.0, status=503)
    assert one.is_due(102.0, False, True, False)
    fly(one, 102.0, status=200)
    assert not one.is_due(110.0, False, True, False)


def test_a_closed_gate_holds() -> None:
    one = entry(every_s=2, gate="other")
    assert not one.is_due(100.0, False, False, True)
    assert one.is_due(100.0, False, True, False)


@pytest.mark.parametrize(
    "given",
    [
        None,
        5,
        {},
        {"id": "x"},
        {"id": 5, "port": 1, "path": "/"},
        {"id": "x", "port": 0, "path": "/"},
        {"id": "x", "port": True, "path": "/"},
        {"id": "x", "port": 1, "path": "x"},
        {"id": "x", "port": 1, "path": "/", "host": 5},
        {"id": "x", "port": 1, "path": "/", "body": {}},
    ],
)
def test_a_request_that_makes_no_sense_is_left_out(given: Any) -> None:
    assert clean_request(given) is None
    Asker().configure([given])


def test_numbers_of_a_request_are_kept_in_bounds() -> None:
    made = clean_request(
        {"id": "x", "port": 1, "path": "/", "every_s": 0, "cap_bytes": 1e12, "timeout_s": "soon"}
    )
    assert made is not None
    assert (made["every_s"], made["cap_bytes"], made["timeout_s"]) == (0.5, 512 * 1024, 5.0)


# --- within a real probe ------------------------------------------------------------------
def test_a_hanging_engine_delays_neither_another_nor_the_samples(server: LoopbackServer) -> None:
    with LoopbackServer() as stuck:
        stuck.paths["/hang"] = stuck.hang
        with RunningProbe(
            interval_s=0.1,
            requests=(
                request("stuck", stuck.port, "/hang", timeout_s=2),
                request("fine", server.port, "/ok"),
            ),
        ) as probe:
            probe.hello()
            began = time.monotonic()
            assert probe.answer("fine")["status"] == 200
            assert time.monotonic() - began < 1.5
            monos = [probe.record()["mono"] for _ in range(8)]
            assert monos[-1] - monos[0] < 1.9
            late = probe.answer("stuck")
            assert (late["status"], late["error"]) == (None, "timeout")
            assert late["ms"] > 1900


def test_an_answer_that_did_not_change_is_sent_without_its_body(server: LoopbackServer) -> None:
    with (
        LoopbackServer(v=reply(b"one")) as changing,
        RunningProbe(interval_s=0.1, requests=(request("v", changing.port, "/v"),)) as probe,
    ):
        probe.hello()
        first, second = probe.answer("v"), probe.answer("v")
        assert (first["body"], first["same"]) == ("one", False)
        assert (second["body"], second["same"], second["status"]) == (None, True, 200)
        assert second["mono"] > first["mono"]
        changing.paths["/v"] = reply(b"two")
        assert probe.until(lambda r: [a for a in r["http"] if a["body"] == "two"])
        # the same body under another status is a change
        changing.paths["/v"] = reply(b"two", "503 Service Unavailable")
        assert probe.until(lambda r: [a for a in r["http"] if a["status"] == 503 and a["body"]])
        # a new definition under the old name starts anew
        probe.set(requests=(request("v", changing.port, "/v", cap_bytes=2),))
        assert probe.until(lambda r: [a for a in r["http"] if a["body"] == "tw" and a["truncated"]])


def test_set_adds_and_removes_requests(server: LoopbackServer) -> None:
    with RunningProbe(interval_s=0.1) as probe:
        probe.hello()
        assert probe.record()["http"] == []
        probe.set(requests=(request("a", server.port, "/ok"),))
        assert probe.answer("a")["body"] == '{"version":"0.33.0"}'
        probe.set(requests=(request("b", server.port, "/missing"),))
        assert probe.answer("b")["status"] == 404
        server.asked.clear()
        for _ in range(12):
            assert all(row["id"] == "b" for row in probe.record()["http"])
        assert set(server.asked) == {"/missing"}


def test_a_gate_opens_with_the_first_good_answer() -> None:
    with (
        LoopbackServer(
            health=reply(b"no", "503 Service Unavailable"), slots=reply(b"[]")
        ) as runner,
        RunningProbe(
            interval_s=0.1,
            requests=(
                request("health", runner.port, "/health"),
                request("slots", runner.port, "/slots", gate="health"),
            ),
        ) as probe,
    ):
        probe.hello()
        assert probe.answer("health")["status"] == 503
        assert probe.answer("health")["status"] == 503
        assert runner.asked["/slots"] == 0
        runner.paths["/health"] = reply(b"ok")
        assert probe.answer("slots")["status"] == 200


def test_an_idle_process_is_left_alone_and_a_busy_one_is_asked() -> None:
    work = (
        "import sys, time\n"
        "for line in sys.stdin:\n"
        "    until = time.time() + float(line)\n"
        "    while time.time() < until: pass\n"
    )
    child = subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE)
    assert child.stdin is not None
    try:
        with (
            LoopbackServer(slots=reply(b"[]")) as runner,
            RunningProbe(
                interval_s=0.2,
                requests=(
                    request("slots", runner.port, "/slots", busy_pid=child.pid, every_s=0.5),
                ),
            ) as probe,
        ):
            probe.hello()
            probe.answer("slots")
            idle = runner.asked["/slots"]
            for _ in range(8):
                probe.record()
            assert runner.asked["/slots"] <= idle + 1  # its start may have burnt CPU
            quiet = runner.asked["/slots"]
            child.stdin.write(b"1.5\n")
            child.stdin.flush()
            for _ in range(12):
                probe.record()
            # while it burnt, and once more after it stopped
            assert quiet + 2 <= runner.asked["/slots"] <= quiet + 5
            settled = runner.asked["/slots"]
            for _ in range(8):
                probe.record()
            assert runner.asked["/slots"] <= settled + 1
    finally:
        child.kill()
        child.communicate()


def test_new_processes_make_it_ask_at_once(server: LoopbackServer) -> None:
    mark = "gpumon-runner-mark"
    with RunningProbe(
        interval_s=0.2,
        watch=(mark,),
        requests=(request("ps", server.port, "/ok", every_s=3600),),
    ) as probe:
        probe.hello()
        first = probe.answer("ps")
        probe.until(lambda one: one["mono"] > first["mono"] + 2.1)
        child = subprocess.Popen(["sh", "-c", f": {mark}; read -r x"], stdin=subprocess.PIPE)
        try:
            assert probe.answer("ps", 5.0)["mono"] > first["mono"] + 2
        finally:
            child.communicate(b"\n")


def test_many_long_bodies_never_make_a_line_over_4_mib() -> None:
    # each control character takes six characters of JSON
    body = b"\x01" * 500_000
    with (
        LoopbackServer(a=reply(body)) as one,
        RunningProbe(
            interval_s=0.2,
            requests=tuple(
                request(f"r{n}", one.port, "/a", cap_bytes=10**9, every_s=60) for n in range(4)
            ),
        ) as probe,
    ):
        probe.hello()
        got: dict[str, dict[str, Any]] = {}
        while len(got) < 4:
            line = probe.lines.next()
            assert len(line) < 4 * 1024 * 1024
            got.update((row["id"], row) for row in json.loads(line)["http"])
    assert all(row["body"] == body.decode() and not row["truncated"] for row in got.values())


def test_rows_are_what_the_client_reads(server: LoopbackServer) -> None:
    with RunningProbe(
        interval_s=0.1,
        requests=(
            request("ok", server.port, "/ok"),
            request("gone", free_port(), "/"),
            Request("html", server.port, "/html"),
        ),
    ) as probe:
        probe.hello()
        answers = {}
        while len(answers) < 3:
            answers.update({answer.id: answer for answer in read_answers(probe.record())})
    assert answers["ok"].body == '{"version":"0.33.0"}'
    assert answers["gone"].error == "refused"
    assert answers["gone"].status is None
    assert answers["html"].body is not None
    assert answers["html"].elapsed_ms < 5000
