"""Views survive JSON, and JSON from elsewhere never breaks a view."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.codec import CodecError, decode_view, encode_view
from gpumon.snapshot import Gpu, HostSnapshot, HostView
from tests.gpumon.store.conftest import make_view

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


@given(st.builds(HostView, st.text()))
def test_any_plain_view_survives(view: HostView) -> None:
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
