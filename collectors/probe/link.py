"""The probe's two pipes: lines out, heartbeats and settings in, and the end of both.

A probe must never outlive its client: it ends when stdin ends (the client or its
connection is gone) and when no heartbeat came for a while (the network vanished without
a word), whatever else hangs. Runs on the host under Python 3.6 or newer, standard
library only.
"""

import errno
import json
import os
import select
import threading
import time

MOST_LINE_BYTES = 4 * 1024 * 1024
#: A longer line from the client is dropped.
MOST_INPUT_BYTES = 4 * 1024 * 1024


def encode(record):
    """A record as one line of ASCII JSON."""
    return json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"


class Link(object):
    """Standard input and output."""

    def __init__(self, heartbeat_timeout_s, on_set):
        self.heartbeat_timeout_s = heartbeat_timeout_s
        self.on_set = on_set
        self.lock = threading.Lock()

    def send(self, data):
        """Write all of it; ends the probe when nobody reads any more."""
        with self.lock:
            try:
                self._write(data)
            except OSError:
                os._exit(0)

    def listen(self):
        """Follow stdin until it ends; never returns. Runs in a thread of its own."""
        rest = b""
        heard_at = time.monotonic()
        while True:
            step = min(1.0, max(0.05, self.heartbeat_timeout_s / 4.0))
            try:
                if select.select([0], [], [], step)[0]:
                    data = os.read(0, 65536)
                    if not data:
                        self.leave("the client closed the connection")
                    heard_at = time.monotonic()
                    rest = self._take(rest + data)
                elif time.monotonic() - heard_at > self.heartbeat_timeout_s:
                    self.leave("no heartbeat for %g s" % self.heartbeat_timeout_s)
            except (OSError, ValueError):
                self.leave("stdin failed")

    def leave(self, reason, status=0):
        """Say goodbye where that is possible at once, and end the process."""
        if self.lock.acquire(timeout=0.1):
            try:
                if select.select([], [1], [], 0)[1]:
                    os.write(1, encode({"t": "bye", "reason": reason}))
            except (OSError, ValueError):
                pass
        # a thread may be stuck in the driver: no orderly end would ever come
        os._exit(status)

    def _write(self, data):
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(1, view) :]
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EWOULDBLOCK):
                    raise
                select.select([], [1], [])

    def _take(self, buffered):
        """Act on the whole lines; returns what is left of an unfinished one."""
        lines = buffered.split(b"\n")
        rest = lines.pop()
        for line in lines:
            if line.startswith(b"{") and len(line) <= MOST_INPUT_BYTES:
                try:
                    settings = json.loads(line.decode("utf-8")).get("set")
                except (ValueError, AttributeError, RecursionError):
                    continue
                if isinstance(settings, dict):
                    self.on_set(settings)
        return rest if len(rest) <= MOST_INPUT_BYTES else b""
