"""How columns share the room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.tui.rows.fleet import FLEET_COLUMNS
from gpumon.tui.rows.gpus import GPU_COLUMNS
from gpumon.tui.rows.models import MODEL_COLUMNS
from gpumon.tui.rows.processes import PROCESS_COLUMNS
from gpumon.tui.widgets.columns import Column, Content, Placed, lay_out

#: widest texts of an ordinary fleet
FLEET_FITS = [10, 4, 4, 0, 0, 45, 5, 5, 5]


def names(columns: tuple[Column, ...], placed: tuple[Placed, ...]) -> list[str]:
    return [columns[place.index].name for place in placed]


def width_of(name: str, room: int) -> int:
    placed = lay_out(FLEET_COLUMNS, FLEET_FITS, room)
    return next(p.width for p in placed if FLEET_COLUMNS[p.index].name == name)


def test_everything_is_there_at_120() -> None:
    shown = names(FLEET_COLUMNS, lay_out(FLEET_COLUMNS, FLEET_FITS, 120))
    assert shown == [column.name for column in FLEET_COLUMNS]


def test_watts_and_kv_give_way_at_80_before_tokens() -> None:
    shown = names(FLEET_COLUMNS, lay_out(FLEET_COLUMNS, FLEET_FITS, 80))
    assert shown == ["host", "age", "gpus", "util", "vram", "models", "decode"]


def test_host_and_gpu_figures_stay_at_60() -> None:
    shown = names(FLEET_COLUMNS, lay_out(FLEET_COLUMNS, FLEET_FITS, 60))
    assert shown == ["host", "age", "gpus", "util", "vram", "models"]


def test_a_bar_shrinks_before_a_number_does() -> None:
    assert width_of("vram", 60) < width_of("vram", 120) < width_of("vram", 200)
    figure = next(c for c in FLEET_COLUMNS if c.name == "vram").figure_width
    assert width_of("vram", 60) > figure
    assert width_of("age", 60) == width_of("age", 200) == 4


def test_eight_gpus_have_a_glyph_each_at_80() -> None:
    column = next(c for c in FLEET_COLUMNS if c.name == "util")
    assert width_of("util", 80) - column.figure_width - 1 >= 8


def test_a_short_name_takes_no_more_than_it_needs() -> None:
    columns = (Column("a", "A", Content.NAME), Column("b", "B", Content.COUNT))
    assert [place.width for place in lay_out(columns, [3, 0], 40)] == [3, 4]


@given(
    st.sampled_from([FLEET_COLUMNS, GPU_COLUMNS, MODEL_COLUMNS, PROCESS_COLUMNS]),
    st.integers(20, 300),
    st.lists(st.integers(0, 300), min_size=11, max_size=11),
)
def test_columns_never_overlap_nor_leave_the_screen(
    columns: tuple[Column, ...], room: int, fits: list[int]
) -> None:
    placed = lay_out(columns, fits[: len(columns)], room)
    assert placed
    end = 0
    for place in placed:
        assert place.x > end or place is placed[0]
        assert place.width > 0
        end = place.x + place.width
    if room >= 60:
        assert end <= room - 1
