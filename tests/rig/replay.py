"""An HTTP server that answers what was recorded, or what a test wants to be answered.

In a test: ``with Replay({"GET /api/ps": Reply(b"{}")}) as server: ... server.port``.
Inside a host of the rig, by file path (standard library only):
``python3 replay.py --port 11434 --dir RECORDING --sample 03-idle``.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["Asked", "Replay", "Reply", "ollama_routes", "read_http"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What one request gets."""

    body: bytes | str | dict[str, Any] | list[Any] = b""
    status: int = 200
    #: sleep before the status line
    delay_s: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)
    #: close the connection after so many bytes of the body, whose full length was announced
    cut_after: int | None = None
    #: never answer; the connection stays open until the server stops
    hang: bool = False

    def data(self) -> bytes:
        """The body as it goes out."""
        if isinstance(self.body, bytes):
            return self.body
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came in."""

    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]
    monotonic_s: float


Answer = Reply | Callable[[Asked], Reply]


class Replay:
    """A threaded server on 127.0.0.1; ``routes`` may be changed while it runs.

    A key is ``"METHOD /path"`` or ``"/path"`` for any method; a path without a query also
    matches one with it.
    """

    def __init__(self, routes: Mapping[str, Answer], port: int = 0, host: str = "127.0.0.1"):
        self.routes = dict(routes)
        self.asked: list[Asked] = []
        self._stopped = threading.Event()
        replay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Headers and body go out in one write.
            wbufsize = -1

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                asked = Asked(
                    self.command,
                    self.path,
                    self.rfile.read(length),
                    dict(self.headers.items()),
                    time.monotonic(),
                )
                replay.asked.append(asked)
                replay._answer(self, replay.reply_to(asked))

            do_GET = do_POST = do_HEAD = do_DELETE = _serve

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that went away is no error here."""

        self._server = Server((host, port), Handler)
        self.host = host
        self.port = int(self._server.server_address[1])
        self.url = f"http://{host}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.daemon = True

    def reply_to(self, asked: Asked) -> Reply:
        """The reply for a request; 404 where no route fits."""
        bare = asked.path.partition("?")[0]
        for key in (f"{asked.method} {asked.path}", asked.path, f"{asked.method} {bare}", bare):
            if key in self.routes:
                answer = self.routes[key]
                return answer if isinstance(answer, Reply) else answer(asked)
        return Reply("404 page not found", 404, headers={"Content-Type": "text/plain"})

    def _answer(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        if reply.hang:
            handler.close_connection = True
            self._stopped.wait()
            return
        if reply.delay_s:
            self._stopped.wait(reply.delay_s)
        data = reply.data()
        handler.send_response(reply.status)
        headers = {"Content-Type": "application/json; charset=utf-8", **reply.headers}
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data[: reply.cut_after])
        handler.wfile.flush()
        if reply.cut_after is not None:
            handler.close_connection = True

    def count(self, path: str) -> int:
        """How often a path was asked."""
        return sum(asked.path.partition("?")[0] == path for asked in self.asked)

    def start(self) -> Replay:
        """Serve in a thread."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop and free the port; requests that hang are let go."""
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Replay:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def read_http(path: Path) -> Reply:
    """A recorded answer with its status line and headers (``*.http``)."""
    data = path.read_bytes()
    ending = b"\r\n" if data.split(b"\n", 1)[0].endswith(b"\r") else b"\n"
    head, _, body = data.partition(ending * 2)
    status, *lines = head.decode("latin-1").splitlines()
    kept = (line.partition(": ") for line in lines)
    headers = {name: text for name, _, text in kept if name.lower() == "content-type"}
    return Reply(body, int(status.split()[1]), headers=headers)


def _newest(folder: Path, kind: str) -> Path | None:
    return next(iter(sorted(folder.glob(f"*.{kind}.json"))), None)


def ollama_routes(folder: Path, sample: str) -> dict[str, Answer]:
    """An Ollama as recorded in one folder at one sample: version, tags, ps and show."""
    routes: dict[str, Answer] = {
        "/": Reply("Ollama is running", headers={"Content-Type": "text/plain; charset=utf-8"}),
        "GET /api/ps": Reply((folder / f"{sample}.ps.json").read_bytes()),
    }
    for kind in ("version", "tags"):
        recorded = _newest(folder, kind)
        if recorded is not None:
            routes[f"GET /api/{kind}"] = Reply(recorded.read_bytes())
    shows = folder.parent / "show"

    def show(asked: Asked) -> Reply:
        wanted = json.loads(asked.body or b"{}")
        name = str(wanted.get("model") or wanted.get("name") or "").removesuffix(":latest")
        form = "true" if wanted.get("verbose") else "false"
        path = shows / f"{name.replace(':', '_')}.verbose-{form}.json"
        if not name or "/" in name or not path.is_file():
            return Reply({"error": f"model '{name}' not found"}, 404)
        return Reply(path.read_bytes())

    routes["POST /api/show"] = show
    return routes


def main() -> None:
    """Serve a recorded Ollama until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--sample", default="03-idle")
    given = parser.parse_args()
    server = Replay(ollama_routes(given.dir, given.sample), given.port).start()
    print(server.url, flush=True)
    server._thread.join()


if __name__ == "__main__":
    main()
