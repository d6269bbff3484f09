"""Every failure has a cause, one line that names the host, and a next step."""

from __future__ import annotations

import pytest

from gpumon.collectors import failures
from gpumon.collectors.causes import explain, wants_plain_command
from gpumon.collectors.failures import (
    AuthenticationRefused,
    ConfigRejected,
    ConnectionBroken,
    Exit,
    ForwardRefused,
    HandshakeFailed,
    HostKeyRejected,
    JumpFailed,
    KeyTrouble,
    LoginRefused,
    NeedsSsh,
    Reach,
    ReachFailed,
    SshExited,
    TransportError,
)
from gpumon.collectors.ssh_stderr import read_ssh_stderr
from gpumon.collectors.transport import LineTooLong
from gpumon.inventory import HostConfig
from gpumon.snapshot import Cause

HOST = HostConfig("berlin-1", address="10.0.0.7", user="ops", port=2222)


def key(trouble: KeyTrouble) -> HostKeyRejected:
    return HostKeyRejected(
        trouble,
        name="[10.0.0.7]:2222",
        address="10.0.0.7",
        port=2222,
        offered="ED25519 SHA256:new",
        expected="ED25519 SHA256:old",
        path="/home/me/.ssh/known hosts",
        line=7,
    )


CASES: list[tuple[BaseException | Exit, Cause, bool, str, str]] = [
    (key(KeyTrouble.UNKNOWN), Cause.KEY_UNKNOWN, True, "SHA256:new", "ssh -p 2222 ops@10.0.0.7 "),
    (
        key(KeyTrouble.CHANGED),
        Cause.KEY_CHANGED,
        True,
        "/home/me/.ssh/known hosts:7 has ED25519 SHA256:old",
        "ssh-keygen -R '[10.0.0.7]:2222' -f '/home/me/.ssh/known hosts'",
    ),
    (key(KeyTrouble.REVOKED), Cause.KEY_REVOKED, True, "known hosts:7", "new key"),
    (
        AuthenticationRefused("ops", "10.0.0.7", tried=("~/.ssh/a", "b (agent)")),
        Cause.PERMISSION_DENIED,
        True,
        "tried ~/.ssh/a, b (agent)",
        "ssh-copy-id -p 2222 ops@10.0.0.7",
    ),
    (
        AuthenticationRefused("ops", "x", encrypted=("~/.ssh/a",), agent="/run/a", notes=("n",)),
        Cause.PERMISSION_DENIED,
        True,
        "no key could be offered; n",
        "ssh-add ~/.ssh/a",
    ),
    (
        ReachFailed(Reach.REFUSED, "10.0.0.7", 2222),
        Cause.REFUSED,
        False,
        "10.0.0.7 port 2222",
        "sshd",
    ),
    (ReachFailed(Reach.TIMED_OUT, "10.0.0.7", 2222), Cause.TIMED_OUT, False, "did not", "-v"),
    (
        ReachFailed(Reach.UNREACHABLE, "10.0.0.7", 22, "No route to host"),
        Cause.UNREACHABLE,
        False,
        "No route to host",
        "route",
    ),
    (
        ReachFailed(Reach.NAME_NOT_FOUND, "gpu1", 22),
        Cause.NAME_NOT_FOUND,
        False,
        "gpu1",
        "getent hosts gpu1",
    ),
    (
        JumpFailed("me@hop:22", ReachFailed(Reach.REFUSED, "hop", 22)),
        Cause.JUMP_FAILED,
        False,
        "jump host me@hop:22: hop port 22 refused",
        "sshd",
    ),
    (
        JumpFailed("hop", AuthenticationRefused("me", "hop")),
        Cause.JUMP_FAILED,
        True,
        "jump host hop: permission denied for me",
        "ssh-copy-id hop",
    ),
    (
        JumpFailed("ProxyCommand", ConnectionBroken("nc: bad")),
        Cause.JUMP_FAILED,
        False,
        "nc: bad",
        "-v",
    ),
    (ConfigRejected("config: line 3: x"), Cause.CONFIG, False, "line 3", "ssh -G -p 2222"),
    (NeedsSsh("KnownHostsCommand is set"), Cause.CONFIG, False, "KnownHosts", "ssh -G"),
    (HandshakeFailed("no common"), Cause.PROTOCOL, False, "no common", 'transport = "ssh"'),
    (LoginRefused("open failed"), Cause.SHELL_REFUSED, False, "open failed", "MaxSessions"),
    (
        ForwardRefused("127.0.0.1", 80, forbidden=True),
        Cause.REFUSED,
        False,
        "80",
        "AllowTcpForwarding",
    ),
    (ConnectionBroken("hung up"), Cause.CONNECTION_LOST, False, "hung up", "-v"),
    (SshExited(255, ""), Cause.CONNECTION_LOST, False, "without a word", ""),
    (LineTooLong(8), Cause.PROTOCOL, False, "8 bytes", ""),
    (TimeoutError(), Cause.TIMED_OUT, False, "no answer", "-v"),
    (ConnectionResetError("reset"), Cause.CONNECTION_LOST, False, "reset", ""),
    (OSError(113, "No route to host"), Cause.UNREACHABLE, False, "No route", "-v"),
    (ValueError("line 1\nline 2"), Cause.PROTOCOL, False, "line 1 line 2", ""),
    (RuntimeError("odd"), Cause.PROTOCOL, False, "RuntimeError: odd", "report"),
    (Exit(97), Cause.NO_PYTHON, False, "python3", "install python3"),
    (Exit(127, "sh: python3: not found"), Cause.NO_PYTHON, False, "not found", "install"),
    (Exit(0, "", "forced\n"), Cause.SHELL_REFUSED, False, "forced", "ForceCommand"),
    (
        Exit(1, "", "This account is currently not available.\n"),
        Cause.SHELL_REFUSED,
        False,
        "not available",
        "user",
    ),
    (
        Exit(1, "rbash: line 1: exec: restricted"),
        Cause.SHELL_REFUSED,
        False,
        "restricted",
        "python3",
    ),
    (Exit(1, "killed", hello=True), Cause.PROBE_DIED, False, "status 1: killed", ""),
    (Exit(None, hello=True), Cause.PROBE_DIED, False, "by a signal", ""),
    (
        Exit(1, "Traceback (most recent call last):\n x\nImportError: no zlib"),
        Cause.PROBE_DIED,
        False,
        "ImportError: no zlib",
        "",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case[0])[:60])
def test_each_failure_is_explained(
    case: tuple[BaseException | Exit, Cause, bool, str, str],
) -> None:
    trouble, cause, blocked, detail, fix = case
    told = explain(HOST, trouble)
    assert (told.cause, told.blocked) == (cause, blocked)
    assert told.detail.startswith("berlin-1: ")
    assert "\n" not in told.detail
    assert detail in told.detail
    assert fix in (told.fix or "")
    assert "yes |" not in (told.fix or "")


def test_no_failure_is_forgotten() -> None:
    kinds = {
        kind
        for name in failures.__all__
        if isinstance(kind := getattr(failures, name), type) and issubclass(kind, TransportError)
    }
    assert kinds - {type(case[0]) for case in CASES} == {TransportError}


def test_hostile_words_are_bounded_and_on_one_line() -> None:
    told = explain(HOST, Exit(0, "", "x\n\x1b[2J" * 5000))
    assert len(told.detail) < 400
    assert "\n" not in told.detail


@pytest.mark.parametrize(
    ("ended", "plain"),
    [
        (Exit(1, "rbash: line 1: exec: restricted"), True),
        (Exit(1, "", "'exec' is not recognized as an internal or external command"), True),
        (Exit(97), False),
        (Exit(0, "", "forced"), False),
        (Exit(1, "restricted", hello=True), False),
    ],
)
def test_the_plain_command_is_for_restricted_shells(ended: Exit, plain: bool) -> None:
    assert wants_plain_command(ended) is plain


JUMP = "Connection closed by UNKNOWN port 65535\r\n"


@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        ("ssh: connect to host 10.0.0.7 port 22: No route to host\r\n", Reach.UNREACHABLE),
        ("ssh: connect to host 10.0.0.7 port 22: Connection timed out\r\n", Reach.TIMED_OUT),
        (
            "Connection timed out during banner exchange\r\n"
            "Connection to 1.2.3.4 port 22 timed out\r\n",
            Reach.TIMED_OUT,
        ),
        (
            "channel 0: open failed: connect failed: Connection refused\r\n"
            "stdio forwarding failed\r\n" + JUMP,
            Reach.REFUSED,
        ),
    ],
)
def test_ssh_s_words_for_the_way(stderr: str, kind: Reach) -> None:
    error = read_ssh_stderr(stderr, address="gpu1", port=22, user="me")
    assert isinstance(error, ReachFailed)
    assert error.reach is kind


@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        (
            "channel 0: open failed: administratively prohibited: open failed\r\n"
            "stdio forwarding failed\r\n" + JUMP,
            JumpFailed,
        ),
        ("me@hop: Permission denied (publickey).\r\n" + JUMP, JumpFailed),
        (
            "Received disconnect from 1.2.3.4 port 22:2: Too many authentication failures\r\n",
            AuthenticationRefused,
        ),
        ("/home/me/.ssh/config: line 3: Bad configuration option: x\r\n", ConfigRejected),
        ("Bad owner or permissions on /home/me/.ssh/config\r\n", ConfigRejected),
        (
            "Unable to negotiate with 1.2.3.4 port 22: no matching cipher found.\r\n",
            HandshakeFailed,
        ),
        ("client_loop: send disconnect: Broken pipe\r\n", ConnectionBroken),
        ("Timeout, server 1.2.3.4 not responding.\r\n", ConnectionBroken),
        ("shell request failed on channel 0\r\n", LoginRefused),
        (
            "No ED25519 host key is known for gpu1 and you have requested strict checking.\r\n"
            "Host key verification failed.\r\n",
            HostKeyRejected,
        ),
    ],
)
def test_ssh_s_words_for_the_rest(stderr: str, kind: type[TransportError]) -> None:
    error = read_ssh_stderr(stderr, address="gpu1", port=22, user="me", hops=("hop",))
    assert type(error) is kind
