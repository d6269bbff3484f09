"""Which process serves which model: only by evidence."""

from __future__ import annotations

import pytest

from gpumon.collectors.engines.model_join import ModelKey, join_runners
from gpumon.snapshot import Model, Runner


def model(name: str, context: int | None = 4096, digest: str | None = "d", **more: bool) -> Model:
    return Model(name, digest=digest, size_bytes=9, context_tokens=context, **more)


def runner(pid: int, blob: str, context: int | None = 4096, slots: int = 1) -> Runner:
    total = None if context is None else context * slots
    path = f"/blobs/{blob}"
    return Runner(pid, pid * 10, model_path=path, context_total_tokens=total, parallel_slots=slots)


def joined(
    models: list[Model], runners: list[Runner], blobs: dict[ModelKey, str]
) -> list[int | str]:
    """Pid, or why there is none, of each model; a loading one as ``+pid``."""
    made = join_runners(models, runners, blobs, loading=())
    return [
        (f"+{one.runner.pid}" if one.loading else one.runner.pid)
        if one.runner is not None
        else one.unknown["runner"]
        for one in made
    ]


A, B = ("a", "d"), ("b", "d")


@pytest.mark.parametrize(
    ("models", "runners", "blobs", "result"),
    [
        # the file settles it, whatever the order and though contexts are the same
        (
            [model("a"), model("b")],
            [runner(1, "x"), runner(2, "y")],
            {A: "y", B: "x"},
            [2, 1],
        ),
        # one file, loaded with two contexts
        (
            [model("a", 8192)],
            [runner(1, "x", 4096), runner(2, "x", 8192)],
            {A: "x"},
            [2, "+1"],
        ),
        ([model("a")], [runner(1, "x"), runner(2, "x")], {A: "x"}, ["ambiguous"]),
        # the list is older than the process: the file is still the same
        ([model("a", 4096)], [runner(1, "x", 8192)], {A: "x"}, [1]),
        ([model("a")], [runner(1, "y")], {A: "x"}, ["no-process", "+1"]),
        ([model("a")], [], {A: "x"}, ["no-process"]),
        ([model("a")], [], {}, ["no-process"]),
        # not told (yet): one and one of the same context
        ([model("a")], [runner(1, "x")], {}, [1]),
        ([model("a")], [runner(1, "x", slots=4)], {}, [1]),
        ([model("a")], [runner(1, "x", None)], {}, [1]),
        ([model("a", 2048)], [runner(1, "x")], {A: ""}, ["ambiguous"]),
        # not told yet: no guess between several
        ([model("a"), model("b", 8)], [runner(1, "x"), runner(2, "y", 8)], {}, ["not-read"] * 2),
        # never told: the contexts tell them apart, or do not
        (
            [model("a"), model("b", 8)],
            [runner(1, "x", 8), runner(2, "y")],
            {A: "", B: ""},
            [2, 1],
        ),
        (
            [model("a"), model("b")],
            [runner(1, "x"), runner(2, "y")],
            {A: "", B: ""},
            ["ambiguous"] * 2,
        ),
        # one is told, the other is what is left of its context
        (
            [model("a"), model("b")],
            [runner(1, "x"), runner(2, "y")],
            {A: "x", B: ""},
            [1, 2],
        ),
        # a model in a cloud has no process here
        ([model("a", remote=True), model("b")], [runner(1, "x")], {}, ["remote", 1]),
    ],
)
def test_joined(
    models: list[Model],
    runners: list[Runner],
    blobs: dict[ModelKey, str],
    result: list[int | str],
) -> None:
    if "remote" in result:
        made = join_runners(models, runners, blobs, loading=())
        assert [one.runner and one.runner.pid for one in made] == [None, 1]
        assert "runner" not in made[0].unknown
        return
    assert joined(models, runners, blobs) == result


def test_an_mlx_runner_is_told_by_name() -> None:
    models = [model("a:latest", None), model("hf.co/x/b:4bit", None)]
    runners = [
        Runner(1, 10, model_path="hf.co/x/b:4bit"),
        Runner(2, 20, model_path="a"),
    ]
    assert joined(models, runners, {}) == [2, 1]


def test_a_loading_model_has_the_name_its_file_is_known_by() -> None:
    blob = "sha256-0123456789abcdef0123"
    one = runner(1, blob)
    known = {("old", "d"): blob, ("other", "d"): "y"}
    (named,) = join_runners([], [one], known, loading=[1])
    assert (named.name, named.loading) == ("old", True)
    assert named.unknown["size_bytes"] == "not-read"
    two = {**known, ("alias", "d"): blob}
    (unnamed,) = join_runners([], [one], two, loading=[1])
    assert unnamed.name == "sha256-0123456789ab..."


def test_a_process_that_may_serve_a_listed_model_is_not_shown_twice() -> None:
    models, runners = [model("a"), model("b")], [runner(1, "x"), runner(2, "y"), runner(3, "z")]
    made = join_runners(models, runners, {}, loading=[3])
    assert [one.runner and one.runner.pid for one in made] == [None, None, 3]


def test_a_model_no_longer_listed_is_stopping_as_long_as_its_process_lives() -> None:
    before = join_runners([model("a")], [runner(1, "x")], {A: "x"}, loading=())
    for _ in range(2):
        before = join_runners([], [runner(1, "x")], {A: "x"}, (), before)
        (stopping,) = before
        assert (stopping.name, stopping.loading, stopping.expires_at) == ("a", False, 0.0)
        assert stopping.size_bytes == 9
    assert join_runners([], [], {A: "x"}, (), before) == ()
