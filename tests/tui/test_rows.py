"""From a host's view to figures and words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gpumon.snapshot import (
    Cause,
    EngineState,
    GpuState,
    HostState,
    HostStatus,
    HostView,
    Model,
    Nvml,
    NvmlState,
    SlotActivity,
)
from gpumon.tui.rows.cell import Cell, Row
from gpumon.tui.rows.engines import ENGINE_COLUMNS, engine_rows
from gpumon.tui.rows.figures import (
    Freshness,
    add_up,
    decode_rate,
    freshness,
    gpus_age_s,
    gpus_freshness,
    host_freshness,
    kv_capacity,
    kv_used,
)
from gpumon.tui.rows.fleet import FLEET_COLUMNS, fleet_row
from gpumon.tui.rows.gpus import GPU_COLUMNS, gpu_rows, gpus_age_note, no_gpus_text
from gpumon.tui.rows.host_header import host_header
from gpumon.tui.rows.models import MODEL_COLUMNS, model_rows
from gpumon.tui.rows.processes import PROCESS_COLUMNS, no_processes_text, process_rows
from gpumon.tui.rows.strip import strip_lines
from gpumon.tui.rows.troubles import CAUSE_WORDS, severity_of, troubles
from gpumon.tui.tones import Line, Severity, Tone
from gpumon.tui.widgets.columns import Column
from tests.tui import fleet_fixture as made

NOW = made.NOW


def fleet(view: HostView) -> dict[str, Cell]:
    row = fleet_row(view, troubles(view, NOW), NOW)
    return named(row, FLEET_COLUMNS)


def named(row: Row, columns: Sequence[Column]) -> dict[str, Cell]:
    return {column.name: cell for column, cell in zip(columns, row.cells, strict=True)}


def text(line: Line) -> str:
    return "".join(span.text for span in (*line.left, *line.right))


def changed(view: HostView, **fields: object) -> HostView:
    assert view.snapshot is not None
    return replace(view, snapshot=replace(view.snapshot, **fields))  # type: ignore[arg-type]


# --- freshness -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "expected"),
    [(0.0, Freshness.FRESH), (4.0, Freshness.FRESH), (4.1, Freshness.LATE), (6.0, Freshness.LATE),
     (6.1, Freshness.STALE), (None, Freshness.NEVER)],
)  # fmt: skip
def test_two_intervals_dim_and_three_are_stale(age: float | None, expected: Freshness) -> None:
    assert freshness(age, 2.0) is expected


def test_a_hung_driver_makes_gpu_figures_old_but_not_the_host() -> None:
    view = made.hung()
    assert host_freshness(view, NOW) is Freshness.FRESH
    assert gpus_age_s(view, NOW) == 249
    assert gpus_freshness(view, NOW) is Freshness.STALE
    assert gpus_age_note(view, NOW) == "STALE 4 min old"


def test_a_driver_that_is_slow_but_not_called_hung_ages_too() -> None:
    view = changed(made.eight_gpus(), gpus_monotonic_s=4990.0)
    assert gpus_freshness(view, NOW) is Freshness.STALE
    assert all(row.faded for row in gpu_rows(view, NOW))


def test_a_clock_that_went_backwards_gives_no_negative_age() -> None:
    cells = named(fleet_row(made.eight_gpus(), [], NOW - 500), FLEET_COLUMNS)
    assert cells["age"].text == "0s"


# --- sums: unknown is never zero ---------------------------------------------------


def test_sums_tell_what_they_lack() -> None:
    assert add_up([]).value is None
    assert add_up([(None, "lost")]).value is None
    part = add_up([(1.0, "x"), (None, "lost"), (2.0, "y")])
    assert (part.value, part.complete, part.reason) == (3.0, False, "lost")


def test_a_lost_card_makes_the_fleet_row_a_lower_bound_with_its_reason() -> None:
    cells = fleet(made.eight_gpus())
    assert cells["vram"].text == "≥368/560"
    assert cells["vram"].reason == "lost"
    assert cells["power"].text.startswith("≥")
    assert cells["util"].levels == (0.97, 0.91, 0.88, 0.96, 0.74, "X", "?", 0.0)
    assert cells["gpus"].text == "8"


def test_all_unknown_is_not_available_with_the_reason() -> None:
    view = made.split()
    assert view.snapshot is not None
    card = replace(
        view.snapshot.gpus[0], util_percent=None, memory_used_bytes=None, power_w=None,
        unknown={"util_percent": "wddm", "memory_used_bytes": "wddm", "power_w": "unsupported"},
    )  # fmt: skip
    cells = fleet(changed(view, gpus=(card,)))
    assert [cells[name].text for name in ("util", "vram", "power")] == ["n/a"] * 3
    assert [cells[name].reason for name in ("util", "vram", "power")] == [
        "wddm", "wddm", "unsupported",
    ]  # fmt: skip
    assert cells["vram"].sort is None


def test_slices_are_not_counted_beside_their_card() -> None:
    cells = fleet(made.mig())
    assert cells["gpus"].text == "2"
    assert cells["vram"].text == "83/160"
    assert cells["util"].levels == ("?", 0.83)


def test_unified_memory_is_the_systems_and_says_so() -> None:
    view = made.split()
    assert view.snapshot is not None
    card = replace(
        view.snapshot.gpus[0], unified_memory=True, memory_total_bytes=None, memory_used_bytes=None
    )
    view = changed(view, gpus=(card,))
    cell = fleet(view)["vram"]
    assert (cell.lead, cell.text) == ("UMA", "23/64")
    assert named(gpu_rows(view, NOW)[0], GPU_COLUMNS)["vram"].text == "23.0/64.0"


def test_a_host_without_gpu_shows_cpu_and_ram() -> None:
    cells = fleet(made.cpu_only())
    assert (cells["util"].lead, cells["util"].text) == ("cpu", "82 %")
    assert (cells["vram"].lead, cells["vram"].text) == ("RAM", "21/32")
    assert cells["gpus"].text == cells["power"].text == "-"
    assert cells["models"].text == "1  gemma3:4b  100% CPU"


def test_tokens_of_an_idle_slot_are_zero_and_of_a_silent_one_unknown() -> None:
    idle = made.model("m", 1, 1, made.runner(1, made.slot(0, 100, 5)))
    assert decode_rate(idle).value == 0
    busy = made.slot(0, 100, 5, 10.0)
    first = replace(busy, decode_tokens_per_s=None, activity=SlotActivity.DECODE)
    assert decode_rate(made.model("m", 1, 1, made.runner(1, first))).value is None
    some = decode_rate(made.model("m", 1, 1, made.runner(1, first, replace(busy, id=1))))
    assert (some.value, some.complete) == (10.0, False)


def test_why_tokens_are_unknown_comes_from_the_runner_or_the_model() -> None:
    old = made.runner(1, slots=None, unknown={"slots": "engine-too-old"})
    assert kv_used(made.model("m", 1, 1, old)).reason == "engine-too-old"
    none = made.model("m", 1, 1, None, unknown={"runner": "hidden"})
    assert decode_rate(none).reason == "hidden"
    cells = fleet(changed(made.split(), engines=(made.ollama(none),)))
    assert (cells["kv"].text, cells["kv"].reason) == ("n/a", "hidden")


def test_a_unified_cache_is_counted_once() -> None:
    slots = (made.slot(0, 100, 5), made.slot(1, 100, 5))
    assert kv_capacity(made.model("m", 1, 1, made.runner(1, *slots))) == 200
    shared = made.runner(1, *slots, context_total_tokens=None, unified=True)
    assert kv_capacity(made.model("m", 1, 1, shared)) == 100


# --- fleet -------------------------------------------------------------------------


def test_a_down_host_keeps_its_values_dim_with_the_cause() -> None:
    view = made.lost_connection()
    row = fleet_row(view, troubles(view, NOW), NOW)
    assert row.faded
    cells = named(row, FLEET_COLUMNS)
    assert cells["vram"].text == "20/48"
    assert cells["age"].text == "95s"
    assert cells["models"].lead.strip() == "DOWN connection lost"
    assert cells["host"].lead == "X"


def test_a_stale_host_says_so_before_its_models() -> None:
    view = made.eight_gpus()
    row = fleet_row(view, troubles(view, NOW + 40), NOW + 40)
    assert row.faded
    assert named(row, FLEET_COLUMNS)["models"].lead.strip() == "STALE 41s"


def test_a_host_never_seen_shows_its_cause_in_one_text() -> None:
    view = made.key_changed()
    row = fleet_row(view, troubles(view, NOW), NOW)
    said = "".join(span.text for span in row.note)
    assert said.startswith("BLOCKED f fix")
    assert "line 12" in said


@pytest.mark.parametrize(
    ("state", "attempts", "said"),
    [(HostState.CONNECTING, 1, "connecting"), (HostState.CONNECTING, 3, "connecting, try 3"),
     (HostState.DISABLED, 0, "disabled in the configuration")],
)  # fmt: skip
def test_hosts_that_say_nothing_yet(state: HostState, attempts: int, said: str) -> None:
    view = HostView("h", HostStatus(state, attempts=attempts))
    row = fleet_row(view, troubles(view, NOW), NOW)
    assert "".join(span.text for span in row.note) == said
    assert row.cells[0].lead == "?"


def test_stored_values_are_marked_live_and_not_for_a_viewer() -> None:
    view = replace(made.cpu_only(), stored=True, status=HostStatus(HostState.CONNECTING))
    row = fleet_row(view, troubles(view, NOW), NOW)
    assert row.faded
    assert named(row, FLEET_COLUMNS)["models"].lead.strip() == "stored"
    other = replace(view, status=HostStatus(HostState.UP))
    assert not fleet_row(other, [], NOW).faded


def test_more_models_than_room_are_counted() -> None:
    cell = fleet(made.eight_gpus())["models"]
    assert cell.text.startswith("3  llama3.3:70b, qwen3:30b, nomic")
    assert "3  llama3.3:70b, qwen3:30b +1" in cell.shorter


def test_a_host_stays_down_while_the_next_try_is_under_way() -> None:
    view = made.lost_connection()
    trying = replace(view, status=replace(view.status, state=HostState.CONNECTING, retry_at=None))
    (trouble,) = troubles(trying, NOW)
    assert trouble.text.endswith("trying again now")
    assert fleet(trying)["models"].lead.strip() == "DOWN connection lost"
    assert fleet_row(trying, [trouble], NOW).faded


# --- troubles -----------------------------------------------------------------------


def words(view: HostView) -> list[tuple[Severity, str]]:
    return [(trouble.severity, trouble.word) for trouble in troubles(view, NOW)]


def test_each_kind_of_trouble_is_found() -> None:
    assert words(made.eight_gpus()) == [(Severity.CRIT, "GPU 5 lost")]
    assert words(made.split()) == [(Severity.WARN, "on CPU"), (Severity.WARN, "ctx shift")]
    assert words(made.hung())[0] == (Severity.CRIT, "driver hung")
    assert words(made.cpu_only()) == []
    assert words(made.lost_connection()) == [(Severity.CRIT, "connection lost")]
    assert words(made.key_changed()) == [(Severity.CRIT, "host key changed")]
    assert words(made.connecting()) == []


def test_a_cpu_share_is_no_trouble_without_a_gpu_and_one_with() -> None:
    assert words(made.cpu_only()) == []
    half = troubles(made.split(), NOW)[0]
    assert "43%/57% CPU/GPU" in half.text


def test_a_model_the_driver_does_not_see_is_told() -> None:
    view = changed(made.eight_gpus(), processes=made.split().snapshot.processes)  # type: ignore[union-attr]
    assert (Severity.WARN, "not on GPU") in words(view)


@pytest.mark.parametrize("state", list(NvmlState))
def test_each_driver_state_has_words(state: NvmlState) -> None:
    view = changed(made.cpu_only(), nvml=Nvml(state, detail="x\x1b"))
    assert no_gpus_text(view.snapshot)
    for trouble in troubles(view, NOW):
        assert "\x1b" not in trouble.text


@pytest.mark.parametrize("state", list(GpuState))
def test_each_gpu_state_has_a_row(state: GpuState) -> None:
    view = made.split()
    assert view.snapshot is not None
    view = changed(view, gpus=(replace(view.snapshot.gpus[0], state=state),))
    assert named(gpu_rows(view, NOW)[0], GPU_COLUMNS)["state"].text


@pytest.mark.parametrize("state", list(EngineState))
def test_each_engine_state_has_a_row(state: EngineState) -> None:
    view = changed(made.split(), engines=(made.ollama(state=state, detail="why\x07"),))
    row = engine_rows(view, NOW)[0]
    assert named(row, ENGINE_COLUMNS)["state"].text == state.value
    bad = {EngineState.DOWN, EngineState.LOCKED, EngineState.CONFUSED}
    assert bool(words(view)) is (state in bad)


def test_every_cause_has_words() -> None:
    assert set(CAUSE_WORDS) == set(Cause)


def test_severity_is_unknown_while_nothing_is_known() -> None:
    assert severity_of(made.connecting(), []) is Severity.UNKNOWN
    assert severity_of(made.cpu_only(), []) is Severity.OK


def test_the_strip_says_how_many_it_leaves_out_and_wraps_where_there_is_room() -> None:
    found = [t for view in made.fleet() for t in troubles(view, NOW)]
    assert len(strip_lines(found, NOW, most=6, width=120)) == len(found) == 6
    short = strip_lines(found, NOW, most=4, width=120)
    assert len(short) == 4
    assert "and 3 more" in text(short[-1])
    assert "+5 more" in text(strip_lines(found, NOW, most=1, width=120)[0])
    roomy = strip_lines(troubles(made.hung(), NOW), NOW, most=4, width=80)
    assert len(roomy) == 2
    assert "Xid" in text(roomy[1])


# --- host --------------------------------------------------------------------------


def test_gpu_row_of_a_lost_card_gives_a_reason_for_each_figure() -> None:
    row = gpu_rows(made.eight_gpus(), NOW)[5]
    cells = named(row, GPU_COLUMNS)
    assert {cells[name].reason for name in ("util", "vram", "power", "temperature")} == {"lost"}
    assert (cells["state"].text, cells["state"].tone) == ("lost", Tone.CRIT)


def test_slices_have_their_card_as_parent() -> None:
    rows = gpu_rows(made.mig(), NOW)
    assert [row.parent for row in rows] == [None, *[rows[0].key] * 3, None]
    assert "3g.40gb" in rows[1].cells[0].text


def test_the_engines_claim_stands_beside_the_drivers_reading() -> None:
    cells = named(model_rows(made.split(), NOW)[0], MODEL_COLUMNS)
    assert cells["processor"].text == "43%/57% CPU/GPU"
    assert cells["size"].text == "22 GB"
    assert cells["driver"].text == "0: 12.9"
    assert cells["context"].text == "32768 x 2"
    assert cells["until"].text == "4 minutes from now"
    many = named(model_rows(made.eight_gpus(), NOW)[0], MODEL_COLUMNS)["driver"]
    assert many.text == "0: 70.4  1: 70.4  2: 70.4  3: 70.4"
    assert "281.6 on 4" in many.shorter


def test_a_model_of_size_zero_is_unknown() -> None:
    view = changed(made.split(), engines=(made.ollama(made.model("m", 0, 0)),))
    cells = named(model_rows(view, NOW)[0], MODEL_COLUMNS)
    assert cells["processor"].text == cells["size"].text == "n/a"


def test_until_is_told_on_the_hosts_clock() -> None:
    view = changed(made.split(), clock_skew_s=3600.0)
    assert named(model_rows(view, NOW)[0], MODEL_COLUMNS)["until"].text == "Stopping..."


def test_remote_models_have_no_place_here() -> None:
    remote = Model("big:cloud", remote=True)
    cells = named(
        model_rows(changed(made.split(), engines=(made.ollama(remote),)), NOW)[0], MODEL_COLUMNS
    )
    assert cells["processor"].text == "remote"
    assert {cells[name].text for name in ("size", "driver", "kv", "decode", "until")} == {"-"}


def test_processes_name_the_card_and_say_what_is_hidden() -> None:
    rows = process_rows(made.mig(), NOW)
    first = named(rows[0], PROCESS_COLUMNS)
    assert first["gpu"].text == "0 MIG"
    assert (first["sm"].text, first["sm"].reason) == ("n/a", "mig-parent")
    assert len({row.key for row in process_rows(made.eight_gpus(), NOW)}) == 7


def test_no_process_and_no_list_are_different() -> None:
    view = made.split()
    assert no_processes_text(changed(view, processes=())) == "none on any GPU"
    assert no_processes_text(changed(view, processes=None)).startswith("n/a")
    assert no_processes_text(made.cpu_only()).startswith("none")


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_header_holds_everything_at_any_width(width: int) -> None:
    view = made.eight_gpus()
    lines = [text(line) for line in host_header(view, troubles(view, NOW), NOW, width)]
    whole = " ".join(lines)
    for part in ("berlin-1", "gpu1.berlin.example", "Ubuntu 24.04.1", "570.133.20", "EPYC 7763",
                 "120/512", "up 41 d 3 h", "load 3.1 2.9 2.8", "0.3 % CPU"):  # fmt: skip
        assert part in whole
    assert max(map(len, lines)) <= width


def test_the_header_of_a_lost_host_names_cause_and_fix() -> None:
    view = made.key_changed()
    whole = " ".join(text(line) for line in host_header(view, troubles(view, NOW), NOW, 200))
    assert "line 12 of ~/.ssh/known_hosts" in whole
    assert "ssh-keygen -R home.example" in whole
