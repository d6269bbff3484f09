"""README names every command, option and config key."""

from pathlib import Path

import pytest

from gpumon.config_file import parse_config, template
from gpumon.config_keys import KEYS
from gpumon.tui.exit_codes import ExitCode
from gpumon.tui.options import COMMANDS, build_parser

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
CONFIG = README.split("```toml\n", 1)[1].split("```", 1)[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_its_options(command: str) -> None:
    assert f"gpumon {command}" in README
    for action in build_parser(command)._actions:
        names = [
            name for name in action.option_strings if name not in ("-h", "--help", "--version")
        ]
        assert not names or any(name in README for name in names), names


@pytest.mark.parametrize("key", [key for key in KEYS if key.name != "METRIC"], ids=lambda k: k.name)
def test_every_key_of_the_config(key: object) -> None:
    assert f"{getattr(key, 'name', '')} = " in CONFIG


def test_the_example_config_is_valid() -> None:
    inventory = parse_config(CONFIG)
    assert [host.name for host in inventory.hosts] == ["berlin-1"]


def test_the_template_is_valid_as_it_is_and_with_every_example() -> None:
    assert parse_config(template()).hosts == ()
    lines = [line.removeprefix("# ") for line in template().splitlines()[2:]]
    (host,) = parse_config("\n".join(lines)).hosts
    assert (host.name, host.port, host.engines[0].kind) == ("gpu-1", 2222, "ollama")


@pytest.mark.parametrize("code", ExitCode)
def test_every_exit_status(code: ExitCode) -> None:
    assert f"{code.value} " in README.split("Exit status:")[1].split("\n\n")[0]
