"""The ``%`` tokens and ``${VAR}`` of ssh_config (ssh_config(5), TOKENS)."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

__all__ = ["expand_path", "expand_tokens", "home_directory", "token_values"]

_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def home_directory() -> Path:
    """The home that ssh uses: the password file's, not ``$HOME``."""
    try:
        import pwd  # not on Windows

        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except (ImportError, KeyError):
        return Path.home()


def local_user() -> str:
    """The name of the user gpumon runs as; the number where it has none."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return os.environ.get("USER", str(os.getuid()))


def token_values(
    *, alias: str, hostname: str, port: int, user: str, key_alias: str | None, jump: str
) -> dict[str, str]:
    """Values for the tokens of IdentityFile and ProxyCommand.

    ``%C`` is left out: what it hashes differs between releases of OpenSSH, and a
    wrong guess would name another file. ``%i`` is the numeric user id.
    """
    host = socket.gethostname()
    return {
        "%": "%",
        "d": str(home_directory()),
        "h": hostname,
        "i": str(os.getuid()),
        "j": jump,
        "k": key_alias or alias,
        "L": host.partition(".")[0],
        "l": host,
        "n": alias,
        "p": str(port),
        "r": user,
        "u": local_user(),
    }


def expand_tokens(text: str, values: Mapping[str, str]) -> str:
    """Replace ``%x``; raises ValueError for a token that is not among ``values``."""
    parts = []
    rest = text
    while rest:
        head, percent, rest = rest.partition("%")
        parts.append(head)
        if not percent:
            break
        if not rest or rest[0] not in values:
            raise ValueError(f"unknown token %{rest[:1]} in {text}")
        parts.append(values[rest[0]])
        rest = rest[1:]
    return "".join(parts)


def expand_path(text: str, values: Mapping[str, str]) -> Path | None:
    """Expand ``~``, ``${VAR}`` and tokens of a file name as ssh does.

    None where a variable is not set or a token is not known: such a file is skipped,
    which never makes a host more trusted.
    """
    missing = [name for name in _VARIABLE.findall(text) if name not in os.environ]
    if missing:
        return None
    text = _VARIABLE.sub(lambda match: os.environ[match[1]], text)
    try:
        text = expand_tokens(text, values)
    except ValueError:
        return None
    if text == "~" or text.startswith("~/"):
        return home_directory() / text[2:]
    return Path(text).expanduser() if text.startswith("~") else Path(text)
