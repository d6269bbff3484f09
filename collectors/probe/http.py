"""When to ask the engines on this host, and what to say of their answers.

The client names the requests (see ``gpumon.collectors.payload.Request``); this knows no
engine. Every (host, port) has a thread of its own: an engine that hangs delays neither
another nor the sample. Runs on the host under Python 3.6 or newer, standard library only.
"""

import collections
import json
import threading
import time

from gpumon_probe_http_exchange import ask

#: A body grows up to six times as ASCII JSON, and a line stays below 4 MiB.
MOST_CAP_BYTES = 512 * 1024
MOST_REQUESTS = 512
#: Asking again because the watched processes changed: not more often than this.
ON_CHANGE_EVERY_S = 2.0
#: A cadence is met a little early rather than a whole tick late.
_SLACK_S = 0.1

_IDENTITY = ("port", "path", "host", "method", "body", "cap_bytes", "bearer")


def _number(value, default, least, most):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return default
    return min(most, max(least, value))


def clean_request(given):
    """A request with every field set and in bounds; None for one that can't be asked."""
    if not isinstance(given, dict) or not isinstance(given.get("id"), str):
        return None
    port = given.get("port")
    path = given.get("path")
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        return None
    if not isinstance(path, str) or not path.startswith("/"):
        return None
    busy_pid = given.get("busy_pid")
    texts = {}
    for name, default in (("host", "127.0.0.1"), ("method", "GET")):
        texts[name] = given.get(name) or default
    for name in ("body", "gate", "bearer"):
        texts[name] = given.get(name)
    if any(not isinstance(text, str) for text in texts.values() if text is not None):
        return None
    return dict(
        texts,
        id=given["id"],
        port=port,
        path=path,
        every_s=_number(given.get("every_s"), 15.0, 0.5, 86400.0),
        cap_bytes=int(_number(given.get("cap_bytes"), 262144, 0, MOST_CAP_BYTES)),
        timeout_s=_number(given.get("timeout_s"), 5.0, 0.1, 60.0),
        busy_pid=busy_pid if isinstance(busy_pid, int) else None,
        on_change=given.get("on_change") is not False,
    )


class Entry(object):
    """One request and how asking it went so far."""

    def __init__(self, request):
        self.request = request
        self.asked_at = None
        self.in_flight = False
        self.status = None
        #: True once there was an answer that is not "still loading"
        self.settled = False
        self.was_busy = False
        #: what was sent last, to tell an answer that changed nothing
        self.sent = None

    def is_due(self, mono, busy, gate_open, changed):
        """True when it should be asked at ``mono``."""
        request = self.request
        if self.in_flight or not gate_open:
            return False
        since = None if self.asked_at is None else mono - self.asked_at
        by_cadence = since is None or since >= request["every_s"] - _SLACK_S
        if request["busy_pid"] is None:
            at_once = (
                changed and request["on_change"] and (since is None or since >= ON_CHANGE_EVERY_S)
            )
            return by_cadence or at_once
        if busy:
            self.was_busy = True
            return by_cadence
        if self.was_busy:
            self.was_busy = False  # once more after it stopped
            return True
        return by_cadence and not self.settled


class Door(object):
    """One (host, port) and the thread that asks there, one request after the other."""

    def __init__(self, on_answer):
        self.waiting = collections.deque()
        self.wake = threading.Condition()
        self.closed = False
        self.on_answer = on_answer
        thread = threading.Thread(target=self._run, name="http")
        thread.daemon = True
        thread.start()

    def put(self, entry):
        """Ask ``entry`` when those before it are done."""
        with self.wake:
            self.waiting.append(entry)
            self.wake.notify()

    def close(self):
        """Let the thread end."""
        with self.wake:
            self.closed = True
            self.wake.notify()

    def _run(self):
        while True:
            with self.wake:
                while not self.waiting and not self.closed:
                    self.wake.wait()
                if self.closed:
                    return
                entry = self.waiting.popleft()
            began = time.monotonic()
            answer = ask(entry.request)
            ended = time.monotonic()
            answer.update(mono=round(ended, 3), ms=round((ended - began) * 1000.0, 1))
            self.on_answer(entry, answer)


class Asker(object):
    """All requests of this probe."""

    def __init__(self):
        self.entries = {}
        self.doors = {}
        self.lock = threading.Condition()
        self.answers = collections.OrderedDict()
        self.flying = 0

    def configure(self, given):
        """Take over a new list of requests; those that did not change keep their state."""
        kept = {}
        for raw in list(given or [])[:MOST_REQUESTS]:
            request = clean_request(raw)
            if request is None:
                continue
            entry = self.entries.get(request["id"])
            if entry is not None and all(entry.request[k] == request[k] for k in _IDENTITY):
                if entry.request["busy_pid"] != request["busy_pid"]:
                    entry.settled = False
                entry.request = request
            else:
                entry = Entry(request)
            kept[request["id"]] = entry
        with self.lock:
            self.entries = kept
            for name in [name for name in self.answers if name not in kept]:
                del self.answers[name]
        used = set((e.request["host"], e.request["port"]) for e in kept.values())
        for place in [place for place in self.doors if place not in used]:
            self.doors.pop(place).close()

    def tick(self, mono, is_busy, changed):
        """Hand out what is due at ``mono``.

        ``is_busy(pid)`` tells whether a process burns CPU or GPU; ``changed`` is True
        when the set of watched processes is another than at the last tick.
        """
        for entry in self.entries.values():
            request = entry.request
            gate = request["gate"]
            gate_open = gate is None or self._answered_well(gate)
            pid = request["busy_pid"]
            if entry.is_due(mono, pid is not None and is_busy(pid), gate_open, changed):
                entry.in_flight = True
                entry.asked_at = mono
                with self.lock:
                    self.flying += 1
                place = (request["host"], request["port"])
                if place not in self.doors:
                    self.doors[place] = Door(self._take)
                self.doors[place].put(entry)

    def busy_pids(self):
        """The processes whose business decides over a request."""
        pids = set(entry.request["busy_pid"] for entry in self.entries.values())
        pids.discard(None)
        return pids

    def wait(self, most_s):
        """Give what is being asked ``most_s`` to come back."""
        until = time.monotonic() + most_s
        with self.lock:
            while self.flying:
                left = until - time.monotonic()
                if left <= 0:
                    break
                self.lock.wait(left)

    def collect(self, room):
        """Answers since the last call, as wire rows of at most ``room`` characters in all.

        What does not fit waits for the next line.
        """
        rows = []
        with self.lock:
            while self.answers:
                name, (entry, answer) = next(iter(self.answers.items()))
                row = dict(answer, id=name)
                key = (row["status"], row["body"], row["error"], row["truncated"])
                row["same"] = entry.sent == hash(key)
                if row["same"]:
                    row["body"] = None
                need = 200 + len(name) * 6 + len(json.dumps(row["body"]))
                if need > room and rows:
                    break
                if need > room:
                    row.update(body=None, same=False, error="failed: too long for a line")
                    need = 300
                room -= need
                entry.sent = hash(key)
                rows.append(row)
                del self.answers[name]
        return rows

    def _answered_well(self, name):
        gate = self.entries.get(name)
        return gate is not None and gate.status is not None and 200 <= gate.status < 300

    def _take(self, entry, answer):
        with self.lock:
            self.flying -= 1
            self.lock.notify_all()
            entry.in_flight = False
            entry.status = answer["status"]
            if answer["status"] is not None and answer["status"] != 503:
                entry.settled = True
            name = entry.request["id"]
            if self.entries.get(name) is entry:
                self.answers.pop(name, None)
                self.answers[name] = (entry, answer)
