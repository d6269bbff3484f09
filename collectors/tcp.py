"""The TCP connection under an SSH session, with errors that say which of them it was."""

from __future__ import annotations

import asyncio
import os
import socket

from gpumon.collectors.failures import Reach, ReachFailed
from gpumon.collectors.resolved_host import ResolvedHost

__all__ = ["connect_tcp", "reach_of"]


def reach_of(error: OSError) -> Reach:
    """Which kind of failure an error of the network is."""
    if isinstance(error, socket.gaierror):
        return Reach.NAME_NOT_FOUND
    if isinstance(error, ConnectionRefusedError):
        return Reach.REFUSED
    if isinstance(error, TimeoutError):
        return Reach.TIMED_OUT
    return Reach.UNREACHABLE


async def connect_tcp(resolved: ResolvedHost, timeout_s: float) -> socket.socket:
    """Try the host's addresses in turn, as ssh does, each for ``timeout_s``.

    Raises ``ReachFailed`` for the last of them.
    """
    loop = asyncio.get_running_loop()
    host, port = resolved.hostname, resolved.port
    try:
        async with asyncio.timeout(timeout_s):
            found = await loop.getaddrinfo(
                host, port, family=resolved.family, type=socket.SOCK_STREAM
            )
    except socket.gaierror as error:
        raise ReachFailed(Reach.NAME_NOT_FOUND, host, port, error.strerror or "") from error
    except TimeoutError:
        reason = f"looking up the name took over {timeout_s:g} s"
        raise ReachFailed(Reach.NAME_NOT_FOUND, host, port, reason) from None
    except UnicodeError:
        raise ReachFailed(Reach.NAME_NOT_FOUND, host, port, "not a host name") from None
    last: ReachFailed | None = None
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            if resolved.bind_address:
                sock.bind((resolved.bind_address, 0))
            async with asyncio.timeout(timeout_s):
                await loop.sock_connect(sock, address)
        except TimeoutError:
            sock.close()
            reason = f"no answer in {timeout_s:g} s"
            last = ReachFailed(Reach.TIMED_OUT, str(address[0]), port, reason)
        except OSError as error:
            sock.close()
            # asyncio's own text repeats the address
            reason = os.strerror(error.errno) if error.errno else str(error)
            last = ReachFailed(reach_of(error), str(address[0]), port, reason)
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise last or ReachFailed(Reach.NAME_NOT_FOUND, host, port, "the name has no address")
