"""ssh_config read by asyncssh's parser: only for a machine that has no ``ssh``.

Its trap is closed here: ``UserKnownHostsFile none`` makes asyncssh accept any host key
(an empty list becomes ``known_hosts=None``). Only the names of the files are taken from
it; keys are judged by ``known_hosts.py``, where no file means no key is known.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from gpumon.collectors.failures import ConfigRejected
from gpumon.collectors.resolved_host import ResolvedHost, StrictChecking, parse_jumps
from gpumon.collectors.ssh_tokens import home_directory, local_user

__all__ = ["resolve_natively"]

#: Keywords that are either read below or make no difference to whom is trusted and what
#: is connected to. A config with any other is refused: this parser skips what it does not
#: know, and it might be one that narrows trust (RevokedHostKeys, HostKeyAlgorithms, ...)
#: or that it does not evaluate as ssh does (Match exec).
_UNDERSTOOD = frozenset(
    """
    addkeystoagent addressfamily batchmode bindaddress certificatefile
    challengeresponseauthentication compression compressionlevel connectionattempts
    connecttimeout controlmaster controlpath controlpersist dynamicforward escapechar
    exitonforwardfailure fingerprinthash forwardagent forwardx11 forwardx11timeout
    forwardx11trusted gatewayports globalknownhostsfile gssapiauthentication
    gssapidelegatecredentials hashknownhosts host hostkeyalias hostname identitiesonly
    identityagent identityfile ignoreunknown include ipqos kbdinteractiveauthentication
    localcommand localforward loglevel numberofpasswordprompts passwordauthentication
    permitlocalcommand port preferredauthentications proxycommand proxyjump
    pubkeyauthentication rekeylimit remotecommand remoteforward requesttty sendenv
    serveralivecountmax serveraliveinterval setenv stricthostkeychecking tcpkeepalive
    updatehostkeys usekeychain user userknownhostsfile visualhostkey xauthlocation
    """.split()
)
_IDENTITIES = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")


def resolve_natively(
    address: str,
    user: str | None,
    port: int | None,
    path: Path | None,
    keywords: frozenset[str],
) -> ResolvedHost:
    """What asyncssh makes of the config files; ``ConfigRejected`` where it fails.

    ``keywords``: those that stand in the files.
    """
    beyond = sorted(keywords - _UNDERSTOOD)
    if beyond:
        raise ConfigRejected(f"the config has {beyond[0]}, which needs the ssh program")
    from asyncssh.config import ConfigParseError, SSHClientConfig

    name, _, host = address.removeprefix("ssh://").rpartition("@")
    user = user or name or None
    ssh_home = home_directory() / ".ssh"
    candidates = [path] if path else [ssh_home / "config", Path("/etc/ssh/ssh_config")]
    files = [str(file) for file in candidates if os.access(file, os.R_OK)]
    try:
        config = SSHClientConfig.load(
            None, files, False, False, False, local_user(), user or (), host, port or ()
        )
        get = config.get
        jump = get("ProxyJump")
        command = get("ProxyCommand")
        jumps = parse_jumps(jump) if isinstance(jump, str) and jump != "none" else ()
        if not isinstance(command, str | None):
            raise ConfigRejected("ProxyCommand can't be read without the ssh program")
        if jumps and command:
            raise ConfigRejected("ProxyJump beside ProxyCommand needs the ssh program")
    except (ConfigParseError, ValueError, OSError) as error:
        raise ConfigRejected(f"{error} (read without ssh: no ssh program here)") from error

    def paths(keyword: str, default: tuple[Path, ...]) -> tuple[Path, ...]:
        value = get(keyword)
        if value is None:
            return default
        return tuple(Path(str(item)).expanduser() for item in _listed(value))

    timeout = get("ConnectTimeout")
    agent = get("IdentityAgent")
    alias = get("HostKeyAlias")
    return ResolvedHost(
        alias=address,
        hostname=str(get("Hostname") or host),
        port=int(str(get("Port") or port or 22)),
        user=str(get("User") or user or local_user()),
        host_key_alias=str(alias).lower() if alias else None,
        user_known_hosts=paths(
            "UserKnownHostsFile", (ssh_home / "known_hosts", ssh_home / "known_hosts2")
        ),
        global_known_hosts=paths(
            "GlobalKnownHostsFile",
            (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2")),
        ),
        # asyncssh does not read it; asking is the strictest that ssh defaults to
        strict=StrictChecking.ASK,
        identity_files=paths("IdentityFile", tuple(ssh_home / name for name in _IDENTITIES)),
        certificate_files=paths("CertificateFile", ()),
        identities_only=bool(get("IdentitiesOnly")),
        agent_path=str(agent) or None
        if agent is not None
        else os.environ.get("SSH_AUTH_SOCK") or None,
        public_key_auth=get("PubkeyAuthentication") is not False,
        jumps=jumps,
        proxy_command=command,
        connect_timeout_s=float(str(timeout)) if timeout else None,
        family=family if isinstance(family := get("AddressFamily"), int) else socket.AF_UNSPEC,
        bind_address=str(get("BindAddress")) if get("BindAddress") else None,
    )


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
