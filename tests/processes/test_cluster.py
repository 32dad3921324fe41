"""Agreement of processes, with what JAX would bring from the others."""

import os
from typing import Any

import pytest
from jax.experimental import multihost_utils

from jaxtrain.data.defects import Defects
from jaxtrain.data.image_source import Unreadable
from jaxtrain.errors import StartAgainError, UserError
from jaxtrain.processes import cluster
from jaxtrain.processes.cluster import Cluster


class Ended(BaseException):
    """The end of the process, with its exit code."""


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The first of two processes; the other one says nothing and is there."""

    def end(*args: Any) -> None:
        raise Ended(args[-1])

    monkeypatch.setattr(Cluster, "_exchange", lambda _, message, __: [message] * 2)
    monkeypatch.setattr(Cluster, "_end", end)
    monkeypatch.setattr(os, "_exit", end)
    return Cluster(0, 2, 30.0)


def test_one_process_needs_no_network():
    alone = cluster.current()
    alone.barrier()
    assert alone.gather({"x": [1]}) == [{"x": [1]}]
    assert not alone.should_stop(1)
    alone.leave(2, "wrong")


def test_failure_of_another_ends_this_one(
    two: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert two.gather(3) == [3, 3]
    told = {"code": 2, "reason": "no such file"}
    monkeypatch.setattr(Cluster, "_exchange", lambda _, message, __: [message, told])
    with pytest.raises(Ended, match="2"):
        two.barrier()
    line = "error: stopping because process 1 ended: no such file\n"
    assert capsys.readouterr().err == line


def test_failure_is_told_once(two: Cluster, monkeypatch: pytest.MonkeyPatch):
    assert not two.confirm_lost("a bug")
    monkeypatch.delattr(Cluster, "_exchange")
    with pytest.raises(Ended, match="1"):
        two.leave(1, "a bug")


def test_lost_process_is_no_reason_to_wait(
    two: Cluster, monkeypatch: pytest.MonkeyPatch
):
    waits = []

    def fail(_: Cluster, message: Any, seconds: float) -> None:
        waits.append(seconds)
        raise RuntimeError("DEADLINE_EXCEEDED: Barrier timed out.\nMore")

    monkeypatch.setattr(Cluster, "_exchange", fail)
    with pytest.raises(
        StartAgainError, match=r"lost connection .*\(DEADLINE_EXCEEDED: Barr"
    ):
        two.gather(1)
    with pytest.raises(Ended, match="75"):
        two.leave(75, "lost")
    assert waits == [cluster.WAIT_SECONDS]


def test_stop_holds_once_it_is_agreed(two: Cluster, monkeypatch: pytest.MonkeyPatch):
    reached = "reached_preemption_sync_point"
    monkeypatch.setattr(multihost_utils, reached, lambda step: step == 3)
    stops = [two.should_stop(step) for step in range(1, 6)]
    assert stops == [False, False, True, True, True]


def test_unreadable_images_of_several_processes_are_counted_where_they_meet(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(cluster, "_current", Cluster(0, 2))
    defects = Defects("train", 100, 0.01)
    bad = [Unreadable(i, f"image {i}", "cut off") for i in range(2)]
    defects.add(bad[:1])
    assert defects.take_unshared() == bad[:1]
    defects.add(bad, shared=True)
    assert not defects.take_unshared() and defects.take_new() == bad
    with pytest.raises(UserError, match="2 of the 100 images"):
        defects.check()
