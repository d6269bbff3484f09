"""A lone word that looks like a misspelt command: is it a host after all?"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket

from gpumon.tui.commands.settings import read_config
from gpumon.tui.options import UsageError

__all__ = ["refuse_typo"]

#: a name server that is slower decides nothing here
_LOOKUP_S = 3.0


def refuse_typo(options: argparse.Namespace) -> None:
    """Raise ``UsageError`` where the first host is none, but nearly a command."""
    word = options.hosts[0]
    known = {host.name for host in read_config(options).hosts}
    if word not in known and not asyncio.run(_is_host(word)):
        raise UsageError(
            f"{word}: neither a command nor a host",
            f'did you mean "gpumon {options.typo}"? (gpumon run {word} takes it for a host)',
        )


async def _is_host(word: str) -> bool:
    """True where ssh's configuration or a name server knows it, or where neither can say."""
    from gpumon.collectors.failures import ConfigRejected
    from gpumon.collectors.ssh_config import SshConfig

    try:
        resolved = await SshConfig().resolve(word)
    except ConfigRejected:
        return True
    if resolved.hostname != word or resolved.jumps or resolved.proxy_command:
        return True
    loop = asyncio.get_running_loop()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LOOKUP_S):
            try:
                await loop.getaddrinfo(word, None)
            except (socket.gaierror, UnicodeError):
                return False
    return True
