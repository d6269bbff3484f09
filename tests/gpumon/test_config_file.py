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
        ("[hosts.a]\nadress = 'x'\n", 2, ("hosts.a.adress", 'did you mean "address"?')),
        ("[hosts.a]\nzzz = 'x'\n", 2, ("unknown key; known are address, user,",)),
        ("[host.a]\n", 1, ('did you mean "hosts"?',)),
        ("\n\n[defaults]\nintervall_s = 2\n", 4, ('"interval_s"',)),
        ("[hosts.a]\nport = '22'\n", 2, ("hosts.a.port", "must be a whole number, not '22'")),
        ("[hosts.a]\nport = true\n", 2, ("must be a whole number, not true or false",)),
        ("[hosts.a]\nport = 22.0\n", 2, ("must be a whole number",)),
        ("[hosts.a]\nport = 0\n", 2, ("0 is less than 1",)),
        ("[hosts.a]\nport = 70000\n", 2, ("70000 is more than 65535",)),
        ("[hosts.a]\nenabled = 1\n", 2, ("true or false",)),
        ("[hosts.a]\ntags = ['x', 3]\n", 2, ("a list of texts", "not a list")),
        ("[hosts.a]\ntransport = 'shh'\n", 2, ("'shh' is not known", 'did you mean "ssh"?')),
        ("[hosts.a]\ntransport = 'x'\n", 2, ("use asyncssh or ssh",)),
        ("[hosts.a]\nuser = ''\n", 2, ("'' is not the name of a user",)),
        ('[hosts.a]\nregion = "x\\u001b"\n', 2, ("'x\\x1b' is not",)),
        ("[hosts.a]\naddress = 'me@b'\n", 2, ("user and port are keys of their own",)),
        ("[hosts.a]\naddress = 'b:22'\n", 2, ("user and port are keys of their own",)),
        ("[hosts.a]\naddress = '-oProxyCommand=x'\n", 2, ("is not a host's name",)),
        ("[hosts.'a b']\nport = 3\n", 1, ("hosts.'a b': 'a b' is not a host's name",)),
        ("[hosts.a]\nprice = { hourli = 1 }\n", 2, ('"hourly"',)),
        ("[hosts.a]\nprice = { hourly = 'x' }\n", 2, ("price.hourly", "a number")),
        ("[hosts.a]\nprice = { hourly = -1 }\n", 2, ("-1 is less than 0",)),
        ("[hosts.a]\nprice = { hourly = nan }\n", 2, ("must be a number, not nan",)),
        ("[hosts.a]\nprice = { currency = 'usd' }\n", 2, ("three capitals",)),
        ("[hosts.a.price]\nhourly = 1\ncurency = 'USD'\n", 3, ('"currency"',)),
        ("[hosts.a]\nengines = [{ kind = 'ollama' }]\n", 2, ("engines[0]: url is missing",)),
        ("[hosts.a]\nengines = ['ollama']\n", 2, ("engines[0]: must be a table",)),
        (
            "[hosts.a]\nengines = [\n  { kind = 'ollama', url = 'http://h' },\n"
            "  { kind = 'olama', url = 'http://h' },\n]\n",
            4,
            ("engines[1].kind", 'did you mean "ollama"?'),
        ),
        (
            "[[hosts.a.engines]]\nkind = 'ollama'\nurl = 'http://h'\n"
            "[[hosts.a.engines]]\nkind = 'ollama'\nulr = 'http://h'\nurl = 'http://h'\n",
            6,
            ("engines[1].ulr", 'did you mean "url"?'),
        ),
        (
            "[hosts.a]\nengines = [{ kind = 'ollama', url = 'http://u:p@h/' }]\n",
            2,
            ("without user and password",),
        ),
        ("[defaults]\ninterval_s = 0.01\n", 2, ("less than 0.5",)),
        ("[defaults]\ninterval_s = inf\n", 2, ("must be a number, not inf",)),
        ("[retention]\nraw_h = 'x'\n", 2, ("retention.raw_h",)),
        ("[thresholds]\nutil_percent = 3\n", 2, ("must be a table",)),
        ("[thresholds]\nutil_percent = { worn = 3 }\n", 2, ('"warn"',)),
        ("[thresholds]\nutil_pct = { warn = 3 }\n", 2, ('"util_percent"',)),
        ("[defaults\nx = 1\n", 1, ("no TOML",)),
        ("[defaults]\nx = \n", 2, ("no TOML",)),
        ("[defaults]\ntheme = 'x", 2, ("no TOML",)),
        ("hosts = 3\n", 1, ("must be a table [hosts.NAME]",)),
        ("defaults = 3\n", 1, ("must be a table [defaults]",)),
        ("[hosts]\na = 3\n", 2, ("must be a table [hosts.a]",)),
        ("[hosts.a]\nregion = '''\nprot = 1'''\nprot = 1\n", 4, ("hosts.a.prot", '"port"')),
    ],
)
def test_a_mistake_is_named(text: str, line: int, parts: tuple[str, ...]) -> None:
    problem = problems(text)[0]
    assert problem.startswith(f"c.toml:{line}: "), problem
    for part in parts:
        assert part in problem


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "[a]\n[a]\n", "a = 1\n" * 2, "\x00"])
def test_what_is_no_toml(text: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith("c.toml")


def test_this_machine_is_local_unless_ssh_is_meant() -> None:
    text = """
        [defaults]
        user = "ops"
        [hosts.localhost]
        [hosts.tunnel]
        address = "localhost"
        port = 2222
        [hosts.other-user]
        address = "localhost"
        user = "me"
    """
    here, tunnel, other = parse_config(text).hosts
    assert (here.is_local, here.user) == (True, None)
    assert (tunnel.address, tunnel.port, tunnel.user) == ("localhost", 2222, "ops")
    assert (other.address, other.user) == ("localhost", "me")


def test_all_mistakes_are_told_at_once() -> None:
    found = problems("[defaultz]\n[hosts.a]\nprot = 1\nuser = 2\n")
    assert [problem.split(": ")[0] for problem in found] == ["c.toml:1", "c.toml:3", "c.toml:4"]


def test_no_file_is_an_empty_config_unless_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    assert load_config(path, required=False).hosts == ()
    with pytest.raises(ConfigError, match="no such file"):
        load_config(path, required=True)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(path, required=True)
    path.write_bytes(b"\xef\xbb\xbf[defaults]\nuser = 'me'\n[hosts.a]\n")
    assert load_config(path, required=True).hosts[0].user == "me"
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
    with pytest.raises(ConfigError, match="is no folder"):
        write_template(path / "below.toml")


@given(st.text(max_size=200))
def test_any_text_is_a_config_or_an_error(text: str) -> None:
    try:
        parse_config(text)
    except ConfigError as error:
        assert error.problems
