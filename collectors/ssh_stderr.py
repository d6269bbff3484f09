"""What the system's ``ssh`` says on stderr when it fails, told apart.

The sentences are OpenSSH's own (ssh.c, sshconnect.c, sshconnect2.c, misc.c); they are not
translated. Where none is known the last line stands for itself.
"""

from __future__ import annotations

import re

from gpumon.collectors.failures import (
    AuthenticationRefused,
    ConfigRejected,
    ConnectionBroken,
    ForwardRefused,
    HandshakeFailed,
    HostKeyRejected,
    JumpFailed,
    KeyTrouble,
    LoginRefused,
    Reach,
    ReachFailed,
    TransportError,
)

__all__ = ["read_ssh_stderr"]

_REACH = (
    (Reach.NAME_NOT_FOUND, re.compile(r"Could not resolve hostname (\S+?): (.*)")),
    (Reach.REFUSED, re.compile(r"connect to host (\S+) port \d+: (Connection refused)")),
    (Reach.TIMED_OUT, re.compile(r"connect to host (\S+) port \d+: (.*timed out)")),
    (Reach.UNREACHABLE, re.compile(r"connect to host (\S+) port \d+: (.*)")),
    (Reach.TIMED_OUT, re.compile(r"Connection timed out during banner exchange()()")),
    (Reach.TIMED_OUT, re.compile(r"Connection to (\S+) port \d+ (timed out)")),
)
_PORT = re.compile(r"port (\d+)")
_DENIED = re.compile(r"(?:(\S+)@(\S+): )?Permission denied \(([^)]*)\)")
_OFFENDING = re.compile(r"Offending (?:\S+ )?key in (.+):(\d+)")
_OFFERED = re.compile(
    r"fingerprint for the (\S+) key sent by the remote host is\s+(\S+?)\.?\s*$", re.M
)
_NOT_KNOWN = re.compile(r"No (\S+) host key is known for (\S+)")
#: what ssh calls a peer that it reaches through a proxy's pipe
_BEHIND_PROXY = "UNKNOWN port 65535"


def read_ssh_stderr(
    stderr: str, *, address: str, port: int, user: str, hops: tuple[str, ...] = ()
) -> TransportError:
    """The failure behind the text, as asyncssh's side would have raised it.

    ``hops``: the jump hosts, one of which ssh may speak of without a name.
    """
    lines = stderr.replace("\r", "").splitlines()
    own = "\n".join(line for line in lines if _BEHIND_PROXY not in line)
    through_proxy = len(own.splitlines()) < len(lines)
    if not through_proxy:
        return _read("\n".join(lines), address=address, port=port, user=user)
    if "stdio forwarding failed" in own and "prohibited" not in own:
        # the hop works: it is the host behind it that does not answer
        return _read(own, address=address, port=port, user=user)
    hop = ", ".join(hops) or "ProxyCommand"
    return JumpFailed(hop, _read(own, address=hop, port=22, user=""))


def _read(text: str, *, address: str, port: int, user: str) -> TransportError:
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "").strip()
    if "REVOKED HOST KEY" in text or "revoked by file" in text:
        return _key_trouble(KeyTrouble.REVOKED, text, address, port)
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in text:
        return _key_trouble(KeyTrouble.CHANGED, text, address, port)
    if "Host key verification failed" in text or _NOT_KNOWN.search(text):
        return _key_trouble(KeyTrouble.UNKNOWN, text, address, port)
    if found := _DENIED.search(text):
        return AuthenticationRefused(
            found[1] or user, found[2] or address, reason=f"it takes {found[3]}"
        )
    if "Too many authentication failures" in text:
        return AuthenticationRefused(user, address, reason="too many keys were offered")
    if "Bad configuration option" in text or "Bad owner or permissions" in text:
        return ConfigRejected(last)
    if found := re.search(r"open failed: (.*)", text):
        reason = found[1].strip()
        if "prohibited" in reason:
            return ForwardRefused(address, port, forbidden=True, reason=reason)
        refused = "refused" in reason
        reach = Reach.REFUSED if refused else Reach.UNREACHABLE
        return ReachFailed(reach, address, port, f"{reason}, as the jump host sees it")
    for reach, pattern in _REACH:
        if found := pattern.search(text):
            number = _PORT.search(found[0])
            return ReachFailed(
                reach, found[1] or address, int(number[1]) if number else port, found[2]
            )
    if "no matching" in text or "Unable to negotiate" in text:
        return HandshakeFailed(last)
    if "session request failed" in text or "shell request failed" in text:
        return LoginRefused(last)
    return ConnectionBroken(last or "ssh ended without a word")


def _key_trouble(trouble: KeyTrouble, text: str, address: str, port: int) -> HostKeyRejected:
    offending = _OFFENDING.search(text)
    offered = _OFFERED.search(text)
    return HostKeyRejected(
        trouble,
        name=address if port == 22 else f"[{address}]:{port}",
        address=address,
        port=port,
        offered=f"{offered[1]} {offered[2]}" if offered else None,
        path=offending[1].strip() if offending else None,
        line=int(offending[2]) if offending else None,
    )
