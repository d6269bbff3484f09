"""The ``gpumon`` command: picks a subcommand, and turns what goes wrong into one line."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence

from gpumon.errors import GpumonError
from gpumon.tui.exit_codes import ExitCode
from gpumon.tui.options import COMMANDS, build_parser, split_command

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run gpumon; returns the exit status."""
    command, rest = split_command(list(sys.argv[1:] if arguments is None else arguments))
    options = build_parser(command).parse_args(rest)
    debug = options.debug or os.environ.get("GPUMON_DEBUG") == "1"
    if command == "run":
        _hint_at_typo(options.hosts)
    try:
        module = importlib.import_module(f"gpumon.tui.commands.{command}")
        return int(module.run(options))
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone: no more may be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except GpumonError as error:
        if debug:
            raise
        for line in str(error).splitlines():
            print(f"gpumon: {line}", file=sys.stderr)
        if error.fix:
            print(f"gpumon: next: {error.fix}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        if debug:
            raise
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"gpumon: this should not happen: {said}", file=sys.stderr)
        print("gpumon: next: run it again with --debug, and report it", file=sys.stderr)
        return 1


def _hint_at_typo(hosts: Sequence[str]) -> None:
    """A lone word that looks like a misspelt command may still be a host: only hint."""
    if len(hosts) == 1:
        near = difflib.get_close_matches(hosts[0], COMMANDS, n=1, cutoff=0.75)
        if near:
            said = f'gpumon: "{hosts[0]}" is taken for a host; the command is: gpumon {near[0]}'
            print(said, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
