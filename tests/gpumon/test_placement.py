"""``ollama ps`` texts at their rounding edges, and the claim beside the driver's reading."""

import pytest

from gpumon.placement import place, processor_text, shown_processor, size_text, until_text
from gpumon.snapshot import Gpu, GpuProcess, Model, Runner

MIB = 2**20


@pytest.mark.parametrize(
    ("size", "vram", "text"),
    [
        (100, 0, "100% CPU"),
        (0, 0, "100% CPU"),
        (100, 100, "100% GPU"),
        (100, 101, "Unknown"),
        (0, 5, "Unknown"),
        (1000, 996, "0%/100% CPU/GPU"),
        (1000, 995, "1%/99% CPU/GPU"),
        (1000, 4, "100%/0% CPU/GPU"),
        (1000, 5, "100%/0% CPU/GPU"),
        (1000, 6, "99%/1% CPU/GPU"),
        (200, 101, "50%/50% CPU/GPU"),
        (200, 99, "51%/49% CPU/GPU"),
        (200, 197, "2%/98% CPU/GPU"),
        (2000, 1011, "49%/51% CPU/GPU"),
        (2000, 1010, "50%/50% CPU/GPU"),
        (2**53, 2**53 - 1, "0%/100% CPU/GPU"),
        (2**53, 1, "100%/0% CPU/GPU"),
        # 49.5 and 48.5 percent on the CPU: halves go up, not to the even neighbour
        (1000, 505, "50%/50% CPU/GPU"),
        (1000, 515, "49%/51% CPU/GPU"),
        (1_678_935_210, 913_687_182, "46%/54% CPU/GPU"),
    ],
)
def test_processor(size: int, vram: int, text: str) -> None:
    assert processor_text(size, vram) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (1500, "1.5 KB"),
        (8_011_119, "8.0 MB"),
        (8_000_000, "8 MB"),
        (9_960_000, "10.0 MB"),
        (10_999_999, "10 MB"),
        (999_999_999, "999 MB"),
        (1_678_935_210, "1.7 GB"),
        (23_900_000_000, "23 GB"),
        (1_200_000_000_000, "1.2 TB"),
    ],
)
def test_size(size: int, text: str) -> None:
    assert size_text(size) == text


H, D = 3600.0, 86400.0


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (-0.001, "Stopping..."),
        (0.0, "Less than a second from now"),
        (0.999, "Less than a second from now"),
        (1.0, "1 second from now"),
        (1.999, "1 second from now"),
        (2.0, "2 seconds from now"),
        (59.9, "59 seconds from now"),
        (60.0, "About a minute from now"),
        (119.9, "About a minute from now"),
        (120.0, "2 minutes from now"),
        (299.9, "4 minutes from now"),
        (3599.9, "59 minutes from now"),
        (H, "About an hour from now"),
        (1.49 * H, "About an hour from now"),
        (1.5 * H, "2 hours from now"),
        (2.5 * H, "3 hours from now"),
        (47.4 * H, "47 hours from now"),
        (47.5 * H - 1.0, "47 hours from now"),
        (47.5 * H, "2 days from now"),
        (71.5 * H - 1.0, "2 days from now"),
        (71.5 * H, "3 days from now"),
        (335.4 * H, "13 days from now"),
        (335.5 * H, "2 weeks from now"),
        (21 * D - 1801.0, "2 weeks from now"),
        (21 * D - 1800.0, "3 weeks from now"),
        (59 * D, "8 weeks from now"),
        (60 * D, "2 months from now"),
        (729 * D, "24 months from now"),
        # 730 days are two years; the last half hour before is what Ollama 0.33 really says
        (730 * D - 1801.0, "24 months from now"),
        (730 * D - 1800.0, "1 years from now"),
        (730 * D, "2 years from now"),
        (3 * 365 * D - 1.0, "2 years from now"),
        (20.9 * 365 * D, "20 years from now"),
        (21 * 365 * D - 3600.0, "20 years from now"),
        (21 * 365 * D - 1.0, "20 years from now"),
        (21 * 365 * D, "Forever"),
        (292 * 365 * D, "Forever"),
    ],
)
def test_until(left: float, text: str) -> None:
    # A second of the epoch with all decimals exact, so that the edges are exact too.
    assert until_text(1024.0 + left, 1024.0) == text


def test_a_loaded_model_of_size_0_is_unknown() -> None:
    assert shown_processor(Model("m", size_bytes=None, vram_bytes=None)) == "n/a"
    assert shown_processor(Model("m", size_bytes=0, vram_bytes=0)) == "n/a"


def gpu(uuid: str, index: int, used: int | None = 8000 * MIB) -> Gpu:
    return Gpu(uuid, index=index, memory_used_bytes=used, memory_total_bytes=24000 * MIB)


RUNNER = Runner(pid=7, start_ticks=70)
MODEL = Model("m", size_bytes=6000 * MIB, vram_bytes=5000 * MIB, runner=RUNNER)


def test_two_cards_add_up() -> None:
    processes = (
        GpuProcess(7, "a", start_ticks=70, memory_bytes=3000 * MIB),
        GpuProcess(7, "b", start_ticks=70, memory_bytes=2500 * MIB),
        GpuProcess(8, "b", start_ticks=80, memory_bytes=999 * MIB),
    )
    placed = place(MODEL, (gpu("a", 0), gpu("b", 1)), processes)
    assert placed.driver_bytes == {"a": 3000 * MIB, "b": 2500 * MIB}
    assert placed.driver_total_bytes == 5500 * MIB
    assert placed.difference_bytes == 500 * MIB
    assert placed.claimed_host_bytes == 1000 * MIB
    assert placed.gpu_indexes == (0, 1)
    assert not placed.silent_fallback


def test_a_pid_used_again_is_another_process() -> None:
    placed = place(MODEL, (gpu("a", 0),), (GpuProcess(7, "a", start_ticks=71, memory_bytes=1),))
    assert placed.driver_bytes == {}
    assert placed.silent_fallback


def test_a_claim_of_vram_that_no_card_shows_is_a_silent_fallback() -> None:
    placed = place(MODEL, (gpu("a", 0, used=3 * MIB),), ())
    assert placed.driver_bytes == {}
    assert placed.silent_fallback


def test_a_process_on_two_slices_of_a_card() -> None:
    card = Gpu("a", index=0, mig_mode=True, memory_used_bytes=8000 * MIB)
    slices = [Gpu(f"a-{n}", index=0, parent_uuid="a", mig_profile="1g.10gb") for n in (1, 2)]
    processes = (
        GpuProcess(7, "a-1", start_ticks=70, memory_bytes=3000 * MIB),
        GpuProcess(7, "a-2", start_ticks=70, memory_bytes=1900 * MIB),
    )
    placed = place(MODEL, (card, *slices), processes)
    assert placed.driver_bytes == {"a-1": 3000 * MIB, "a-2": 1900 * MIB}
    assert placed.difference_bytes == -100 * MIB


def test_several_runners_on_one_card_are_told_apart() -> None:
    other = Model("n", size_bytes=9 * MIB, vram_bytes=9 * MIB, runner=Runner(pid=8, start_ticks=80))
    processes = tuple(
        GpuProcess(pid, "a", start_ticks=pid * 10, memory_bytes=pid * MIB) for pid in (7, 8, 9)
    )
    assert place(MODEL, (gpu("a", 0),), processes).driver_bytes == {"a": 7 * MIB}
    assert place(other, (gpu("a", 0),), processes).driver_bytes == {"a": 8 * MIB}


def test_one_card_of_two_that_the_driver_hides_makes_the_sum_unknown() -> None:
    processes = (
        GpuProcess(7, "a", start_ticks=70, memory_bytes=3000 * MIB),
        GpuProcess(7, "b", start_ticks=70, unknown={"memory_bytes": "no-permission"}),
    )
    placed = place(MODEL, (gpu("a", 0), gpu("b", 1)), processes)
    assert (placed.driver_bytes, placed.unmeasured) == ({"a": 3000 * MIB}, ("b",))
    assert placed.driver_total_bytes is None
    assert placed.gpu_indexes == (0, 1)


def test_pids_of_another_namespace_prove_nothing() -> None:
    strange = GpuProcess(7, "a", memory_bytes=9 * MIB, unknown={"start_ticks": "not-visible"})
    for processes in ((strange,), (strange, GpuProcess(8, "a", start_ticks=80, memory_bytes=1))):
        placed = place(MODEL, (gpu("a", 0),), processes)
        assert (placed.driver_bytes, placed.reason) == (None, "not-visible")
        assert not placed.silent_fallback


def test_a_claim_of_size_0_is_no_claim() -> None:
    zero = Model("m", size_bytes=0, vram_bytes=0, runner=RUNNER)
    placed = place(
        zero, (gpu("a", 0),), (GpuProcess(7, "a", start_ticks=70, memory_bytes=5 * MIB),)
    )
    assert (placed.claimed_vram_bytes, placed.claimed_host_bytes) == (None, None)
    assert (placed.driver_total_bytes, placed.difference_bytes) == (5 * MIB, None)


def test_an_empty_list_beside_a_full_card_proves_nothing() -> None:
    placed = place(MODEL, (gpu("a", 0),), ())
    assert placed.driver_bytes is None
    assert placed.reason == "not-visible"
    assert not placed.silent_fallback


def test_what_the_driver_hides_is_not_0() -> None:
    placed = place(MODEL, (gpu("a", 0),), (GpuProcess(7, "a", start_ticks=70),))
    assert placed.unmeasured == ("a",)
    assert placed.driver_total_bytes is None
    assert placed.difference_bytes is None


def test_no_list_at_all() -> None:
    assert place(MODEL, (gpu("a", 0),), None).reason == "not-visible"
    assert place(Model("m"), (gpu("a", 0),), ()).reason == "no-reading"
