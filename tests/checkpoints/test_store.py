"""Saving and restoring: what is kept, what is compared, what a failure does."""

import errno
import resource
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.checkpoints import manifest, orbax
from jaxtrain.checkpoints.orbax import METADATA
from jaxtrain.checkpoints.remedies import is_of_space, remedy_of
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.errors import CheckpointError, DamagedError, UserError
from jaxtrain.tasks.metrics import Goal
from tests.helpers.rows import each_row
from tests.helpers.saved import ABSTRACT, STATE, opened


def left(saved: Checkpoints) -> list[int]:
    """Return the steps that are there at the end of a run."""
    saved.finish()
    return saved.steps()


def test_state_and_json_come_back_as_they_were(tmp_path: Path):
    info = {"progress": {"losses": [0.1, 1e-30], "best": None}, "name": "x"}
    with opened(tmp_path) as saved:
        saved.save(7, STATE, info, {"accuracy": 0.5})
    with opened(tmp_path) as saved:
        assert saved.steps() == [7]
        state, read = saved.restore(7, ABSTRACT)
    assert {k: read[k] for k in info} == info
    assert jax.tree.structure(state) == jax.tree.structure(STATE)
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(STATE), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_best_loss_is_the_lowest(tmp_path: Path):
    with opened(
        tmp_path, keep=1, keep_best=1, best=Goal("loss", higher=False)
    ) as saved:
        for step, loss in [(1, 2.0), (2, 0.5), (3, 0.7)]:
            saved.save(step, STATE, {}, {"loss": loss})
        assert left(saved) == [2, 3]


def changed(path: list[str], new: Any) -> dict[str, Any]:
    tree = {**ABSTRACT}
    inner = tree
    for name in path[:-1]:
        inner[name] = {**inner[name]}
        inner = inner[name]
    if new is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return tree


@each_row(
    ("abstract", "line"),
    [
        (
            changed(
                ["params", "conv", "kernel"],
                jax.ShapeDtypeStruct((3, 3, 2, 8), jnp.float32),
            ),
            "params/conv/kernel: float32[3, 3, 2, 4] in the checkpoint, "
            "float32[3, 3, 2, 8] in the model",
        ),
        (
            # Orbax alone would cast without a word.
            changed(["half", "x"], jax.ShapeDtypeStruct((3,), jnp.float32)),
            "half/x: bfloat16[3] in the checkpoint, float32[3] in the model",
        ),
        (
            changed(["params", "head"], jax.ShapeDtypeStruct((2,), jnp.float32)),
            "missing in the checkpoint: params/head float32[2]",
        ),
        (
            changed(["params", "conv"], None),
            "unknown to the model: params/conv/kernel float32[3, 3, 2, 4]",
        ),
    ],
)
def test_other_paths_shapes_and_dtypes_are_refused(
    tmp_path: Path, abstract: dict[str, Any], line: str
):
    with opened(tmp_path) as saved:
        saved.save(1, STATE, {}, None)
        saved.wait()
        with pytest.raises(UserError) as error:
            saved.restore(1, abstract)
    assert line in str(error.value)


def test_other_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with opened(tmp_path) as saved:
        with monkeypatch.context() as patch:
            patch.setattr(manifest, "FORMAT", 99)
            saved.save(1, STATE, {}, None)
            saved.wait()
        with pytest.raises(UserError, match="format 99"):
            saved.restore(1, ABSTRACT)


def test_a_manifest_that_is_nested_deep_is_damaged(tmp_path: Path):
    with opened(tmp_path) as saved:
        saved.save(1, STATE, {}, None)
        saved.wait()
        path = saved.directory / "1" / METADATA
        text = path.read_text().rstrip()
        deep = '{"custom_metadata": {"x": ' + "[" * 900 + "]" * 900 + "}, "
        path.write_text(deep + text.removeprefix("{").replace("custom_metadata", "old"))
        with pytest.raises(DamagedError, match="nested more than 64 levels deep"):
            saved.info(1)


def test_an_uncommitted_folder_is_not_a_checkpoint(tmp_path: Path):
    with opened(tmp_path) as saved:
        saved.save(1, STATE, {}, None)
    (tmp_path / "9").mkdir()
    with opened(tmp_path) as saved:
        assert saved.steps() == [1]


def test_failed_save_is_told(tmp_path: Path):
    """The system refuses files above 4 KiB, as a full disk or a quota would."""
    big = {"x": jax.random.normal(jax.random.key(0), (100_000,))}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(tmp_path) as saved:
        # Compiles what it needs, which the limit would keep out of JAX's cache.
        saved.save(1, big, {}, None)
        saved.wait()
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
            with pytest.raises(CheckpointError, match=r"save step 5.*too large"):
                saved.save(5, big, {}, None)
                saved.wait()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with opened(tmp_path) as saved:
        assert saved.steps() == [1]


@each_row(
    ("cause", "named"),
    [
        (OSError(errno.ENOSPC, "No space"), "free disk space"),
        (OSError(errno.EMFILE, "Too many"), "raise the limit of open files, "),
        (OSError(errno.EACCES, "Denied"), "change the permissions"),
        (OSError(errno.ENODEV, "No such device"), "repair the disk"),
        (DamagedError("step 5 does not match the saved digest"), "repair the disk"),
        (
            TypeError("got an unexpected keyword"),
            "install a version of orbax-checkpoint",
        ),
    ],
)
def test_a_save_that_failed_names_its_own_remedy(cause: Exception, named: str):
    error = CheckpointError("could not save step 5")
    error.__cause__ = cause
    told = remedy_of(error)
    assert named in told
    space = isinstance(cause, OSError) and cause.errno == errno.ENOSPC
    assert ("space" in told) == is_of_space(error) == space


def test_a_step_that_a_limit_kept_from_being_read_is_not_damaged():
    for error in (OSError(errno.EMFILE, "Too many open files"), MemoryError()):
        with pytest.raises(type(error)), orbax.reading(5):
            raise error
