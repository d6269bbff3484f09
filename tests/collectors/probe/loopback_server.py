"""A real TCP server on 127.0.0.1 that behaves as badly as it is told, path by path."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

Behaviour = Callable[[socket.socket, bytes], None]


def reply(body: bytes, status: str = "200 OK", headers: str = "") -> Behaviour:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode()
    return lambda sock, _: sock.sendall(head + body)


def raw(data: bytes) -> Behaviour:
    return lambda sock, _: sock.sendall(data)


class LoopbackServer:
    """Use as a context manager; ``paths`` may be changed while it runs."""

    def __init__(self, **paths: Behaviour) -> None:
        self.paths: dict[str, Behaviour] = {"/" + name: value for name, value in paths.items()}
        self.asked: Counter[str] = Counter()
        self.heads: list[bytes] = []
        self.ending = threading.Event()
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                data = b""
                while b"\r\n\r\n" not in data:
                    part = self.request.recv(65536)
                    if not part:
                        return
                    data += part
                head, _, body = data.partition(b"\r\n\r\n")
                wanted = next(
                    (
                        int(line.split(b":")[1])
                        for line in head.split(b"\r\n")
                        if line.lower().startswith(b"content-length:")
                    ),
                    0,
                )
                while len(body) < wanted:
                    body += self.request.recv(65536)
                path = head.split(b" ")[1].decode()
                outer.asked[path] += 1
                outer.heads.append(head + b"\r\n\r\n" + body)
                with contextlib.suppress(OSError):  # the probe had enough
                    outer.paths[path](self.request, head)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))

    def __enter__(self) -> LoopbackServer:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def hang(self, sock: socket.socket, _: bytes) -> None:
        """Accept, and never say a word."""
        self.ending.wait(60)

    def drip(self, sock: socket.socket, _: bytes) -> None:
        """One byte at a time, for ever: no single wait is long."""
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not self.ending.wait(0.05):
            sock.sendall(b".")

    def endless(self, sock: socket.socket, _: bytes) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        until = time.monotonic() + 30
        while time.monotonic() < until and not self.ending.is_set():
            sock.sendall(b"x" * 65536)


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
