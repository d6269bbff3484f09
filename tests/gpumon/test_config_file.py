"""A typo in the config is told with file, line, key and what was meant."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config_file import ConfigError, load_config, parse_config, write_template

GOOD = """
[defaults]
user = "ops"
interval_s = 3

[hosts.a]
[hosts.b]
address = "local"
[hosts."with space"]
address = "10.0.0.7"
user = "me"
port = 2222
engines = [{ kind = "ollama", url = "http://127.0.0.1:11434", key_env = "KEY" }]
"""


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "c.toml")
    return caught.value.problems


def test_a_good_config() -> None:
    inventory = parse_config(GOOD)
    a, b, c = inventory.hosts
    assert (a.name, a.address, a.user, a.interval_s) == ("a", "a", "ops", 3.0)
    assert b.is_local
    assert (c.address, c.user, c.port, c.engines[0].key_env) == ("10.0.0.7", "me", 2222, "KEY")


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        ("[hosts.a]\nadress = 'x'\n", 2, ('unknown key; did you mean "address"?',)),
        ("[host.a]\n", 1, ('did you mean "hosts"?',)),
        ("\n\n[defaults]\nintervall_s = 2\n", 4, ('"interval_s"',)),
        ("[hosts.a]\nport = '22'\n", 2, ("hosts.a.port", "must be a whole number, not '22'")),
        ("[hosts.a]\nport = true\n", 2, ("must be a whole number",)),
        ("[hosts.a]\nport = 0\n", 2, ("0 is less than 1",)),
        ("[hosts.a]\nenabled = 1\n", 2, ("true or false",)),
        ("[hosts.a]\ntags = ['x', 3]\n", 2, ("a list of texts",)),
        ("[hosts.a]\ntransport = 'shh'\n", 2, ("'shh' is none of asyncssh, ssh",)),
        ("[hosts.a]\nprice = { hourli = 1 }\n", 2, ('"hourly"',)),
        ("[hosts.a]\nprice = { hourly = 'x' }\n", 2, ("price.hourly", "a number")),
        ("[hosts.a]\nengines = [{ kind = 'ollama' }]\n", 2, ("each needs kind and url",)),
        (
            "[hosts.a]\nengines = [{ kind = 'ollama', url = 'http://u:p@h/' }]\n",
            2,
            ("without a user and password",),
        ),
        ("[defaults]\ninterval_s = 0.01\n", 2, ("less than 0.5",)),
        ("[retention]\nraw_h = 'x'\n", 2, ("retention.raw_h",)),
        ("[thresholds]\nutil_percent = 3\n", 2, ("must be a table",)),
        ("[thresholds]\nutil_percent = { worn = 3 }\n", 2, ('"warn"',)),
        ("[defaults\nx = 1\n", 1, ("no TOML",)),
        ("hosts = 3\n", 1, ("must be tables named [hosts.NAME]",)),
        ("[hosts]\na = 3\n", 2, ("must be a table [hosts.a]",)),
    ],
)
def test_a_mistake_is_named(text: str, line: int, parts: tuple[str, ...]) -> None:
    (problem,) = problems(text)
    assert problem.startswith(f"c.toml:{line}: "), problem
    for part in parts:
        assert part in problem


def test_all_mistakes_are_told_at_once() -> None:
    assert len(problems("[hosts.a]\nprot = 1\nuser = 2\n[defaultz]\n")) == 3


def test_no_file_is_an_empty_config_unless_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    assert load_config(path, required=False).hosts == ()
    with pytest.raises(ConfigError, match="no such file"):
        load_config(path, required=True)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="can't be read"):
        load_config(path, required=True)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match="can't be read"):
        load_config(path, required=True)


def test_the_template_is_private_and_never_written_over_a_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "c.toml"
    write_template(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_text()
    with pytest.raises(ConfigError, match="exists already"):
        write_template(path)
    assert path.read_text() == before


@given(st.text(max_size=200))
def test_any_text_is_a_config_or_an_error(text: str) -> None:
    try:
        parse_config(text)
    except ConfigError as error:
        assert error.problems
