"""README names every command, option, key of the config and of the keyboard."""

import tomllib
from pathlib import Path

import pytest

from gpumon.config_file import parse_config, template
from gpumon.config_keys import KEYS, Key
from gpumon.tui.actions import ACTIONS, Action, key_label
from gpumon.tui.exit_codes import ExitCode
from gpumon.tui.options import COMMANDS, build_parser

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
KEYBOARD = README.split("| key |", 1)[1].split("\n\n", 1)[0]
CONFIG = README.split("```toml\n", 1)[1].split("```", 1)[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_its_options(command: str) -> None:
    assert f"gpumon {command}" in README
    for action in build_parser(command)._actions:
        names = action.option_strings
        assert not names or any(name in README for name in names), names
        for choice in action.choices or ():
            assert str(choice) in README


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key.section}.{key.name}")
def test_every_key_of_the_config(key: Key) -> None:
    section = tomllib.loads(CONFIG)
    for name in key.section.replace("NAME", "berlin-1").split("."):
        section = section[name]
    value = next(iter(section.values())) if key.name == "METRIC" else section[key.name]
    row = value[0] if isinstance(value, list) and key.parts else value
    for part in key.parts:
        assert part.name in row


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.text)
def test_every_key_of_the_keyboard(action: Action) -> None:
    for key in action.keys:
        assert f"`{key_label(key)}`" in KEYBOARD


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
