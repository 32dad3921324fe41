"""What a save does beside the training, and what the training waits for."""

import errno
import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.checkpoints import orbax, saving, snapshot, store
from jaxtrain.errors import BadNumbersError, CheckpointError, StartAgainError
from tests.helpers.saved import ABSTRACT, STATE, opened
from tests.helpers.waiting import PATIENCE, wait_until


class Writer:
    """Writes nothing before it is let go; at an error, nothing at all."""

    def __init__(self, write: Callable[..., None]):
        self.started, self.released = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self._write = write

    def __call__(self, folder: Path, state: Any, info: dict[str, Any], joint: Any):
        self.started.set()
        assert self.released.wait(PATIENCE)
        if self.error is not None:
            folder.mkdir()
            raise self.error
        self._write(folder, state, info, joint)


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    writer = Writer(orbax._write)
    monkeypatch.setattr(orbax, "_write", writer)
    yield writer
    writer.released.set()


def assert_saved(folder: Path, step: int) -> None:
    with opened(folder) as saved:
        state, _ = saved.restore(step, ABSTRACT)
    jax.tree.map(np.testing.assert_array_equal, state, STATE)


def test_training_goes_on_before_anything_is_written(tmp_path: Path, writer: Writer):
    with opened(tmp_path) as saved:
        saved.save(1, STATE, {}, None)
        assert not saved.committed()
        assert writer.started.wait(PATIENCE)
        assert list(tmp_path.iterdir()) == []
        writer.released.set()
        assert saved.committed(timeout=PATIENCE)
        assert not saved.committed()
    assert_saved(tmp_path, 1)


def test_what_a_step_writes_over_is_saved_as_it_was(tmp_path: Path, writer: Writer):
    """The step gets the memory of the very state that is being saved."""
    state = jax.tree.map(lambda x: x.copy(), STATE)
    step = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)
    places = [x.unsafe_buffer_pointer() for x in jax.tree.leaves(state)]
    with opened(tmp_path) as saved:
        saved.save(1, state, {}, None)
        after = jax.block_until_ready(step(state))
        assert all(x.is_deleted() for x in jax.tree.leaves(state))
        assert [x.unsafe_buffer_pointer() for x in jax.tree.leaves(after)] == places
        writer.released.set()
    assert_saved(tmp_path, 1)


def test_a_save_takes_one_copy_of_the_state_and_frees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Orbax makes none of its own, and it is gone when the step is read back."""
    state = {"x": jnp.zeros((4, 2**19)), "y": jnp.zeros(2**21)}
    size = sum(x.nbytes for x in state.values())
    while_read: list[int] = []
    load = store.load

    def load_and_look(folder: Path) -> Any:
        while_read.append(tracemalloc.get_traced_memory()[0])
        return load(folder)

    monkeypatch.setattr(store, "load", load_and_look)
    with opened(tmp_path) as saved:
        tracemalloc.start()
        try:
            saved.save(1, state, {}, None)
            saved.wait()
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    # The rest are the objects of Python, and the blocks of the digests.
    assert size <= most < 1.4 * size
    assert len(while_read) == 1 and while_read[0] < 0.4 * size


def test_the_next_save_waits_for_the_one_before(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
):
    """And copies its state only then: there is one copy at a time."""
    events: list[str] = []
    take, write, wait = snapshot.take, saving.write, store.wait

    def note(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            result = function(*args)
            events.append(what)
            return result

        return call

    def release_and_wait(*args: Any) -> Any:
        events.append("waited for")
        writer.released.set()
        return wait(*args)

    monkeypatch.setattr(snapshot, "take", note("copied", take))
    monkeypatch.setattr(saving, "write", note("written", write))
    with opened(tmp_path) as saved:
        monkeypatch.setattr(store, "wait", release_and_wait)
        saved.save(1, STATE, {}, None)
        saved.save(2, STATE, {}, None)
        assert saved.steps() == [1, 2]
    once = ["copied", "waited for", "written"]
    assert events == [*once, *once]


def test_a_failed_save_is_told_once_where_it_is_looked_for(
    tmp_path: Path, writer: Writer
):
    writer.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    told = "could not save step 1: No space left on device"
    with opened(tmp_path) as saved:
        saved.save(1, STATE, {}, None)
        assert not saved.committed()
        writer.released.set()
        with pytest.raises(CheckpointError, match=told):
            saved.committed(timeout=PATIENCE)
        assert list(tmp_path.iterdir()) == []
        assert not saved.committed()
        saved.save(1, STATE, {}, None)
        # One that nobody has looked for fails the next one, which is not begun.
        with pytest.raises(CheckpointError, match=told):
            saved.save(2, STATE, {}, None)
        writer.error = None
        saved.save(3, STATE, {}, None)
        assert saved.steps() == [3]


def test_what_ends_a_run_is_told_and_not_that_a_save_failed(
    tmp_path: Path, writer: Writer, caplog: pytest.LogCaptureFixture
):
    """It has an exit code of its own; the save is a warning."""
    writer.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    writer.released.set()
    with (
        pytest.raises(StartAgainError, match="a worker died"),
        opened(tmp_path) as saved,
    ):
        saved.save(1, STATE, {}, None)
        raise StartAgainError("a worker died")
    assert "could not save step 1: No space left on device" in caplog.text


def test_the_newest_checkpoint_is_named_though_a_save_failed(
    tmp_path: Path, writer: Writer
):
    writer.released.set()
    with opened(tmp_path) as saved:
        saved.save(1, STATE, {}, None)
        saved.wait()
        writer.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        saved.save(2, STATE, {}, None)
        assert saved.newest() == str(tmp_path / "1")


def test_a_save_without_memory_is_a_save_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(state: Any) -> list[str]:
        raise MemoryError("no memory")

    monkeypatch.setattr(saving, "not_finite", full)
    with opened(tmp_path) as saved:
        saved.save(1, STATE, {}, None)
        with pytest.raises(
            CheckpointError, match=r"could not save step 1: .*no memory"
        ):
            saved.wait()


def test_a_state_that_is_not_finite_is_never_given_to_the_writer(
    tmp_path: Path, writer: Writer
):
    with opened(tmp_path) as saved:
        bad = {**STATE, "half": {"x": jnp.full(3, jnp.nan, jnp.bfloat16)}}
        saved.save(1, bad, {}, None)
        with pytest.raises(BadNumbersError, match=r"step 1: half/x .* is not finite"):
            wait_until(saved.committed)
    assert not writer.started.is_set()
    assert list(tmp_path.iterdir()) == []
