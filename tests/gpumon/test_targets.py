"""Hosts as people type them."""

import pytest

from gpumon.config_file import parse_config
from gpumon.inventory import Inventory
from gpumon.targets import TargetError, choose_hosts, parse_target


@pytest.mark.parametrize(
    ("text", "user", "address", "port"),
    [
        ("gpu1", None, "gpu1", None),
        ("me@gpu1", "me", "gpu1", None),
        ("gpu1:2222", None, "gpu1", 2222),
        ("me@gpu1:2222", "me", "gpu1", 2222),
        ("me@[fe80::1%eth0]:22", "me", "fe80::1%eth0", 22),
        ("[::1]", None, "::1", None),
        ("2001:db8::7", None, "2001:db8::7", None),
        ("me@2001:db8::7", "me", "2001:db8::7", None),
        ("localhost:2222", None, "localhost", 2222),
        ("me@localhost", "me", "localhost", None),
        ("gpu_1.x+y", None, "gpu_1.x+y", None),
        ("localhost", None, None, None),
        ("local", None, None, None),
    ],
)
def test_a_target(text: str, user: str | None, address: str | None, port: int | None) -> None:
    host = parse_target(text)
    assert (host.name, host.user, host.address, host.port) == (text, user, address, port)


@pytest.mark.parametrize(
    "text",
    [
        *("", "a b", "-oProxyCommand=x", "me@-x", "-x@h", "h:0", "h:70000", "h:x", "h:", "@h"),
        *("a@b@c", "h:22:33", "[h]:22", "[::1", "[::1]22", "[::1]:", "h\x1b[2J", "$(x)", "h;x"),
        *("h\n", "h\u202e", "h:٣٣"),
    ],
)
def test_no_target(text: str) -> None:
    with pytest.raises(TargetError) as caught:
        parse_target(text)
    assert caught.value.fix


def test_this_machine_comes_first_and_only_once() -> None:
    assert choose_hosts(Inventory(), (), None).hosts[0].is_local
    here = parse_config('[hosts.me]\naddress = "local"\n[hosts.a]\n')
    assert [host.name for host in choose_hosts(here, (), None).hosts] == ["me", "a"]
    away = parse_config("[defaults]\nlocal = false\n[hosts.a]\n")
    assert [host.name for host in choose_hosts(away, (), None).hosts] == ["a"]


def test_a_name_of_the_config_goes_before_an_alias() -> None:
    inventory = parse_config('[hosts.a]\naddress = "10.0.0.1"\nenabled = false\n')
    (host,) = choose_hosts(inventory, ("a", "a"), 5.0).hosts
    assert (host.address, host.enabled, host.interval_s) == ("10.0.0.1", True, 5.0)


def test_an_ad_hoc_host_has_the_configs_interval() -> None:
    inventory = parse_config('[defaults]\ninterval_s = 7\nuser = "ops"\n')
    (host,) = choose_hosts(inventory, ("b",), None).hosts
    # ssh_config may name another user for it.
    assert (host.interval_s, host.user) == (7.0, None)


def test_this_machine_gets_a_name_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "a")
    text = '[hosts.a]\n[hosts.localhost]\nuser = "me"\n'
    names = [host.name for host in choose_hosts(parse_config(text), (), None).hosts]
    assert names == ["this machine", "a", "localhost"]
