"""Is this the key the user accepted for this host? Judged as ssh judges it.

Rules: sshconnect.c ``check_host_key`` and hostfile.c of OpenSSH. Where ssh would ask, the
answer is no, for there is nobody to ask; a changed key is never taken, whatever
``StrictHostKeyChecking`` says (ssh would go on with ``no``).
"""

from __future__ import annotations

import ipaddress

from gpumon.collectors.failures import HostKeyRejected, KeyTrouble
from gpumon.collectors.known_hosts import (
    Entry,
    KnownHosts,
    Marker,
    fingerprint,
    host_name_with_port,
    key_type,
)
from gpumon.collectors.resolved_host import ResolvedHost

__all__ = ["HostKeyJudge"]

_CERTIFICATE = "-cert-v01@openssh.com"


class HostKeyJudge:
    """Judges the keys one server offers on one connection."""

    def __init__(self, resolved: ResolvedHost, known: KnownHosts, peer_ip: str | None) -> None:
        """``peer_ip``: None where a proxy hides it; asked only where CheckHostIP is on."""
        self._resolved = resolved
        self._port = resolved.port
        if resolved.host_key_alias:
            # an alias stands for the key itself: ssh looks it up without the port
            self.name = resolved.key_name
            names = [self.name]
        else:
            self.name = host_name_with_port(resolved.key_name, resolved.port)
            names = list(dict.fromkeys((self.name, resolved.key_name)))
        self._entries = [known.find(name) for name in names]
        self._ip_entries: tuple[Entry, ...] = ()
        if resolved.check_host_ip and peer_ip and _worth_checking(peer_ip, resolved.key_name):
            self._ip_entries = known.find(host_name_with_port(peer_ip, resolved.port))
        #: set by the verdicts below
        self.rejection: HostKeyRejected | None = None
        #: a key taken because the user's config takes unknown ones
        self.taken_unknown: bytes | None = None

    @property
    def revoked_keys(self) -> tuple[bytes, ...]:
        """Keys marked @revoked for this host under any of its names."""
        return tuple(e.key for e in self._all_entries() if e.marker is Marker.REVOKED)

    @property
    def has_authority(self) -> bool:
        """True where a @cert-authority line covers this host."""
        return any(e.marker is Marker.AUTHORITY for e in self._all_entries())

    @property
    def weak_authority(self) -> bool:
        """True where an RSA authority covers it: asyncssh can't tell SHA-1 signatures."""
        return any(
            e.marker is Marker.AUTHORITY and e.key_type == "ssh-rsa" for e in self._all_entries()
        )

    def order_algorithms(self, algorithms: tuple[str, ...]) -> tuple[str, ...]:
        """Known types first, so that a server with many keys shows the known one.

        Certificates are asked for only where an authority is known; ssh falls back to
        the plain key inside a certificate, which comes to the same.
        """
        known = {e.key_type for e in self._all_entries() if e.marker is Marker.PLAIN}
        if "ssh-rsa" in known:
            known |= {"rsa-sha2-512", "rsa-sha2-256"}
        certificates = [a for a in algorithms if a.endswith(_CERTIFICATE)]
        plain = [a for a in algorithms if not a.endswith(_CERTIFICATE)]
        plain.sort(key=lambda a: a not in known)
        return (*(certificates if self.has_authority else ()), *plain)

    def accepts_key(self, key: bytes) -> bool:
        """Judge a plain key; where False, ``rejection`` says why."""
        if key_type(key) == "ssh-rsa" and _rsa_bits(key) < self._resolved.required_rsa_bits:
            return self._reject(KeyTrouble.UNKNOWN, key, None, "the RSA key is too short")
        revoked = next(
            (e for e in self._all_entries() if e.marker is Marker.REVOKED and e.key == key), None
        )
        if revoked is not None:
            return self._reject(KeyTrouble.REVOKED, key, revoked)
        # First by the name with its port; where that knows nothing, by the bare name.
        for index, entries in enumerate(self._entries):
            plain = [e for e in entries if e.marker is Marker.PLAIN]
            if any(e.key == key for e in plain):
                return self._agrees_with_ip(key)
            if plain and index == 0:
                same_type = [e for e in plain if e.key_type == key_type(key)]
                return self._reject(KeyTrouble.CHANGED, key, (same_type or plain)[0])
        if self._resolved.strict.takes_unknown:
            self.taken_unknown = key
            return self._agrees_with_ip(key)
        return self._reject(KeyTrouble.UNKNOWN, key, None)

    def accepts_authority(self, key: bytes) -> bool:
        """Judge the key that signed a certificate."""
        for entry in self._all_entries():
            if entry.marker is Marker.REVOKED and entry.key == key:
                return self._reject(KeyTrouble.REVOKED, key, entry)
        if any(e.marker is Marker.AUTHORITY and e.key == key for e in self._all_entries()):
            return True
        return self._reject(KeyTrouble.UNKNOWN, key, None, "signed by an unknown authority")

    def revocation_of_any(self) -> HostKeyRejected:
        """The rejection for a revoked key that asyncssh met inside a certificate."""
        entry = next((e for e in self._all_entries() if e.marker is Marker.REVOKED), None)
        return self._rejection(KeyTrouble.REVOKED, None, entry, "")

    def _all_entries(self) -> list[Entry]:
        return [e for entries in (*self._entries, self._ip_entries) for e in entries]

    def _agrees_with_ip(self, key: bytes) -> bool:
        """CheckHostIP: the address must not be known by another key."""
        plain = [e for e in self._ip_entries if e.marker is Marker.PLAIN]
        if plain and not any(e.key == key for e in plain):
            return self._reject(KeyTrouble.CHANGED, key, plain[0], "its address has another key")
        return True

    def _reject(
        self, trouble: KeyTrouble, key: bytes, entry: Entry | None, reason: str = ""
    ) -> bool:
        self.taken_unknown = None
        self.rejection = self._rejection(trouble, key, entry, reason)
        return False

    def _rejection(
        self, trouble: KeyTrouble, key: bytes | None, entry: Entry | None, reason: str
    ) -> HostKeyRejected:
        return HostKeyRejected(
            trouble,
            name=self.name,
            address=self._resolved.hostname,
            port=self._port,
            offered=None if key is None else fingerprint(key),
            expected=None if entry is None else fingerprint(entry.key),
            path=None if entry is None else str(entry.path),
            line=None if entry is None else entry.line,
            reason=reason,
        )


def _worth_checking(peer_ip: str, name: str) -> bool:
    """ssh does not look up loopback, nor an address given as the name."""
    try:
        return peer_ip != name and not ipaddress.ip_address(peer_ip).is_loopback
    except ValueError:
        return False


def _rsa_bits(key: bytes) -> int:
    """Length of the modulus of an ``ssh-rsa`` blob: string type, mpint e, mpint n."""
    position = 0
    field = b""
    for _ in range(3):
        length = int.from_bytes(key[position : position + 4], "big")
        field = key[position + 4 : position + 4 + length]
        position += 4 + length
    return int.from_bytes(field, "big").bit_length()
