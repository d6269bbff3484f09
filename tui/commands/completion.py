"""``gpumon completion``: completions for a shell, made from the parsers."""

from __future__ import annotations

import argparse

from gpumon.tui.options import COMMANDS, build_parser

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Print the completions of one shell."""
    if options.shell == "fish":
        print(_complete_fish(), end="")
        return 0
    import shtab

    print(shtab.complete(build_parser(), shell=options.shell))
    return 0


def _complete_fish() -> str:
    """fish's own format, which shtab does not know."""
    lines = ["complete -c gpumon -f"]
    for command, text in COMMANDS.items():
        lines.append(f"complete -c gpumon -n __fish_use_subcommand -a {command} -d {_quote(text)}")
        seen = f"'__fish_seen_subcommand_from {command}'"
        for action in build_parser(command)._actions:
            said = _quote(action.help or "")
            for option in action.option_strings:
                kind = "-l" if option.startswith("--") else "-s"
                takes = " -r" if action.nargs is None and action.metavar else ""
                if action.choices:
                    takes = f" -x -a {_quote(' '.join(map(str, action.choices)))}"
                lines.append(
                    f"complete -c gpumon -n {seen} {kind} {option.lstrip('-')}{takes} -d {said}"
                )
            if not action.option_strings and action.choices:
                words = _quote(" ".join(map(str, action.choices)))
                lines.append(f"complete -c gpumon -n {seen} -a {words}")
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
