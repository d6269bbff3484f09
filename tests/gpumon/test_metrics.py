"""Every metric reads its record, keeps its precision, and is declared once."""

from dataclasses import replace

import pytest

from gpumon.metrics import METRICS, TABLES, Metric, metric, metrics_of
from gpumon.snapshot import Gpu, GpuProcess, HostView, Model
from tests.gpumon.store.conftest import make_view

EMPTY = {"gpu": Gpu("u"), "host": HostView("a"), "model": Model("m"), "process": GpuProcess(1, "u")}


@pytest.mark.parametrize("one", METRICS, ids=lambda one: f"{one.table}.{one.name}")
def test_a_metric_of_an_empty_record_is_unknown(one: Metric) -> None:
    encoded = one.encode(EMPTY[one.table])
    if one.kind == "state" and one.name == "state":
        assert one.decode(encoded) in one.states
    else:
        assert encoded is None
        assert one.decode(None) is None


def test_each_is_declared_once() -> None:
    names = [(one.table, one.name) for one in METRICS]
    assert len(set(names)) == len(names)
    assert {one.table for one in METRICS} == set(TABLES)
    assert all(one.text for one in METRICS)


@pytest.mark.parametrize(
    "one", [one for one in METRICS if one.unit not in ("", "tokens")], ids=lambda one: one.name
)
def test_the_name_carries_the_unit(one: Metric) -> None:
    words = {
        "%": "percent",
        "B": "bytes",
        "W": "w",
        "°C": "c",
        "MHz": "mhz",
        "J": "j",
        "s": "s",
        "B/s": "per_s",
        "tokens/s": "per_s",
    }
    assert one.name.endswith(words[one.unit])


def test_a_value_keeps_its_decimals() -> None:
    gpu = Gpu("u", util_percent=12.34, power_w=70.1254, memory_used_bytes=2**40 + 1)
    read = {name: metric("gpu", name) for name in ("util_percent", "power_w", "memory_used_bytes")}
    assert [one.decode(one.encode(gpu)) for one in read.values()] == [12.3, 70.125, 2**40 + 1]


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 2**63, 1e300])
def test_what_no_column_can_hold_is_unknown(value: float) -> None:
    assert metric("gpu", "power_w").encode(Gpu("u", power_w=value)) is None
    assert metric("gpu", "xid").encode(Gpu("u", xid=value)) is None  # type: ignore[arg-type]


def test_0_is_not_unknown() -> None:
    one = metric("gpu", "util_percent")
    assert one.decode(one.encode(Gpu("u", util_percent=0.0))) == 0.0


def test_a_host_without_a_snapshot_has_only_its_state() -> None:
    values = {one.name: one.encode(HostView("a")) for one in metrics_of("host")}
    assert {name for name, value in values.items() if value is not None} == {"state"}


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    view = make_view(1.0)
    assert view.snapshot is not None
    model = view.snapshot.engines[0].models[0]
    assert metric("model", "kv_used_tokens").encode(model) == 100
    assert model.runner is not None
    assert model.runner.slots is not None
    slots = (*model.runner.slots, replace(model.runner.slots[0], id=1, used_tokens=None))
    partly = replace(model, runner=replace(model.runner, slots=slots))
    assert metric("model", "kv_used_tokens").encode(partly) is None
