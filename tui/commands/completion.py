"""``gpumon completion``: completions for a shell, made from the parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from gpumon.tui.options import COMMANDS, build_parser

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Print the completions of one shell."""
    if options.shell == "fish":
        print("\n".join(_complete_fish()))
        return 0
    import shtab

    parser = build_parser()
    for each in (parser, *_children(parser)):
        for action in each._actions:
            if action.metavar == "FILE":
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell=options.shell))
    return 0


def _children(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def _complete_fish() -> Iterator[str]:
    """fish's own format, which shtab does not know."""
    yield "complete -c gpumon -f"
    yield from _complete_fish_options("run", "__fish_use_subcommand")
    for command, text in COMMANDS.items():
        yield f"complete -c gpumon -n __fish_use_subcommand -a {command} -d {_quote(text)}"
    for command in COMMANDS:
        yield from _complete_fish_options(command, f"'__fish_seen_subcommand_from {command}'")


def _complete_fish_options(command: str, condition: str) -> Iterator[str]:
    """The options and words of one command."""
    for action in build_parser(command)._actions:
        start = f"complete -c gpumon -n {condition}"
        words = _quote(" ".join(map(str, action.choices or ())))
        if not action.option_strings:
            if action.choices:
                yield f"{start} -a {words}"
            elif action.metavar == "HOST":
                yield f"{start} -a '(__fish_print_hostnames)'"
            continue
        for option in action.option_strings:
            start += f" {'-l' if option.startswith('--') else '-s'} {option.lstrip('-')}"
        if action.choices:
            start += f" -x -a {words}"
        elif action.metavar == "FILE":
            start += " -r -F"
        elif action.nargs is None:
            start += " -x"
        yield f"{start} -d {_quote(action.help or '')}"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
