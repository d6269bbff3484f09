"""A probe's line, good, bad and hostile."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import asdict, fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.collectors.wire import (
    MAX_LINE_BYTES,
    Answer,
    WatchedProcess,
    WireError,
    read_answers,
    read_bye,
    read_hello,
    read_line,
    read_sample,
    read_watched,
)
from gpumon.snapshot import (
    REASONS,
    Gpu,
    GpuProcess,
    GpuState,
    HostFacts,
    HostSnapshot,
    NvmlState,
    ProbeCost,
    System,
)

FACTS = HostFacts(hostname="gpu1")
GPU: dict[str, Any] = {
    "uuid": "GPU-1", "state": "ok", "index": 0, "pci_id": "0000:17:00.0", "name": "NVIDIA H100",
    "memory_total_bytes": 85520809984, "memory_used_bytes": 11665408000, "util_percent": 97.0,
    "temperature_c": 55, "power_w": 412.5, "performance_state": 0, "fan_percent": None,
    "throttle_reasons": ["sw-power-cap"], "persistence_mode": True, "vendor": "nvidia",
    "unknown": {"fan_percent": "unsupported"},
}  # fmt: skip
PROCESS: dict[str, Any] = {
    "pid": 4711, "gpu_uuid": "GPU-1", "start_ticks": 99, "kind": "compute", "memory_bytes": 5,
    "user": "ollama", "name": "llama-server", "command": "llama-server --port 1",
    "cpu_percent": 350.5, "unknown": {},
}  # fmt: skip
SAMPLE: dict[str, Any] = {
    "t": "sample", "seq": 7, "mono": 1234.5, "wall": 1_800_000_003.0,
    "system": {"cpu_percent": 12.5, "memory_total_bytes": 100, "memory_available_bytes": 40,
               "load_1": 0.5, "disks": [{"path": "/", "total_bytes": 10, "free_bytes": 3}],
               "unknown": {"swap_total_bytes": "unreadable"}},
    "nvml": {"state": "ok", "driver_version": "610.57.04", "init_s": 0.2},
    "gpus": [GPU], "gpus_mono": 1234.0, "processes": [PROCESS],
    "watched": [{"pid": 4711, "ppid": 1, "start_ticks": 99, "user": "ollama",
                 "comm": "llama-server", "cmd": ["llama-server", "--port", "1"], "cgroup": "/x",
                 "cpu_percent": 1.5, "rss_bytes": 7, "ports": [11434], "env": {"OLLAMA_HOST": "x"},
                 "ancestors": [{"pid": 1, "comm": "init", "cmd": ["/sbin/init"]}]}],
    "http": [{"id": "ps", "mono": 1234.1, "ms": 1.5, "status": 200, "body": "{}", "error": None,
              "truncated": False, "same": False}],
    "probe": {"cpu_percent": 0.2, "rss_bytes": 16000000, "sample_ms": 4.5},
}  # fmt: skip


def read(obj: object, **fields: Any) -> HostSnapshot:
    given = {
        "host": "h",
        "received_at": 1_800_000_000.0,
        "facts": FACTS,
        "interval_s": 2.0,
        **fields,
    }
    return read_sample(obj, **given)


def with_gpu(**changes: Any) -> Gpu:
    return read({**SAMPLE, "gpus": [{**GPU, **changes}]}).gpus[0]


def test_a_good_sample_is_read_whole() -> None:
    got = read(read_line(json.dumps(SAMPLE).encode()))
    assert (got.host, got.seq, got.received_at, got.monotonic_s) == ("h", 7, 1.8e9, 1234.5)
    assert got.clock_skew_s == 3.0
    assert got.facts is FACTS
    assert got.source == "python"
    assert got.system.cpu_percent == 12.5
    assert got.system.memory_used_bytes == 60
    assert got.system.disks[0].free_bytes == 3
    assert got.system.unknown == {"swap_total_bytes": "unreadable"}
    assert got.nvml.state is NvmlState.OK
    assert got.nvml.driver_version == "610.57.04"
    gpu = got.gpus[0]
    assert gpu.temperature_c == 55.0
    assert gpu.throttle_reasons == ("sw-power-cap",)
    assert gpu.unknown == {"fan_percent": "unsupported"}
    assert got.gpus_monotonic_s == 1234.0
    assert got.processes is not None
    assert got.processes[0].cpu_percent == 350.5
    assert got.probe == ProbeCost(0.2, 16000000, 4.5)
    (watched,) = read_watched(SAMPLE)
    assert watched.cmd == ("llama-server", "--port", "1")
    assert watched.ancestors[0].cmd == ("/sbin/init",)
    assert read_answers(SAMPLE) == (Answer("ps", 1234.1, 1.5, 200, "{}", None, False, False),)


def test_hello_and_bye() -> None:
    hello = {"t": "hello", "v": 1, "hostname": "h", "cpu_count": 8, "os": 5, "pid": 1}
    assert read_hello(hello) == HostFacts(hostname="h", cpu_count=8)
    assert read_bye({"t": "bye", "reason": "no heartbeat"}) == "no heartbeat"
    with pytest.raises(WireError, match="version 2"):
        read_hello({**hello, "v": 2})


@pytest.mark.parametrize(
    "obj",
    [None, 5, [], "x", {}, {"t": "hello"}, {"t": "sample"}, {**SAMPLE, "seq": -1},
     {**SAMPLE, "seq": "7"}, {**SAMPLE, "seq": True}, {**SAMPLE, "seq": 1.5},
     {**SAMPLE, "mono": None}, {**SAMPLE, "mono": math.nan}, {**SAMPLE, "mono": -5},
     {**SAMPLE, "t": ["sample"]}],
)  # fmt: skip
def test_what_is_no_sample_is_refused(obj: object) -> None:
    with pytest.raises(WireError):
        read(obj)


@pytest.mark.parametrize("reader", [read_hello, read_bye])
@pytest.mark.parametrize("obj", [None, 5, [], {}, {"t": "sample"}])
def test_what_is_no_greeting_is_refused(reader: Any, obj: object) -> None:
    with pytest.raises(WireError):
        reader(obj)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe",
        b"Welcome to Ubuntu",
        b"{",
        b"[]",
        b"5",
        b'"x"',
        b"null",
        b'{"t":"sample"',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"9" * 10_000,
        b'{"x":"' + b"y" * (10 * 1024 * 1024) + b'"}',
        b"x" * (MAX_LINE_BYTES + 1),
    ],
    ids=lambda line: f"{line[:12]!r}x{len(line)}",
)
def test_a_line_that_is_no_object_is_refused_without_quoting_it(line: bytes) -> None:
    with pytest.raises(WireError) as caught:
        read_line(line)
    assert len(str(caught.value)) < 100
    assert "yyyy" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memory_total_bytes", -1), ("memory_total_bytes", "85520809984"),
        ("memory_total_bytes", 2**64 - 1), ("memory_total_bytes", 1.5), ("memory_total_bytes", 0),
        ("memory_used_bytes", 85520809985), ("util_percent", 101), ("util_percent", -1),
        ("util_percent", math.nan), ("util_percent", True), ("temperature_c", 4294967295),
        ("temperature_c", -256), ("power_w", 4.29e6), ("power_w", math.inf),
        ("power_w", 10**400), ("fan_percent", 1000), ("performance_state", 32), ("pcie_width", 0),
        ("memory_bus_bits", 0), ("name", 5), ("name", ["x"]), ("throttle_reasons", "none"),
        ("persistence_mode", 1), ("persistence_mode", "Enabled"), ("index", -1), ("energy_j", -1),
        ("sm_clock_mhz", 10**9),
    ],
)  # fmt: skip
def test_a_bad_field_is_unknown_and_the_rest_stays(field: str, value: Any) -> None:
    gpu = with_gpu(**{field: value})
    assert getattr(gpu, field) is None
    assert gpu.unknown[field] == "nonsense"
    assert gpu.state is GpuState.OK
    for other in ("memory_total_bytes", "util_percent", "name", "power_w"):
        if other != field:
            assert getattr(gpu, other) is not None


def test_values_at_their_bounds_are_good() -> None:
    gpu = with_gpu(
        util_percent=100, fan_percent=110, temperature_c=-20, index=0, memory_used_bytes=0
    )
    assert (gpu.util_percent, gpu.fan_percent, gpu.temperature_c) == (100.0, 110.0, -20.0)
    assert (gpu.index, gpu.memory_used_bytes) == (0, 0)
    assert type(with_gpu(index=3.0).index) is int


def test_reasons_are_known_ones_of_known_fields_without_a_value() -> None:
    gpu = with_gpu(
        fan_percent=None,
        unknown={
            "fan_percent": "no-permission",
            "util_percent": "lost",
            "nonfield": "lost",
            "xid": "because",
            "energy_j": 5,
        },
    )
    assert gpu.unknown == {"fan_percent": "no-permission"}


@pytest.mark.parametrize("unknown", [None, 5, "x", [], ["fan_percent"]])
def test_no_reasons_at_all(unknown: object) -> None:
    assert with_gpu(unknown=unknown).unknown == {}


@pytest.mark.parametrize(
    "row",
    [
        None,
        5,
        "x",
        [],
        {},
        {"uuid": 5},
        {"uuid": ""},
        {**GPU, "state": "fine"},
        {**GPU, "state": 7},
    ],
)
def test_a_bad_gpu_row_is_a_card_in_error_beside_the_good_ones(row: object) -> None:
    gpus = read({**SAMPLE, "gpus": [GPU, row]}).gpus
    assert gpus[0].state is GpuState.OK
    assert gpus[1].state is GpuState.ERROR
    assert gpus[1].detail
    assert gpus[1].uuid


def test_a_card_without_uuid_is_known_by_its_pci_id() -> None:
    gpus = read({**SAMPLE, "gpus": [{"pci_id": "0000:01:00.0", "state": "no-driver"}]}).gpus
    assert (gpus[0].uuid, gpus[0].state) == ("0000:01:00.0", GpuState.NO_DRIVER)


def test_two_cards_never_share_a_key() -> None:
    gpus = read({**SAMPLE, "gpus": [GPU, GPU, GPU]}).gpus
    assert len({gpu.uuid for gpu in gpus}) == 3
    assert [gpu.state for gpu in gpus] == [GpuState.OK, GpuState.ERROR, GpuState.ERROR]


def test_unified_memory_keeps_a_zero_total_out_but_not_as_nonsense() -> None:
    gpu = with_gpu(unified_memory=True, memory_total_bytes=None, memory_used_bytes=5)
    assert gpu.memory_used_bytes == 5
    assert gpu.unified_memory is True
    assert with_gpu(unified_memory="yes").unified_memory is False


@pytest.mark.parametrize("nvml", [None, 5, [], {}, {"state": "great"}, {"state": ["ok"]}])
def test_a_driver_state_that_makes_no_sense_is_an_error(nvml: object) -> None:
    got = read({**SAMPLE, "nvml": nvml}).nvml
    assert got.state is NvmlState.ERROR
    assert got.detail


def test_processes_none_empty_and_odd() -> None:
    assert read({**SAMPLE, "processes": None}).processes is None
    assert read({**SAMPLE, "processes": "x"}).processes is None
    assert read({**SAMPLE, "processes": []}).processes == ()
    odd = [None, 5, {}, {"pid": 0, "gpu_uuid": "a"}, {"pid": "5", "gpu_uuid": "a"}, {"pid": 5},
           {"pid": 5, "gpu_uuid": 7}, PROCESS, PROCESS, {**PROCESS, "memory_bytes": 2**64 - 1,
                                                         "gpu_uuid": "GPU-2"}]  # fmt: skip
    got = read({**SAMPLE, "processes": odd}).processes
    assert got is not None
    assert [(one.pid, one.gpu_uuid) for one in got] == [(4711, "GPU-1"), (4711, "GPU-2")]
    assert got[1].memory_bytes is None
    assert got[1].unknown == {"memory_bytes": "nonsense"}


def test_the_machines_cpu_share_is_of_the_whole() -> None:
    system = read({**SAMPLE, "system": {"cpu_percent": 350.0}}).system
    assert system.cpu_percent is None
    assert system.unknown == {"cpu_percent": "nonsense"}
    assert read({**SAMPLE, "system": None}).system == System()


def test_parts_are_not_larger_than_their_whole() -> None:
    system = read({**SAMPLE, "system": {
        "memory_total_bytes": 5, "memory_available_bytes": 6,
        "swap_total_bytes": 0, "swap_used_bytes": 1,
        "disks": [{"path": "/", "total_bytes": 1, "free_bytes": 2}, {"path": ""}, 5, {"path": 7}],
    }}).system  # fmt: skip
    assert system.memory_available_bytes is None
    assert system.swap_used_bytes is None
    assert [(disk.path, disk.free_bytes) for disk in system.disks] == [("/", None)]


def test_a_reading_from_the_future_is_as_old_as_the_sample() -> None:
    assert read({**SAMPLE, "gpus_mono": 9e9}).gpus_monotonic_s == 1234.5
    assert read({**SAMPLE, "gpus_mono": "x"}).gpus_monotonic_s is None
    assert read({**SAMPLE, "wall": math.nan}).clock_skew_s is None


def test_text_is_raw_but_can_be_encoded() -> None:
    name = "\x1b[31m\u202eevil\x00\ud800" + "x" * 5000
    got = with_gpu(name=name).name
    assert got is not None
    assert got.startswith("\x1b[31m\u202eevil\x00\ufffd")
    assert len(got) == 512
    got.encode("utf-8")


def test_watched_and_answers_leave_out_what_has_no_key() -> None:
    assert read_watched({"watched": [None, 5, {}, {"pid": 0}, {"pid": True}]}) == ()
    assert read_watched(None) == ()
    assert read_watched({"watched": {}}) == ()
    (bare,) = read_watched({"watched": [{"pid": 5, "ports": None, "env": None, "cmd": "x"}]})
    assert bare == WatchedProcess(5, env_readable=False)
    (odd,) = read_watched(
        {
            "watched": [
                {"pid": 5, "ports": [0, 80, "x", 70000], "env": {"A": 5, "B": "b"}, "cmd": ["a", 5]}
            ]
        }
    )
    assert (odd.ports, odd.env, odd.cmd) == ((80,), {"B": "b"}, ("a",))
    assert read_answers({"http": [None, {}, {"id": "x"}, {"mono": 5}, {"id": 5, "mono": 5}]}) == ()
    (answer,) = read_answers(
        {"http": [{"id": "x", "mono": 5, "status": "200", "ms": -1, "body": 5}]}
    )
    assert answer == Answer("x", 5.0, 0.0, None, None, None)


# --- fuzz ---------------------------------------------------------------------------------
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from([2**64 - 1, -(2**63), 10**400, "ok", "lost", "nonsense", "GPU-1", ""])
)  # fmt: skip
JUNK = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
NAMES = {
    "system": [one.name for one in fields(System)],
    "gpus": [one.name for one in fields(Gpu)],
    "processes": [one.name for one in fields(GpuProcess)],
    "watched": [one.name for one in fields(WatchedProcess)],
    "http": ["id", "mono", "ms", "status", "body", "error", "truncated", "same"],
    "nvml": ["state", "detail", "hung_s"],
    "probe": [one.name for one in fields(ProbeCost)],
}


def check(value: Any) -> None:
    """Every value is of a kind that the rest of gpumon can add up and store."""
    if is_dataclass(value):
        for one in fields(value):
            check(getattr(value, one.name))
        if hasattr(value, "unknown"):
            assert set(value.unknown.values()) <= set(REASONS)
            assert all(getattr(value, name) in (None, ()) for name in value.unknown)
    elif isinstance(value, tuple):
        for one in value:
            check(one)
    elif isinstance(value, float):
        assert math.isfinite(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        assert abs(value) <= 2**63
    elif isinstance(value, str):
        value.encode("utf-8")


def check_all(obj: object) -> None:
    try:
        got = read(obj)
    except WireError:
        pass
    else:
        check(got)
        assert len({gpu.uuid for gpu in got.gpus}) == len(got.gpus)
        asdict(got)
    check(read_watched(obj))
    check(read_answers(obj))
    for reader in (read_hello, read_bye):
        with contextlib.suppress(WireError):
            reader(obj)


@given(JUNK)
@settings(max_examples=300, deadline=None)
def test_fuzz_junk_is_a_wire_error_or_nothing(obj: object) -> None:
    check_all(obj)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_fuzz_junk_in_any_field(data: st.DataObject) -> None:
    obj = {**SAMPLE}
    for name in data.draw(st.sets(st.sampled_from(sorted(obj)), max_size=3)):
        obj[name] = data.draw(JUNK)
    for part in data.draw(st.sets(st.sampled_from(sorted(NAMES)), min_size=1, max_size=3)):
        row = data.draw(st.dictionaries(st.sampled_from(NAMES[part]), JUNK, max_size=5))
        old = SAMPLE[part]
        obj[part] = (
            [{**old[0], **row}, row, data.draw(JUNK)] if isinstance(old, list) else {**old, **row}
        )
    check_all(obj)


@given(
    st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
)
@settings(max_examples=300, deadline=None)
def test_fuzz_any_bytes_are_a_line_or_an_error(line: bytes) -> None:
    with contextlib.suppress(WireError):
        read_line(line)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_fuzz_a_cut_or_bitten_line(data: st.DataObject) -> None:
    line = bytearray(json.dumps(SAMPLE).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    cut = (
        bytes(line[: data.draw(st.integers(0, len(line)))])
        if data.draw(st.booleans())
        else bytes(line)
    )
    with contextlib.suppress(WireError):
        check_all(read_line(cut))
