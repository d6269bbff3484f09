"""A process that reads in /proc like any program and does nothing: a job on a GPU."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

if __package__:
    from tests.rig import disguise
else:  # inside a host of the rig
    import disguise

__all__ = ["spawn"]


def spawn(argv: Sequence[str]) -> tuple[list[str], str, dict[str, str]]:
    """What starts it: (arguments, executable, environment)."""
    base = {"PATH": "/usr/bin:/bin"}
    return (
        disguise.command("sleeper", argv),
        disguise.interpreter(),
        disguise.environment(argv, base),
    )


def main() -> None:
    """Run as the program."""
    disguise.wear()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
