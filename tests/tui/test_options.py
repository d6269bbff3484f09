"""Words on the command line, and what is said to wrong ones."""

import pytest

from gpumon.tui.options import COMMANDS, UsageError, parse_arguments


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "run"])
def test_common_options_before_or_after_the_command(command: str) -> None:
    more = {"export": ["--table", "gpu"], "config": ["path"], "completion": ["bash"]}
    common = ["--db", "d", "--config", "c", "--interval", "3", "--theme", "light", "--no-mouse"]
    before = parse_arguments([*common, command, *more.get(command, [])])
    after = parse_arguments([command, *more.get(command, []), *common])
    assert before == after
    assert (before.command, before.db, before.config, before.interval) == (command, "d", "c", 3.0)
    assert (before.theme, before.no_mouse) == ("light", True)


@pytest.mark.parametrize(
    ("words", "command", "hosts"),
    [
        ([], "run", []),
        (["a", "b"], "run", ["a", "b"]),
        (["a", "--no-mouse", "b"], "run", ["a", "b"]),
        (["run", "collect"], "run", ["collect"]),
        (["--", "collect"], "run", ["collect"]),
        (["a", "collect"], "run", ["a", "collect"]),
        (["--db", "collect", "a"], "run", ["a"]),
        (["--db=collect", "snapshot"], "snapshot", []),
        (["collect", "run"], "collect", ["run"]),
        (["snapshot", "a", "--json", "b"], "snapshot", ["a", "b"]),
    ],
)
def test_the_first_plain_word_is_the_command(
    words: list[str], command: str, hosts: list[str]
) -> None:
    options = parse_arguments(words)
    assert (options.command, options.hosts, options.typo) == (command, hosts, None)


@pytest.mark.parametrize(
    ("words", "said", "fix"),
    [
        (["--intervall", "3"], "there is no option --intervall", "did you mean --interval?"),
        (["--xyz"], "there is no option --xyz", "see gpumon run --help"),
        (["collect", "--json"], "--json is an option of gpumon snapshot", "write gpumon snapshot"),
        (["--timeout", "3", "a"], "--timeout is an option of gpumon snapshot", "write gpumon"),
        (["--int", "3"], "there is no option --int", "did you mean --interval?"),
        (["--interval", "0.1"], "0.1 is not from 0.5 to 3600 seconds", "see gpumon --help"),
        (["--interval", "nan"], "nan is not from 0.5", "see gpumon --help"),
        (["--interval", "x"], "'x' is no number of seconds", "see gpumon --help"),
        (["--db"], "expected one argument", "see gpumon --help"),
        (["export"], "--table", "see gpumon export --help"),
        (["export", "--table", "gpus"], "invalid choice: 'gpus'", "see gpumon export --help"),
        (["config"], "action", "see gpumon config --help"),
        (["config", "path", "x"], "'x' is one word too many", "see gpumon config --help"),
        (["snapshot", "--json", "--table"], "not allowed with", "see gpumon snapshot --help"),
    ],
)
def test_a_wrong_word_is_told_with_the_next_step(words: list[str], said: str, fix: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_arguments(words)
    assert said in str(caught.value)
    assert fix in str(caught.value.fix)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["colect"], "collect"),
        (["snapshto", "--json", "a"], "snapshot"),
        (["help"], "--help"),
        (["berlin"], None),
        (["colect", "b"], None),
        (["run", "colect"], None),
    ],
)
def test_a_typo_of_a_command_is_noticed(words: list[str], meant: str | None) -> None:
    assert parse_arguments(words).typo == meant
