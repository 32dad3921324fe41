"""Manifest: JSON values that are saved with a state, to verify its arrays.

The manifest contains the format version; dtype, shape and digest of every array; values
of the run, such as its config; and a checksum of the manifest. Orbax does not detect
flipped bits, and silently casts dtypes.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxtrain.checkpoints.orbax import read_info, reading, replace_info
from jaxtrain.errors import DamagedError, UserError
from jaxtrain.json_files.run_id import RunId
from jaxtrain.trees import by_path

FORMAT = 4
# Advice for a checkpoint of another run.
RETURN = (
    "one of the two files was copied from another run; restore the original file of "
    "this run"
)


def make(
    state: Any,
    sums: dict[str, int],
    info: dict[str, Any],
    metrics: dict[str, Any] | None,
    run: RunId,
) -> dict[str, Any]:
    """Create the manifest of a checkpoint.

    Args:
      state: Arrays of the checkpoint.
      sums: Digests of the arrays, by path.
      info: JSON values of the run: config, versions, progress.
      metrics: Validation metrics; None if the step was not evaluated.
      run: Run that saves the checkpoint.
    """
    arrays = _describe(state, sums)
    found = {"format": FORMAT, "arrays": arrays, "metrics": metrics, **info}
    return _with_checksum(run.stamp(found))


def best_step(manifest: Mapping[str, Any], steps: Sequence[int]) -> int:
    """Step of the best checkpoint by validation metric, or else of the newest.

    Without a validation split, or with `checkpoint.keep_best = 0`, no best checkpoint
    is retained. All commands, and the final test of a run, use the returned step.

    Args:
      manifest: Manifest of the newest checkpoint.
      steps: Steps of the committed checkpoints in ascending order; at least one.
    """
    best = manifest["progress"]["best"]
    return best["step"] if best is not None and best["step"] in steps else steps[-1]


def amend(directory: Path, step: int, changes: dict[str, Any]) -> None:
    """Replace values in the manifest of a committed checkpoint.

    Args:
      directory: Directory of the checkpoints.
      step: Step of the checkpoint.
      changes: New values by key of the manifest.

    Raises:
      DamagedError: The manifest is unreadable or damaged.
    """
    replace_info(
        directory / str(step), _with_checksum({**read(directory, step), **changes})
    )


def read(directory: Path, step: int, run: RunId | None = None) -> dict[str, Any]:
    """Read the manifest of a checkpoint.

    Args:
      directory: Directory of the checkpoints.
      step: Step of the checkpoint.
      run: Expected run of the checkpoint. None accepts any run.

    Raises:
      DamagedError: The manifest is unreadable or damaged.
      OtherRunError: The checkpoint belongs to another run.
      UserError: The format version is not supported.
    """
    with reading(step):
        info = read_info(directory / str(step))
    if info.pop("checksum", None) != _checksum(info):
        raise DamagedError(
            f"step {step}: the JSON of the checkpoint does not match its digest"
        )
    if info.get("format") != FORMAT:
        raise UserError(
            f"checkpoint {step} has the format {info.get('format')!r}, but this "
            f"version of jaxtrain reads format {FORMAT}: use the version that wrote "
            "the checkpoint"
        )
    if run is not None:
        run.check(info, str(directory / str(step)), RETURN)
    return info


def check_match(step: int, saved: dict[str, Any], wanted: Any) -> None:
    """Raise UserError if paths, shapes or dtypes of saved and wanted arrays differ."""
    old = {path: kind for path, (kind, _) in saved.items()}
    new = {path: _dtype_and_shape(x) for path, x in by_path(wanted).items()}
    lines = [
        f"  missing in the checkpoint: {p} {new[p]}" for p in new.keys() - old.keys()
    ]
    lines += [f"  unknown to the model: {p} {old[p]}" for p in old.keys() - new.keys()]
    lines += [
        f"  {p}: {old[p]} in the checkpoint, {new[p]} in the model"
        for p in old.keys() & new.keys()
        if old[p] != new[p]
    ]
    if lines:
        raise UserError(
            f"checkpoint {step} does not fit this model and optimizer: resume with the "
            "code and options of the run, or choose another --workdir\n"
            + "\n".join(sorted(lines))
        )


def check_digests(
    step: int, saved: dict[str, Any], state: Any, sums: dict[str, int]
) -> None:
    """Raise DamagedError if dtypes, shapes or digests differ from the manifest's."""
    loaded = _describe(state, sums)
    paths = sorted(saved.keys() | loaded.keys())
    differing = [path for path in paths if saved.get(path) != loaded.get(path)]
    if differing:
        more = f" and {len(differing) - 1} more arrays" if len(differing) > 1 else ""
        raise DamagedError(
            f"step {step}: {differing[0]}{more} does not match the saved digest: the "
            "files are damaged"
        )


def _describe(state: Any, sums: dict[str, int]) -> dict[str, list[str | int]]:
    """Map the path of each array to dtype, shape and digest.

    Orbax restores named tuples as dicts or lists, which have the same paths.
    """
    return {
        path: [_dtype_and_shape(x), sums[path]] for path, x in by_path(state).items()
    }


def _dtype_and_shape(x: Any) -> str:
    return f"{jax.numpy.dtype(x.dtype).name}{list(x.shape)}"


def _with_checksum(manifest: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "checksum": _checksum(manifest)}


def _checksum(info: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(info, sort_keys=True).encode())
