"""From a host's configuration to a connection, along its jump hosts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpumon.collectors.failures import ConfigRejected, JumpFailed, TransportError
from gpumon.collectors.pool import Borrowed, ConnectionPool
from gpumon.collectors.resolved_host import JumpSpec, ResolvedHost
from gpumon.collectors.ssh_link import SshLink, connect_link

__all__ = ["Reached", "reach_host"]

_MOST_HOPS = 8


@dataclass(slots=True)
class Reached:
    """A link, and the share of a bastion that carries it."""

    link: SshLink
    bastion: Borrowed[Reached] | None = None

    def is_closed(self) -> bool:
        """True once the connection, or the one beneath it, is gone."""
        return self.link.is_closed() or (self.bastion is not None and self.bastion.link.is_closed())

    def abort(self) -> None:
        """Drop the connection and give the bastion back."""
        self.link.abort()
        if self.bastion is not None:
            self.bastion.release()

    @property
    def hops(self) -> tuple[str, ...]:
        """Names of the jump hosts, first hop first."""
        if self.bastion is None:
            return ()
        before = self.bastion.link
        return (*before.hops, before.link.resolved.alias)


async def reach_host(
    resolved: ResolvedHost, pool: ConnectionPool, trail: tuple[str, ...] = ()
) -> Reached:
    """Connect to ``resolved``, through a pooled connection to its last jump host.

    Raises a ``TransportError``; one that a hop is to blame for is a ``JumpFailed``.
    """
    bastion: Borrowed[Reached] | None = None
    server = f"{resolved.hostname}:{resolved.port}"
    if resolved.jumps:
        bastion = await _borrow_bastion(resolved.jumps, pool, (*trail, server))
        server = _chain_name(resolved.jumps)
    try:
        async with pool.connecting(server):
            link = await connect_link(
                resolved,
                known_hosts=pool.known_hosts,
                key_files=pool.key_files,
                via=None if bastion is None else bastion.link.link,
            )
    except BaseException:
        if bastion is not None:
            bastion.release()
        raise
    return Reached(link, bastion)


def _chain_name(jumps: tuple[JumpSpec, ...]) -> str:
    return ",".join(map(str, jumps))


async def _borrow_bastion(
    jumps: tuple[JumpSpec, ...], pool: ConnectionPool, trail: tuple[str, ...]
) -> Borrowed[Reached]:
    """A share of the connection to the last of ``jumps``."""
    hop = jumps[-1]

    async def make() -> Reached:
        if len(trail) > _MOST_HOPS:
            raise ConfigRejected(f"ProxyJump goes in circles: {' <- '.join(trail)}")
        resolved = await pool.ssh_config.resolve(hop.host, hop.user, hop.port)
        before = jumps[:-1]
        if before:
            # as ssh does: the hops named before it replace what its own config says
            resolved = replace(resolved, jumps=before, proxy_command=None)
        elif hop in resolved.jumps or f"{resolved.hostname}:{resolved.port}" in trail:
            raise ConfigRejected(f"ProxyJump of {hop} leads back to {hop}")
        return await reach_host(resolved, pool, trail)

    try:
        return await pool.borrow(_chain_name(jumps), make)
    except JumpFailed:
        raise
    except TransportError as error:
        raise JumpFailed(str(hop), error) from error
