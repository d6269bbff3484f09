"""Views survive JSON, and JSON from elsewhere never breaks a view."""

import dataclasses
import json
import types
import typing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpumon.codec import CodecError, decode_view, encode_view
from gpumon.snapshot import Engine, Gpu, GpuProcess, HostSnapshot, HostView, System
from tests.gpumon.store.conftest import make_view

RECORDS = (Gpu, GpuProcess, Engine, System)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def test_a_view_survives_json() -> None:
    view = make_view(1000.5)
    assert decode_view(json.loads(json.dumps(encode_view(view), allow_nan=False))) == view


def any_of(wanted: Any) -> st.SearchStrategy[Any]:
    """Values of a record's field, of every type that the records use."""
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*(any_of(part) for part in parts))
    if origin is tuple:
        return st.lists(any_of(parts[0]), max_size=2).map(tuple)
    if origin is not None:
        return st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2)
    if dataclasses.is_dataclass(wanted):
        return any_record(wanted)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        type(None): st.none(),
        bool: st.booleans(),
        int: st.integers(),
        float: st.floats(allow_nan=False, allow_infinity=False),
        str: st.text(max_size=8),
    }
    return plain[wanted] if wanted in plain else st.sampled_from(wanted)


def any_record(record: Any) -> st.SearchStrategy[Any]:
    """Records with any few of their fields given."""
    hints = typing.get_type_hints(record)
    needed = {
        field.name: any_of(hints[field.name])
        for field in dataclasses.fields(record)
        if field.default is field.default_factory is dataclasses.MISSING
    }
    rest = [name for name in hints if name not in needed]

    @st.composite
    def build(draw: Any) -> Any:
        # As Hypothesis' own optional keys, but without a strategy per absent field.
        chosen = draw(st.lists(st.sampled_from(rest), max_size=4, unique=True)) if rest else []
        given = {name: draw(one) for name, one in needed.items()}
        return record(**given, **{name: draw(any_of(hints[name])) for name in chosen})

    return build()


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_any_view_survives(data: Any) -> None:
    snapshot = data.draw(any_record(HostSnapshot))
    view = dataclasses.replace(data.draw(any_record(HostView)), snapshot=snapshot)
    for sparse in (False, True):
        document = json.loads(json.dumps(encode_view(view, sparse=sparse)))
        assert decode_view(document) == view


def test_only_the_sparse_form_leaves_defaults_out() -> None:
    view = HostView("a", snapshot=HostSnapshot("a", 0, 0.0, 0.0, gpus=(Gpu("u", xid=0),)))
    whole, sparse = encode_view(view), encode_view(view, sparse=True)
    assert set(whole["snapshot"]["gpus"][0]) == {f.name for f in dataclasses.fields(Gpu)}
    assert whole["snapshot"]["gpus"][0]["power_w"] is None
    assert sparse["snapshot"]["gpus"] == [{"uuid": "u", "xid": 0}]
    assert set(sparse) == {"host", "snapshot"}


@given(st.sampled_from(RECORDS), st.data())
@settings(deadline=None)
def test_any_record_survives_inside_a_view(record: type, data: Any) -> None:
    one = data.draw(any_record(record))
    holders = {
        Gpu: lambda: HostSnapshot("a", 0, 0.0, 0.0, gpus=(one,)),
        GpuProcess: lambda: HostSnapshot("a", 0, 0.0, 0.0, processes=(one,)),
        Engine: lambda: HostSnapshot("a", 0, 0.0, 0.0, engines=(one,)),
        System: lambda: HostSnapshot("a", 0, 0.0, 0.0, system=one),
    }
    view = HostView("a", snapshot=holders[record]())
    assert decode_view(json.loads(json.dumps(encode_view(view)))) == view


def test_what_json_can_not_hold_is_unknown() -> None:
    snapshot = HostSnapshot("a", 0, 0.0, 0.0, gpus=(Gpu("u", util_percent=float("nan")),))
    encoded = encode_view(HostView("a", snapshot=snapshot))
    assert encoded["snapshot"]["gpus"][0]["util_percent"] is None
    json.dumps(encoded, allow_nan=False)


def test_keys_of_a_newer_gpumon_are_left_out_and_missing_ones_take_their_default() -> None:
    encoded = encode_view(make_view(1000.5))
    encoded["tomorrow"] = 1
    encoded["snapshot"]["system"]["tomorrow"] = {"x": 1}
    del encoded["snapshot"]["nvml"]
    view = decode_view(encoded)
    assert view.snapshot is not None
    assert view.snapshot.system.cpu_percent == 5.25
    assert view.snapshot.nvml.state == "starting"


def test_an_unknown_state_of_a_newer_gpumon_takes_the_default() -> None:
    encoded = encode_view(make_view(1000.5))
    encoded["status"]["state"] = "dreaming"
    assert decode_view(encoded).status.state == "connecting"


@given(junk)
def test_junk_is_refused(document: Any) -> None:
    with pytest.raises(CodecError):
        decode_view(document)


@given(st.sampled_from(["status", "snapshot", "address", "simulated"]), junk)
def test_junk_in_a_field_is_taken_for_missing(name: str, value: Any) -> None:
    encoded = encode_view(make_view(1000.5)) | {name: value}
    view = decode_view(encoded)
    assert view.host == "a"
    json.dumps(encode_view(view), allow_nan=False)
