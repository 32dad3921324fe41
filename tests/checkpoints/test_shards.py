"""Shards of a checkpoint: their digests, how they are read, who waits for whom."""

import errno
import itertools
import queue
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.checkpoints import saving
from jaxtrain.checkpoints.digest import ArrayDigest, combine, digest, digests
from jaxtrain.checkpoints.joint import JointSave, PartError
from jaxtrain.checkpoints.orbax import load, load_shards, root_cause, write
from jaxtrain.errors import BadNumbersError
from jaxtrain.json_files.run_id import RunId
from jaxtrain.processes import messages
from jaxtrain.processes.cluster import Cluster
from jaxtrain.trees import by_path
from tests.helpers.rows import each_row
from tests.helpers.saved import ABSTRACT, STATE
from tests.helpers.waiting import PATIENCE


@each_row("dtype", [np.float32, np.float64, jnp.bfloat16, np.int8, bool])
def test_digests_of_shards_add_up(dtype: Any):
    """Along every dim, and of more elements than are summed at a time."""
    x = np.random.default_rng(0).normal(size=(6, 40, 4, 300)) * 9
    x = x.astype(dtype)
    for cuts in ((2, 1, 1, 1), (1, 1, 1, 3), (3, 2, 1, 4), (1, 1, 1, 1)):
        sizes = [n // cut for n, cut in zip(x.shape, cuts, strict=True)]
        total = 0
        for at in itertools.product(*(range(cut) for cut in cuts)):
            starts = tuple(i * size for i, size in zip(at, sizes, strict=True))
            part = tuple(
                slice(start, start + size)
                for start, size in zip(starts, sizes, strict=True)
            )
            total += digest(np.ascontiguousarray(x[part]), starts, x.shape)
        assert total % 2**32 == digest(x)


def test_shards_that_processes_read_differently_are_no_array():
    same = {"a": {"0": 1, "4": 2}}
    assert combine([same, {"a": {"4": 2, "8": 3}}]) == {"a": 6}
    assert combine([same, {"a": {"4": 7}}]) == {"a": -1}


def test_shards_are_read_as_they_were_saved(tmp_path: Path):
    """From a checkpoint of one process, onto the shardings of today."""
    state = jax.tree.map(np.asarray, STATE)
    write(tmp_path / "1", state, {})
    read = load_shards(tmp_path / "1", ABSTRACT)
    assert jax.tree.structure(read) == jax.tree.structure(STATE)
    for a, b in zip(jax.tree.leaves(read), jax.tree.leaves(STATE), strict=True):
        assert a.sharding == b.sharding and a.dtype == b.dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    reduced = by_path(load(tmp_path / "1", ArrayDigest.of))
    assert {path: x.digest for path, x in reduced.items()} == digests(state)


class Post:
    """Messages between threads that stand for processes."""

    def __init__(self) -> None:
        self._boxes: dict[str, queue.Queue[Any]] = defaultdict(queue.Queue)

    def send(self, key: str, value: Any) -> None:
        self._boxes[key].put(value)

    def receive(self, key: str, given_up: Any) -> Any:
        return self._boxes[key].get(timeout=PATIENCE)


@pytest.fixture
def joints(monkeypatch: pytest.MonkeyPatch) -> list[JointSave]:
    """The same save in each of three processes."""
    post = Post()
    monkeypatch.setattr(messages, "send", post.send)
    monkeypatch.setattr(messages, "receive", post.receive)
    joints = [JointSave(Cluster(index, 3)) for index in range(3)]
    for joint in joints:
        joint._name = "save"
    return joints


def start_others(joints: list[JointSave], folder: Path, *states: Any) -> Any:
    threads = [
        threading.Thread(target=saving.contribute, args=(folder, state, joint))
        for state, joint in zip(states, joints[1:], strict=True)
    ]
    for thread in threads:
        thread.start()

    def end() -> None:
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    return end


def lead(folder: Path, joint: JointSave) -> None:
    state = {"x": np.ones(3, np.float32)}
    saving.lead(folder, state, {}, None, RunId("0" * 32, "config.json"), joint)


def test_an_error_of_another_process_leaves_nothing(
    tmp_path: Path, joints: list[JointSave], monkeypatch: pytest.MonkeyPatch
):
    """Process 0 waits for all of them, and removes what they wrote."""
    written = []

    def write_shards(folder: Path, state: Any) -> None:
        (folder / "state" / "shard").write_text("")
        written.append(state)
        if "bad" in state:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(saving, "write_shards", write_shards)
    end = start_others(joints, tmp_path / "7", {"bad": np.ones(2)}, {"y": np.ones(2)})
    with pytest.raises(PartError) as error:
        lead(tmp_path / "7", joints[0])
    end()
    assert root_cause(error.value) == "process 1: Disk quota exceeded"
    assert error.value.errno == errno.EDQUOT
    assert len(written) == 2 and not (tmp_path / "7").exists()


def test_numbers_of_another_process_that_are_not_finite_are_not_written(
    tmp_path: Path, joints: list[JointSave], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delattr(saving, "write_shards")
    nan = np.full(2, np.nan)
    end = start_others(joints, tmp_path / "7", {"y": np.ones(2)}, {"z": nan})
    with pytest.raises(
        BadNumbersError, match="step 7: z in the train state is not finite"
    ):
        lead(tmp_path / "7", joints[0])
    end()


def test_a_folder_that_cannot_be_made_lets_no_process_write(
    tmp_path: Path, joints: list[JointSave], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delattr(saving, "write_shards")
    folder = tmp_path / "gone" / "checkpoints" / "7"
    end = start_others(joints, folder, {}, {})
    with pytest.raises(FileNotFoundError):
        lead(folder, joints[0])
    end()
