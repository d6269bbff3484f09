"""One HTTP/1.1 request on a fresh connection, with a deadline for the whole of it.

``http.client`` would bring in ssl and email (6 MB), and its timeout starts anew with
every byte that drips in. Whatever the other side says, and if it says nothing, becomes
an answer. Framing: RFC 9112. Runs on the host under Python 3.6 or newer, standard
library only.
"""

import errno
import re
import socket
import time

_MOST_HEAD_BYTES = 65536
_STATUS = re.compile(rb"^HTTP/1\.[01] ([1-9]\d\d)(?: |\r|$)")
_CONTROL = re.compile(r"[\x00-\x20\x7f]")

#: The first word of ``error``, which the client may go by.
ERRORS = ("refused", "timeout", "closed", "unreachable", "not-http", "bad-request", "failed")


class DeadlineError(Exception):
    """The time for the whole exchange is over."""


class NotHttpError(Exception):
    """What came back is not HTTP."""


class Connection(object):
    """A socket that counts its time down."""

    def __init__(self, host, port, timeout_s):
        self.until = time.monotonic() + timeout_s
        self.socket = socket.create_connection((host, port), timeout_s)
        self.buffer = b""
        self.ended = False

    def _allow(self):
        left = self.until - time.monotonic()
        if left <= 0:
            raise DeadlineError()
        self.socket.settimeout(left)

    def send(self, data):
        """Send all of it."""
        self._allow()
        self.socket.sendall(data)

    def fill(self):
        """Wait for more bytes; False at the end of the stream."""
        if self.ended:
            return False
        self._allow()
        part = self.socket.recv(65536)
        self.ended = not part
        self.buffer += part
        return bool(part)

    def take_line(self):
        """The next line without its end, or None at the end of the stream."""
        while b"\n" not in self.buffer:
            if len(self.buffer) > _MOST_HEAD_BYTES:
                raise NotHttpError("a header without end")
            if not self.fill():
                return None
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.rstrip(b"\r")

    def take(self, most):
        """Up to ``most`` bytes as soon as there are some; b"" at the end."""
        if not self.buffer and not self.fill():
            return b""
        part, self.buffer = self.buffer[:most], self.buffer[most:]
        return part

    def close(self):
        """Drop the connection."""
        self.socket.close()


class Body(object):
    """A body that stops growing at its cap."""

    def __init__(self, cap_bytes):
        self.parts = []
        self.left = cap_bytes
        self.truncated = False

    def add(self, part):
        """Keep what still fits; False when there is no more room."""
        if len(part) > self.left:
            part = part[: self.left]
            self.truncated = True
        self.left -= len(part)
        self.parts.append(part)
        return not self.truncated

    def text(self):
        """The body so far, undecodable bytes replaced."""
        return b"".join(self.parts).decode("utf-8", "replace")


def ask(request):
    """Send ``request`` and return {"status", "body", "error", "truncated"}.

    ``error`` is None where a whole answer (or the part up to the cap) was read; else
    its first word is one of ``ERRORS``. A status and a part of the body may be there
    all the same.
    """
    answer = {"status": None, "body": None, "error": None, "truncated": False}
    body = Body(request["cap_bytes"])
    connection = None
    try:
        data = _encode(request)
        if data is None:
            answer["error"] = "bad-request"
            return answer
        connection = Connection(request["host"], request["port"], request["timeout_s"])
        connection.send(data)
        answer["status"], headers = _read_head(connection)
        if request["method"] != "HEAD" and answer["status"] not in (204, 304):
            answer["error"] = _read_body(connection, headers, body)
    except (DeadlineError, socket.timeout):
        answer["error"] = "timeout"
    except NotHttpError as error:
        answer["error"] = "not-http: %s" % error
    except OSError as error:
        answer["error"] = _name(error)
    except Exception as error:  # whatever it is, it stays this request's trouble
        answer["error"] = "failed: %s" % type(error).__name__
    finally:
        if connection is not None:
            connection.close()
    if answer["status"] is not None:
        answer["body"] = body.text()
        answer["truncated"] = body.truncated
    return answer


def _encode(request):
    """The request's bytes; None where a field would break out of its line."""
    target, host, method = request["path"], request["host"], request["method"]
    if any(_CONTROL.search(text) for text in (target, host, method, request["bearer"] or "")):
        return None
    payload = (request["body"] or "").encode("utf-8")
    lines = [
        "%s %s HTTP/1.1" % (method, target),
        "Host: %s:%d" % ("[%s]" % host if ":" in host else host, request["port"]),
        "User-Agent: gpumon",
        "Accept: */*",
        "Accept-Encoding: identity",
        "Connection: close",
    ]
    if request["bearer"]:
        lines.append("Authorization: Bearer %s" % request["bearer"])
    if request["body"] is not None:
        lines.append("Content-Type: application/json")
        lines.append("Content-Length: %d" % len(payload))
    try:
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + payload
    except UnicodeEncodeError:
        return None


def _read_head(connection):
    """(status, {lower-case name: value}) of the final response."""
    while True:
        first = connection.take_line()
        if first is None:
            if connection.buffer:
                raise NotHttpError(_excerpt(connection.buffer))
            raise OSError(errno.ECONNRESET, "closed without an answer")
        match = _STATUS.match(first)
        if not match:
            raise NotHttpError(_excerpt(first))
        status = int(match.group(1))
        headers = {}
        total = 0
        while True:
            line = connection.take_line()
            if line is None:
                raise OSError(errno.ECONNRESET, "closed within the headers")
            if not line:
                break
            total += len(line)
            if total > _MOST_HEAD_BYTES:
                raise NotHttpError("headers without end")
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip()
        if status >= 200:
            return status, headers


def _read_body(connection, headers, body):
    """Read the body as its headers frame it; an error's name or None."""
    if headers.get(b"transfer-encoding", b"").lower().endswith(b"chunked"):
        return _read_chunks(connection, body)
    length = headers.get(b"content-length")
    if length is None:
        while True:
            part = connection.take(65536)
            if not part or not body.add(part):
                return None
    if not length.isdigit() or len(length) > 18:
        raise NotHttpError("Content-Length: %s" % _excerpt(length))
    left = int(length)
    while left > 0:
        part = connection.take(min(left, 65536))
        if not part:
            return "closed"
        left -= len(part)
        if not body.add(part):
            return None
    return None


def _read_chunks(connection, body):
    while True:
        line = connection.take_line()
        if line is None:
            return "closed"
        try:
            left = int(line.partition(b";")[0].strip() or b"x", 16)
        except ValueError:
            raise NotHttpError("chunk size %s" % _excerpt(line))
        if left <= 0:
            return None
        while left > 0:
            part = connection.take(min(left, 65536))
            if not part:
                return "closed"
            left -= len(part)
            if not body.add(part):
                return None
        if connection.take_line() is None:
            return "closed"


def _excerpt(data):
    return repr(data[:60].decode("ascii", "replace"))


def _name(error):
    if isinstance(error, socket.gaierror):
        return "unreachable: no such name"
    if error.errno == errno.ECONNREFUSED:
        return "refused"
    if error.errno in (errno.ECONNRESET, errno.EPIPE):
        return "closed"
    if error.errno == errno.ETIMEDOUT:
        return "timeout"
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL):
        return "unreachable"
    return "failed: %s" % (error.strerror or type(error).__name__)
