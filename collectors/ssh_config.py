"""What ssh's configuration means for a host: asked of ``ssh -G``, so that it is exact.

asyncssh's own parser agreed with ssh in 19 of 28 configurations and accepted any host
key for ``UserKnownHostsFile none``; ``ssh -G`` prints what ssh itself would do. Caution:
``ssh -G`` runs the user's ``Match exec`` commands, as ssh would.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpumon.collectors.failures import ConfigRejected
from gpumon.collectors.resolved_host import ResolvedHost, StrictChecking, parse_jumps
from gpumon.collectors.ssh_config_files import ConfigFiles, Stamp
from gpumon.collectors.ssh_config_native import resolve_natively
from gpumon.collectors.ssh_tokens import expand_path, expand_tokens, token_values

__all__ = ["CONFIG_VARIABLE", "SshConfig", "read_resolution"]

#: names an ssh config file to use instead of the user's and the system's (``ssh -F``)
CONFIG_VARIABLE = "GPUMON_SSH_CONFIG"

_TIMEOUT_S = 10.0
_AT_ONCE = 8
_FAMILIES = {"any": socket.AF_UNSPEC, "inet": socket.AF_INET, "inet6": socket.AF_INET6}
_STRICT = {
    "true": StrictChecking.YES,
    "yes": StrictChecking.YES,
    "ask": StrictChecking.ASK,
    "accept-new": StrictChecking.ACCEPT_NEW,
    "false": StrictChecking.NO,
    "no": StrictChecking.NO,
    "off": StrictChecking.NO,
}
#: characters that OpenSSH 9.6 refuses in names from a command line, for they could reach
#: a shell through %h or %r of a ProxyCommand (CVE-2023-51385)
_SHELL_CHARACTERS = set("'`\"$\\;&<>|(){}")

Options = Mapping[str, tuple[str, ...]]


class SshConfig:
    """Resolves hosts, side by side, and remembers the answers while no file changes."""

    def __init__(self, path: Path | None = None, *, ssh: str | None = None) -> None:
        """``path``: the only config file to read; ``ssh``: the program, "" for none.

        Without ``path`` the environment variable ``GPUMON_SSH_CONFIG`` is asked.
        """
        named = os.environ.get(CONFIG_VARIABLE)
        self.path = path if path is not None else Path(named) if named else None
        self.ssh = (shutil.which("ssh") or "") if ssh is None else ssh
        self._files = ConfigFiles(self.path)
        self._known: dict[tuple[str, str | None, int | None], tuple[Stamp, ResolvedHost]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._bare: Options | None = None
        self._asking_defaults = asyncio.Lock()

    def command(self, address: str, user: str | None, port: int | None) -> list[str]:
        """The arguments by which ``ssh`` is told the host, without the program's name."""
        arguments = []
        if self.path is not None:
            arguments += ["-F", str(self.path)]
        if user:
            arguments += ["-l", user]
        if port:
            arguments += ["-p", str(port)]
        return [*arguments, "--", address]

    async def resolve(
        self, address: str, user: str | None = None, port: int | None = None
    ) -> ResolvedHost:
        """What the configuration says of this host; ``ConfigRejected`` where it is wrong."""
        _refuse_dangerous(address, user)
        if not self.ssh:
            return resolve_natively(address, user, port, self.path, self._files.keywords)
        key = (address, user, port)
        stamp = self._files.stamp()
        known = self._known.get(key)
        if known is not None and stamp is not None and known[0] == stamp:
            return known[1]
        options = parse_options(await self._print(self.command(address, user, port)))
        resolved = read_resolution(address, options, await self._defaults())
        if stamp is not None:
            self._known[key] = (stamp, resolved)
        return resolved

    async def _defaults(self) -> Options:
        """What ssh does where no configuration speaks; asked for once by all hosts."""
        async with self._asking_defaults:
            if self._bare is None:
                bare = await self._print(["-F", os.devnull, "--", "localhost"])
                self._bare = parse_options(bare)
            return self._bare

    async def _print(self, arguments: Sequence[str]) -> str:
        """Run ``ssh -G``."""
        async with self._slots:
            try:
                process = await asyncio.create_subprocess_exec(
                    self.ssh,
                    "-G",
                    *arguments,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                raise ConfigRejected(f"{self.ssh} can't be run: {error.strerror}") from error
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    out, err = await process.communicate()
            except TimeoutError:
                raise ConfigRejected(
                    f"ssh -G took over {_TIMEOUT_S:.0f} s (a Match exec that hangs?)"
                ) from None
            finally:
                if process.returncode is None:
                    # with it, whatever its Match exec started
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
        if process.returncode != 0:
            words = [w for w in err.decode("utf-8", "replace").splitlines() if "Pseudo-t" not in w]
            raise ConfigRejected("; ".join(words) or f"ssh -G ended with {process.returncode}")
        return out.decode("utf-8", "surrogateescape")


def _refuse_dangerous(address: str, user: str | None) -> None:
    for text in (address, user or ""):
        if text.startswith("-") or any(
            c in _SHELL_CHARACTERS or c.isspace() or not c.isprintable() for c in text
        ):
            raise ConfigRejected(f"{text!r} has characters that no host or user name has")
    if not address:
        raise ConfigRejected("the host's address is empty")


def parse_options(text: str) -> dict[str, tuple[str, ...]]:
    """Parse what ``ssh -G`` prints: keyword, space, value; a keyword may come again."""
    options: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        keyword, _, value = line.partition(" ")
        if keyword:
            options[keyword] = (*options.get(keyword, ()), value)
    return options


def read_resolution(alias: str, options: Options, bare: Options) -> ResolvedHost:
    """Turn printed options into a record; ``bare`` are those of an empty config.

    Raises ``ConfigRejected`` for a value that can't be understood, rather than going
    on without it.
    """

    def one(keyword: str, default: str = "") -> str:
        return options.get(keyword, (default,))[0]

    def names(keyword: str) -> tuple[str, ...]:
        return tuple(name for name in one(keyword).split(",") if name)

    try:
        hostname = one("hostname", alias)
        port = int(one("port", "22"))
        user = one("user")
        strict = _STRICT[one("stricthostkeychecking", "ask")]
        jump_text = one("proxyjump", "none")
        jumps = () if jump_text == "none" else parse_jumps(jump_text)
        key_alias = one("hostkeyalias") or None
        typed = alias.removeprefix("ssh://").rpartition("@")[2]
        values = token_values(
            alias=typed,
            hostname=hostname,
            port=port,
            user=user,
            key_alias=key_alias,
            jump="" if jump_text == "none" else jump_text,
        )
        command = one("proxycommand", "none")
        proxy = None if command == "none" else expand_tokens(command, values)
        timeout = one("connecttimeout", "none")
        family = _FAMILIES[one("addressfamily", "any")]
        rsa_bits = int(one("requiredrsasize", "1024"))
    except (KeyError, ValueError) as error:
        raise ConfigRejected(f"ssh -G printed what gpumon can't read: {error}") from error
    if jumps and proxy is not None:
        proxy = None  # ssh -G prints the one that won; both would be a newer ssh's doing
    return ResolvedHost(
        alias=alias,
        hostname=hostname,
        port=port,
        user=user,
        host_key_alias=key_alias,
        user_known_hosts=_known_hosts_files(one("userknownhostsfile", "none")),
        global_known_hosts=_known_hosts_files(one("globalknownhostsfile", "none")),
        strict=strict,
        check_host_ip=one("checkhostip") == "yes",
        hash_known_hosts=one("hashknownhosts") == "yes",
        identity_files=_paths(options.get("identityfile", ()), values),
        certificate_files=_paths(options.get("certificatefile", ()), values),
        identities_only=one("identitiesonly") == "yes",
        agent_path=_agent_path(one("identityagent", "SSH_AUTH_SOCK"), values),
        public_key_auth=one("pubkeyauthentication", "true") not in ("false", "no")
        and "publickey" in (one("preferredauthentications") or "publickey").split(","),
        jumps=jumps,
        proxy_command=proxy,
        connect_timeout_s=None if timeout in ("none", "0") else float(timeout),
        family=family,
        bind_address=one("bindaddress") or None,
        required_rsa_bits=rsa_bits,
        environment=_environment(options.get("setenv", ())),
        kex_algorithms=names("kexalgorithms"),
        ciphers=names("ciphers"),
        macs=names("macs"),
        host_key_algorithms=names("hostkeyalgorithms"),
        ca_signature_algorithms=names("casignaturealgorithms"),
        public_key_algorithms=names("pubkeyacceptedalgorithms"),
        ciphers_chosen=options.get("ciphers") != bare.get("ciphers"),
        needs_ssh=_why_only_ssh(options),
    )


def _known_hosts_files(text: str) -> tuple[Path, ...]:
    """Split the list that ``ssh -G`` prints without quotes.

    A name with a space in it can't be told from two names; a piece that doesn't start
    like a path belongs to the one before. ``none`` is no file, and so no key is known.
    """
    names: list[str] = []
    for piece in text.split(" "):
        if names and not piece.startswith(("/", "~")):
            names[-1] += " " + piece
        elif piece and piece != "none":
            names.append(piece)
    return tuple(Path(name).expanduser() for name in names)


def _paths(texts: Sequence[str], values: Mapping[str, str]) -> tuple[Path, ...]:
    paths = (expand_path(text.strip('"'), values) for text in texts if text != "none")
    return tuple(dict.fromkeys(path for path in paths if path is not None))


def _agent_path(text: str, values: Mapping[str, str]) -> str | None:
    """Where the agent listens: a path, ``none``, ``SSH_AUTH_SOCK`` or ``$VARIABLE``."""
    if text == "none":
        return None
    if text == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK") or None
    if text.startswith("$") and not text.startswith("${"):
        return os.environ.get(text[1:]) or None
    path = expand_path(text, values)
    return None if path is None else str(path)


def _environment(texts: Sequence[str]) -> dict[str, str]:
    pairs = (text.partition("=") for text in texts)
    return {name: value for name, equals, value in pairs if equals}


def _why_only_ssh(options: Options) -> str | None:
    """Settings that decide whom to trust or how to get there, and that asyncssh lacks.

    Going on without one could trust a key that ssh would refuse.
    """
    for keyword, harmless, words in (
        ("knownhostscommand", ("none", ""), "KnownHostsCommand"),
        ("revokedhostkeys", ("none", ""), "RevokedHostKeys"),
        ("verifyhostkeydns", ("false", "no", ""), "VerifyHostKeyDNS"),
        ("proxyusefdpass", ("no", ""), "ProxyUseFdpass"),
        ("pkcs11provider", ("none", ""), "PKCS11Provider"),
        ("bindinterface", ("none", ""), "BindInterface"),
    ):
        if options.get(keyword, ("",))[0] not in harmless:
            return words
    return None
