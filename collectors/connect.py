"""From a host's config to an open transport."""

from __future__ import annotations

from gpumon.collectors.failures import ConfigRejected, JumpFailed, NeedsSsh
from gpumon.collectors.local import LocalTransport
from gpumon.collectors.pool import ConnectionPool
from gpumon.collectors.resolved_host import ResolvedHost
from gpumon.collectors.transport import Transport
from gpumon.inventory import HostConfig

__all__ = ["open_transport"]


async def open_transport(config: HostConfig, pool: ConnectionPool) -> Transport:
    """Reach the host as its config says.

    Raises a ``failures.TransportError`` that ``causes.explain`` understands; a transport
    over the system's ``ssh`` connects only when a command is started, and fails there.
    Safe to cancel at any point.
    """
    if config.address is None:
        return LocalTransport()
    resolved = await pool.ssh_config.resolve(config.address, config.user, config.port)
    await _refuse_circles(resolved, pool)
    match config.transport:
        case "ssh":
            return _over_ssh(config.address, config, resolved, pool)
        case "asyncssh":
            pass
        case other:
            raise ConfigRejected(f'transport = "{other}" is neither "asyncssh" nor "ssh"')
    # asyncssh is not loaded where no host needs it
    from gpumon.collectors.reach import reach_host
    from gpumon.collectors.ssh import AsyncsshTransport

    try:
        return AsyncsshTransport(await reach_host(resolved, pool))
    except NeedsSsh:
        return _over_ssh(config.address, config, resolved, pool)
    except JumpFailed as failure:
        if not isinstance(failure.inner, NeedsSsh):
            raise
        return _over_ssh(config.address, config, resolved, pool)


def _over_ssh(
    address: str, config: HostConfig, resolved: ResolvedHost, pool: ConnectionPool
) -> Transport:
    from gpumon.collectors.ssh_process import SshProcessTransport

    settings = pool.ssh_config
    if not settings.ssh:
        raise ConfigRejected("the host needs the ssh program, and there is none here")
    target = settings.command(address, config.user, config.port)
    return SshProcessTransport(settings.ssh, target, resolved, pool)


async def _refuse_circles(resolved: ResolvedHost, pool: ConnectionPool) -> None:
    """Refuse a jump host that is reached by itself: ``ssh`` would start itself for ever.

    (Seen with OpenSSH 9.2: ``Host *`` with a ProxyJump that also covers the jump host
    made 16,000 processes.) Only the first hop's own ProxyJump counts; ssh replaces
    that of the others by the hops named before them.
    """
    passed: list[str] = []
    here = resolved
    while here.jumps:
        first = here.jumps[0]
        if str(first) in passed:
            raise ConfigRejected(f"ProxyJump goes in circles: {' -> '.join((*passed, str(first)))}")
        passed.append(str(first))
        here = await pool.ssh_config.resolve(first.host, first.user, first.port)
