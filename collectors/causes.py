"""Why a host is not up, said in words, with the command that settles it.

Never a command that says yes by itself: a key is compared by a person.
"""

from __future__ import annotations

import os
import shlex
from typing import NamedTuple

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
    Reach,
    ReachFailed,
    SshExited,
    TransportError,
)
from gpumon.collectors.ssh_config import CONFIG_VARIABLE
from gpumon.collectors.ssh_stderr import read_ssh_stderr
from gpumon.collectors.transport import LineTooLong
from gpumon.inventory import HostConfig
from gpumon.snapshot import Cause

__all__ = ["Explanation", "explain", "wants_plain_command"]

#: what ``bootstrap_command`` ends with where no usable Python was found
_NO_PYTHON_STATUS = 97
_SHOWN_CHARACTERS = 200
_NO_SHELL = ("account is currently not available", "nologin", "This service allows sftp")
_REACH_CAUSES = {
    Reach.REFUSED: Cause.REFUSED,
    Reach.TIMED_OUT: Cause.TIMED_OUT,
    Reach.UNREACHABLE: Cause.UNREACHABLE,
    Reach.NAME_NOT_FOUND: Cause.NAME_NOT_FOUND,
}


class Explanation(NamedTuple):
    """What ``HostStatus`` shows of a failure."""

    cause: Cause
    #: one line: the host and what happened
    detail: str
    #: the command or step that settles it; None where only time will
    fix: str | None
    #: True where trying again would not mend it
    blocked: bool


def explain(config: HostConfig, trouble: BaseException | Exit) -> Explanation:
    """Name the cause of an exception, or of the way the probe's command ended.

    Understands every ``TransportError``, the plain errors of a network, and ``Exit``;
    of anything else it names the type, and never shows a traceback.
    """
    if isinstance(trouble, Exit):
        said = _explain_exit(trouble)
    else:
        said = _explain_error(_target(config), trouble)
    return said._replace(detail=_one_line(f"{config.name}: {said.detail}"))


def wants_plain_command(ended: Exit) -> bool:
    """True where a restricted shell refused the usual command, but may run the plain one.

    rbash says ``exec: restricted``; cmd.exe does not know ``exec``.
    """
    text = ended.stderr + ended.output
    return not ended.hello and (
        "restricted" in text or "not recognized as" in text or "unknown command: exec" in text
    )


class _Target(NamedTuple):
    """How a person would call ssh for the host."""

    ssh: str
    copy_id: str
    address: str
    port: int
    user: str


def _target(config: HostConfig) -> _Target:
    address = config.address or config.name
    user = config.user or ""
    port = ["-p", str(config.port)] if config.port else []
    named = _named_config()
    where = f"{user}@{address}" if user else address
    return _Target(
        shlex.join(["ssh", *named, *port, where]),
        shlex.join(["ssh-copy-id", *named, *port, where]),
        address,
        config.port or 22,
        user,
    )


def _named_config() -> list[str]:
    path = os.environ.get(CONFIG_VARIABLE)
    return ["-F", path] if path else []


def _hop_target(hop: str) -> _Target:
    host, _, port = hop.partition(":") if hop.count(":") == 1 else (hop, "", "")
    arguments = [*_named_config(), *(["-p", port] if port else [])]
    return _Target(
        shlex.join(["ssh", *arguments, host]),
        shlex.join(["ssh-copy-id", *arguments, host]),
        host.rpartition("@")[2],
        int(port) if port.isdecimal() else 22,
        host.rpartition("@")[0],
    )


def _explain_error(target: _Target, error: BaseException) -> Explanation:
    match error:
        case SshExited():
            read = read_ssh_stderr(
                error.stderr,
                address=target.address,
                port=target.port,
                user=target.user,
                hops=error.hops,
            )
            return _explain_error(target, read)
        case HostKeyRejected():
            return _explain_key(target, error)
        case AuthenticationRefused():
            return _explain_refusal(target, error)
        case JumpFailed():
            return _explain_jump(target, error)
        case ReachFailed():
            return _explain_reach(target, error)
        case ConfigRejected():
            return Explanation(
                Cause.CONFIG, str(error), f"{_g(target)}  # shows what ssh reads", False
            )
        case HandshakeFailed():
            fix = f'{target.ssh} -v  # if that works, set transport = "ssh" for the host'
            return Explanation(Cause.PROTOCOL, f"no SSH session: {error}", fix, False)
        case LoginRefused():
            fix = "raise MaxSessions in the host's sshd_config, or see why sshd runs no command"
            detail = f"logged in, but no command may run ({error})"
            return Explanation(Cause.SHELL_REFUSED, detail, fix, False)
        case ForwardRefused():
            allow = "allow AllowTcpForwarding in its sshd_config" if error.forbidden else None
            return Explanation(Cause.REFUSED, str(error), allow, False)
        case LineTooLong():
            return Explanation(Cause.PROTOCOL, f"it sent {error}", None, False)
        case ConnectionBroken():
            early = f"{target.ssh} -v" if "hung up" in str(error) else None
            return Explanation(Cause.CONNECTION_LOST, f"connection lost: {error}", early, False)
        case TransportError():
            return Explanation(Cause.CONNECTION_LOST, str(error), None, False)
        case TimeoutError():
            detail = f"no answer in time{f' ({error})' if str(error) else ''}"
            return Explanation(Cause.TIMED_OUT, detail, f"{target.ssh} -v", False)
        case ConnectionRefusedError():
            return Explanation(Cause.REFUSED, "connection refused", f"{target.ssh} -v", False)
        case ConnectionError() | EOFError():
            return Explanation(Cause.CONNECTION_LOST, f"connection lost: {error}", None, False)
        case OSError():
            detail = error.strerror or str(error)
            return Explanation(Cause.UNREACHABLE, detail, f"{target.ssh} -v", False)
        case ValueError():
            return Explanation(
                Cause.PROTOCOL, f"it sent what gpumon can't read: {error}", None, False
            )
        case _:
            detail = f"{type(error).__name__}: {error}"
            return Explanation(Cause.PROTOCOL, detail, "please report this", False)


def _g(target: _Target) -> str:
    return target.ssh.replace("ssh", "ssh -G", 1)


def _explain_key(target: _Target, error: HostKeyRejected) -> Explanation:
    offered = f" ({error.offered})" if error.offered else ""
    place = f"{error.path}:{error.line}" if error.path and error.line else None
    known = f" where {place} has {error.expected}" if error.expected and place else ""
    if not known and place:
        known = f" ({place} has another)"
    because = f": {error.reason}" if error.reason else ""
    match error.trouble:
        case KeyTrouble.UNKNOWN:
            detail = f"the host key of {error.name}{offered} is not known{because}"
            fix = f"{target.ssh}  # compare the fingerprint with the host's own, then answer yes"
            return Explanation(Cause.KEY_UNKNOWN, detail, fix, True)
        case KeyTrouble.CHANGED:
            shown = error.offered or "a new key"
            detail = f"the host key of {error.name} CHANGED{because}: it shows {shown}{known}"
            file = f" -f {shlex.quote(error.path)}" if error.path else ""
            forget = f"ssh-keygen -R {shlex.quote(error.name)}{file}"
            fix = f"find out why first; if the change is right: {forget} && {target.ssh}"
            return Explanation(Cause.KEY_CHANGED, detail, fix, True)
        case KeyTrouble.REVOKED:
            marked = f" at {place}" if place else ""
            detail = f"the host key of {error.name}{offered} is marked @revoked{marked}"
            where = f", or correct {place} if that line is wrong" if place else ""
            fix = f"give the host a new key{where}"
            return Explanation(Cause.KEY_REVOKED, detail, fix, True)


def _explain_refusal(target: _Target, error: AuthenticationRefused) -> Explanation:
    tried = f"tried {', '.join(error.tried)}" if error.tried else "no key could be offered"
    notes = "".join(f"; {note}" for note in error.notes)
    because = f"; {error.reason}" if error.reason else ""
    detail = f"permission denied for {error.user} on {error.address}: {tried}{notes}{because}"
    if error.reason and not error.tried and not error.notes:
        detail = f"permission denied for {error.user} on {error.address}: {error.reason}"
    if error.encrypted:
        fix = f"ssh-add {_quote_path(error.encrypted[0])}"
        if error.agent is None:
            fix = f'eval "$(ssh-agent)" && {fix}'
    else:
        fix = target.copy_id
    return Explanation(Cause.PERMISSION_DENIED, detail, fix, True)


def _quote_path(path: str) -> str:
    """Quoted for a shell, which must still see a leading ``~/``."""
    if path.startswith("~/"):
        return "~/" + shlex.quote(path[2:])
    return shlex.quote(path)


def _explain_jump(target: _Target, error: JumpFailed) -> Explanation:
    if error.hop == "ProxyCommand":
        detail = f"its ProxyCommand failed: {error.inner}"
        return Explanation(Cause.JUMP_FAILED, detail, f"{target.ssh} -v", False)
    if isinstance(error.inner, ForwardRefused):
        detail = f"jump host {error.hop} forbids the way on: {error.inner}"
        fix = f"allow AllowTcpForwarding (and PermitOpen) in sshd_config of {error.hop}"
        return Explanation(Cause.JUMP_FAILED, detail, fix, False)
    hop = _hop_target(error.hop)
    inner = _explain_error(hop, error.inner)
    return Explanation(
        Cause.JUMP_FAILED, f"jump host {error.hop}: {inner.detail}", inner.fix, inner.blocked
    )


def _explain_reach(target: _Target, error: ReachFailed) -> Explanation:
    place = f"{error.address} port {error.port}"
    reason = f" ({error.reason})" if error.reason else ""
    match error.reach:
        case Reach.REFUSED:
            asked = f" ({error.reason})" if "sees it" in error.reason else ""
            detail = f"{place} refused the connection{asked}"
            fix = "start sshd there, or correct the port in the config"
        case Reach.TIMED_OUT:
            detail = f"{place} did not answer{reason}"
            fix = f"{target.ssh} -v  # is it on, and does a firewall drop port {error.port}?"
        case Reach.UNREACHABLE:
            detail = f"{place} can't be reached{reason}"
            fix = f"{target.ssh} -v  # is there a route (VPN)?"
        case Reach.NAME_NOT_FOUND:
            detail = f"the name {error.address} is not found{reason}"
            fix = f"getent hosts {shlex.quote(error.address)}  # or set HostName in ~/.ssh/config"
    return Explanation(_REACH_CAUSES[error.reach], detail, fix, False)


def _explain_exit(ended: Exit) -> Explanation:
    text = " ".join((ended.stderr or ended.output).split())
    shown = f": {text[:_SHOWN_CHARACTERS]}" if text else ""
    how = "by a signal" if ended.status is None else f"with status {ended.status}"
    if ended.status == _NO_PYTHON_STATUS:
        fix = "install python3 on the host (nothing else is needed)"
        return Explanation(Cause.NO_PYTHON, "no python3 of 3.6 or later there", fix, False)
    if ended.hello:
        return Explanation(Cause.PROBE_DIED, f"the probe ended {how}{shown}", None, False)
    if "Traceback" in ended.stderr:
        last = ended.stderr.strip().splitlines()[-1]
        return Explanation(Cause.PROBE_DIED, f"the probe did not start: {last}", None, False)
    if ended.status == 127 and "python" in text:
        fix = "install python3 on the host (nothing else is needed)"
        return Explanation(Cause.NO_PYTHON, f"no python3 there{shown}", fix, False)
    if any(sign in text for sign in _NO_SHELL):
        detail = f"the account may not run commands{shown}"
        fix = "name a user with a login shell (user = ... for the host)"
        return Explanation(Cause.SHELL_REFUSED, detail, fix, False)
    if wants_plain_command(ended):
        detail = f"its restricted shell refuses the probe{shown}"
        fix = "let the account run python3 (in its restricted PATH), or use another user"
        return Explanation(Cause.SHELL_REFUSED, detail, fix, False)
    detail = f"another command ran in place of the probe, and ended {how}{shown}"
    fix = "see ForceCommand in its sshd_config and command= in its authorized_keys"
    return Explanation(Cause.SHELL_REFUSED, detail, fix, False)


def _one_line(text: str) -> str:
    return " ".join(text.split())
