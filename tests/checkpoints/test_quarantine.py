"""Damaged checkpoints are found, put aside and gone behind, never loaded."""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxtrain.checkpoints import digest
from jaxtrain.checkpoints.digest import digests
from jaxtrain.checkpoints.folder import DAMAGED
from jaxtrain.checkpoints.orbax import METADATA
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import CheckpointConfig
from jaxtrain.errors import CheckpointError, DamagedError
from tests.helpers.damage import files, truncate, zero
from tests.helpers.rows import each_row
from tests.helpers.saved import RUN

PARAMS = {
    "conv": {"kernel": jnp.arange(72.0).reshape(3, 3, 2, 4)},
    "norm": {"scale": jnp.ones(4), "bias": jnp.zeros(4, jnp.bfloat16)},
}


def state_at(step: int) -> dict[str, Any]:
    params = jax.tree.map(lambda x: x + step, PARAMS)
    return {
        "step": jnp.int32(step),
        "params": params,
        "opt_state": optax.adam(0.1).init(params),
    }


ABSTRACT = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state_at(0)
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    with contextlib.closing(
        Checkpoints(folder, CheckpointConfig(), run=RUN)
    ) as checkpoints:
        for step in (1, 2, 3):
            info = {"progress": {"best": 0.25 * step}}
            checkpoints.save(step, state_at(step), info, {"accuracy": 0.5})
    return folder


def restore(folder: Path) -> int:
    """Return the step that is restored, which is exactly what was saved there."""
    with contextlib.closing(
        Checkpoints(folder, CheckpointConfig(), run=RUN)
    ) as checkpoints:
        restored = checkpoints.restore_newest(ABSTRACT)
    assert restored is not None
    state, info = restored
    step = int(state["step"])
    assert info["progress"] == {"best": 0.25 * step}
    for one, other in zip(
        jax.tree.leaves(state), jax.tree.leaves(state_at(step)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    return step


@pytest.mark.slow
def test_flipped_bits_are_never_loaded(saved: Path, tmp_path: Path):
    """50 times: one bit, anywhere in any file of the newest step."""
    rng = np.random.default_rng(0)
    found = 0
    for trial in range(50):
        folder = tmp_path / str(trial)
        shutil.copytree(saved, folder)
        candidates = [p for p in files(folder / "3") if p.stat().st_size]
        path = candidates[rng.integers(len(candidates))]
        data = bytearray(path.read_bytes())
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        path.write_bytes(data)
        step = restore(folder)
        assert step in (2, 3)
        found += step == 2
        shutil.rmtree(folder)
    # Most of the bytes are arrays and JSON; in what is harmless no value lies.
    assert found >= 10


@pytest.mark.slow
@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_every_kind_of_file_may_be_damaged(
    saved: Path, tmp_path: Path, damage: Callable[[Path], None]
):
    for number, name in enumerate(p.relative_to(saved) for p in files(saved / "3")):
        folder = tmp_path / str(number)
        shutil.copytree(saved, folder)
        damage(folder / name)
        assert restore(folder) in (2, 3), name
        shutil.rmtree(folder)


def test_damaged_steps_are_put_aside_and_named(
    saved: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    folder = tmp_path / "checkpoints"
    shutil.copytree(saved, folder)
    for step in (2, 3):
        zero(next(folder.glob(f"{step}/state/params.conv.kernel/c/0/0/0/0")))
    assert restore(folder) == 1
    assert "could not read step 3" in caplog.text
    assert "params.conv.kernel" in caplog.text
    assert sorted(p.name for p in folder.iterdir() if p.name != "1") == [
        f"{DAMAGED}-2",
        f"{DAMAGED}-3",
    ]
    zero(next(folder.glob("1/state/params.conv.kernel/c/0/0/0/0")))
    with pytest.raises(CheckpointError, match=r"all checkpoints in .* are damaged"):
        restore(folder)
    # Nor does the next start begin afresh.
    with pytest.raises(CheckpointError, match=r"all checkpoints in .* are damaged"):
        restore(folder)


def test_an_unknown_key_in_the_metadata_of_orbax_is_no_damage(
    saved: Path, tmp_path: Path
):
    """As a version of Orbax that writes one more key would leave it."""
    folder = tmp_path / "checkpoints"
    shutil.copytree(saved, folder)
    changed = set()
    for path in files(folder / "3"):
        with contextlib.suppress(ValueError):
            content = json.loads(path.read_bytes())
            if path.name != "zarr.json":  # TensorStore's, which refuses unknown keys.
                path.write_text(json.dumps({**content, "of_the_next_version": {}}))
                changed.add(path.name)
    assert changed == {METADATA, "_METADATA"}
    with contextlib.closing(
        Checkpoints(folder, CheckpointConfig(), run=RUN, read_only=True)
    ) as checkpoints:
        assert checkpoints.read(3)[1]["progress"] == {"best": 0.75}
    assert restore(folder) == 3


def test_metadata_that_lacks_what_is_needed_is_damage(
    saved: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    folder = tmp_path / "checkpoints"
    shutil.copytree(saved, folder)
    path = folder / "3" / METADATA
    path.write_text(path.read_text().replace("custom_metadata", "custom_metadatb"))
    (folder / "2" / METADATA).write_text("{")
    # Who only looks leaves them where they are.
    with contextlib.closing(
        Checkpoints(folder, CheckpointConfig(), run=RUN, read_only=True)
    ) as checkpoints:
        for step in (2, 3):
            with pytest.raises(DamagedError, match=f"could not read step {step}"):
                checkpoints.read(step)
        assert checkpoints.steps() == [1, 2, 3]
    assert restore(folder) == 1
    assert "'custom_metadata'" in caplog.text
    assert {p.name for p in folder.iterdir()} == {"1", f"{DAMAGED}-2", f"{DAMAGED}-3"}


def digest_of(x: np.ndarray) -> int:
    """Compute a digest from its definition, in whole numbers of Python."""
    size, total = min(x.dtype.itemsize, 4), 0
    data = x.tobytes()
    for place, start in enumerate(range(0, len(data), size)):
        mixed = (place + 1) * 2654435769 % 2**32
        bits = int.from_bytes(data[start : start + size], "little")
        total += bits * (mixed ^ (mixed >> 15) | 1)
    return total % 2**32


@each_row(
    "dtype", ["float32", "bfloat16", "float16", "int32", "bool", "float64", "int64"]
)
@each_row("shape", [(), (0,), (5,), (3, 4, 2)])
def test_digest_is_what_is_defined(shape: tuple[int, ...], dtype: str):
    x = 9 * np.random.default_rng(0).normal(size=shape)
    x = np.asarray(x).astype(jnp.dtype(dtype))
    assert digests({"x": x}) == {"x": digest_of(x)}


def test_digest_of_many_elements(monkeypatch: pytest.MonkeyPatch):
    """They are summed some at a time, and the last are fewer."""
    monkeypatch.setattr(digest, "_BLOCK", 64)
    x = np.random.default_rng(0).normal(size=(10, 20)).astype(np.float32)
    assert digests({"x": x}) == {"x": digest_of(x)}
