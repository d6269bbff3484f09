"""The command line: every command, option and help text. Imports nothing heavy."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator, Sequence
from typing import NoReturn

from gpumon import __version__
from gpumon.errors import GpumonError

__all__ = ["COMMANDS", "UsageError", "build_parser", "parse_arguments"]

#: command -> what it does, in the order of the help
COMMANDS: dict[str, str] = {
    "run": "watch hosts on screen (what gpumon does without a command)",
    "collect": "collect into the database without a screen, for systemd or tmux",
    "snapshot": "read every host once and print it",
    "export": "write what was recorded as CSV or JSON lines",
    "config": "make, find or check the configuration",
    "completion": "print completions for bash, zsh or fish",
}
#: options that every command takes, before it too, and that are followed by a value
_TAKE_VALUE = frozenset({"--db", "--config", "--interval", "--theme"})
_DESCRIPTION = """\
Watch GPU servers that serve language models: this machine, the hosts of the config, or
the hosts named here. Hosts are read over SSH; nothing is installed or changed on them."""
_EPILOG = """\
HOST is a name from the config, an alias of ~/.ssh/config, user@host, host:port or [v6]:port.

exit status: 0 done, 1 a host did not answer, 2 wrong usage or config, 3 database
trouble, 130 interrupted"""


class UsageError(GpumonError):
    """Words on the command line that mean nothing."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and takes no shortened options.

    A shortened one could come to mean another when options are added.
    """

    def __init__(self, prog: str, **more: object) -> None:
        super().__init__(prog=prog, allow_abbrev=False, **more)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving."""
        raise UsageError(message, f"see {self.prog} --help")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not 0.5 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not from 0.5 to 3600 seconds")
    return seconds


def _add_common(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("options of every command (before or after it)")
    group.add_argument("--config", metavar="FILE", help="another config file")
    group.add_argument("--db", metavar="FILE", help="another database")
    group.add_argument(
        "--interval", metavar="SECONDS", type=_seconds, help="time between samples (default 2)"
    )
    group.add_argument(
        "--theme",
        metavar="NAME",
        help="dark, light, ansi, or one of Textual's; else by the terminal",
    )
    group.add_argument(
        "--no-mouse", action="store_true", help="leave the mouse to the terminal, to select text"
    )
    group.add_argument(
        "--debug", action="store_true", help="show tracebacks, log more (as GPUMON_DEBUG=1)"
    )
    group.add_argument("--version", action="version", version=f"gpumon {__version__}")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("hosts", nargs="*", metavar="HOST", help="what to watch instead")


def _add_collect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("hosts", nargs="*", metavar="HOST", help="what to collect from instead")


def _add_snapshot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("hosts", nargs="*", metavar="HOST", help="what to read instead")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--table", action="store_true", help="a table (the default)")
    form.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=20.0,
        help="give a host up after this (default 20)",
    )


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--table",
        required=True,
        choices=("gpu", "model", "process", "host"),
        help="what each row is about",
    )
    parser.add_argument(
        "--since", metavar="TIME", default="24h", help="30m, 24h, 7d or an ISO date (default 24h)"
    )
    parser.add_argument("--until", metavar="TIME", help="the same (default now)")
    parser.add_argument(
        "--host", metavar="HOST", action="append", help="only this host; may be repeated"
    )
    parser.add_argument(
        "--format", choices=("csv", "jsonl"), help="default: by the file's ending, else csv"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="-", help="default: - (standard output)"
    )
    parser.add_argument("--force", action="store_true", help="write over an existing FILE")


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("init", "path", "validate"),
        help="init writes a commented file, path says where it is looked for, validate checks it",
    )


def _add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="for which shell")


_ADD = {
    "run": _add_run,
    "collect": _add_collect,
    "snapshot": _add_snapshot,
    "export": _add_export,
    "config": _add_config,
    "completion": _add_completion,
}


def _split_command(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The command and all other words; None where the first plain word is no command."""
    skip = False
    for position, word in enumerate(arguments):
        if skip:
            skip = False
        elif word == "--":
            break
        elif word in _TAKE_VALUE:
            skip = True
        elif not word.startswith("-"):
            if word in COMMANDS:
                return word, [*arguments[:position], *arguments[position + 1 :]]
            break
    return None, list(arguments)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The options, with ``command`` and, where only a typo explains it, ``typo``.

    ``typo`` is the command that was meant by a lone word, which may yet be a host.
    Raises ``UsageError``.
    """
    named, rest = _split_command(arguments)
    command = named or "run"
    parser = build_parser(command)
    # Options may stand between hosts.
    options, unknown = parser.parse_known_intermixed_args(rest)
    options.command = command
    options.typo = None
    plain = named is None and "--" not in arguments and bool(options.hosts)
    if plain and (unknown or len(options.hosts) == 1):
        options.typo = _meant_command(options.hosts[0])
    if unknown and options.typo is None:
        raise _explain_unknown(unknown[0], command)
    return options


def _meant_command(word: str) -> str | None:
    """What a misspelt command should have been."""
    if word in ("help", "version"):
        return f"--{word}"
    near = difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.75)
    return near[0] if near else None


def _explain_unknown(word: str, command: str) -> UsageError:
    fix = f"see gpumon {command} --help"
    if not word.startswith("-"):
        return UsageError(f"{word!r} is one word too many", fix)
    name = word.partition("=")[0]
    homes = [other for other in COMMANDS if name in _option_names(other)]
    if homes:
        return UsageError(
            f"{name} is an option of gpumon {homes[0]}", f"write gpumon {homes[0]} {name}"
        )
    near = difflib.get_close_matches(name, list(_option_names(command)), n=1)
    return UsageError(f"there is no option {name}", f"did you mean {near[0]}?" if near else fix)


def _option_names(command: str) -> Iterator[str]:
    for action in build_parser(command)._actions:
        yield from action.option_strings


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of one command, or with None one of all (for completions)."""
    if command is not None and command != "run":
        text = COMMANDS[command]
        parser = _Parser(f"gpumon {command}", description=f"{text[:1].upper()}{text[1:]}.")
        _ADD[command](parser)
        _add_common(parser)
        return parser
    commands = "\n".join(f"  {name:<12}{text}" for name, text in COMMANDS.items())
    parser = _Parser(
        "gpumon",
        usage="gpumon [COMMAND] [options] [HOST ...]",
        description=_DESCRIPTION,
        epilog=f"commands:\n{commands}\n\n{_EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_common(parser)
    if command == "run":
        _add_run(parser)
        return parser
    children = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, text in COMMANDS.items():
        child = children.add_parser(name, help=text, description=text)
        _ADD[name](child)
        _add_common(child)
    return parser
