"""The JSON saved with a state: what its arrays are, and whether it is what was saved.

It has the format, the dtype, the shape and a digest of every array, whatever else the
run saves with them, and a checksum of itself. Orbax alone would load a flipped bit, and
cast another dtype, silently.
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
# What to do about a checkpoint of another run.
RETURN = (
    "one of the two was copied from the folder of another run; put it back there, and "
    "restore the one that belongs here"
)


def make(
    state: Any,
    sums: dict[str, int],
    info: dict[str, Any],
    metrics: dict[str, Any] | None,
    run: RunId,
) -> dict[str, Any]:
    """Make the JSON to save with a state.

    Args:
      sums: Digests of the arrays, by path.
      info: Values that JSON can hold.
      metrics: Metrics of the validation split; None if this step was not evaluated.
    """
    arrays = _describe(state, sums)
    found = {"format": FORMAT, "arrays": arrays, "metrics": metrics, **info}
    return _sealed(run.stamp(found))


def best_step(manifest: Mapping[str, Any], steps: Sequence[int]) -> int:
    """Return the step with the best validation, or the newest if there is none.

    The one rule for the final test of a run and for all commands that use its model.
    Without a validation split no step is the best; the checkpoint of the best step is
    gone if `checkpoint.keep_best` is 0, or after damage.

    Args:
      manifest: JSON that was saved with the newest step.
      steps: Committed steps, rising; at least one.
    """
    best = manifest["progress"]["best"]
    return best["step"] if best is not None and best["step"] in steps else steps[-1]


def amend(directory: Path, step: int, changes: dict[str, Any]) -> None:
    """Replace values of the manifest of a committed step.

    Raises:
      DamagedError: It cannot be read, or is not what was saved.
    """
    replace_info(directory / str(step), _sealed({**read(directory, step), **changes}))


def read(directory: Path, step: int, run: RunId | None = None) -> dict[str, Any]:
    """Read the manifest of a step.

    Args:
      run: Run that the step must belong to. None accepts any.

    Raises:
      DamagedError: it cannot be read, or is not what was saved.
      OtherRunError: It belongs to another run.
      UserError: it has another format.
    """
    with reading(step):
        info = read_info(directory / str(step))
    if info.pop("checksum", None) != _checksum(info):
        raise DamagedError(f"step {step}: its JSON is not what was saved")
    if info.get("format") != FORMAT:
        raise UserError(
            f"checkpoint {step} has format {info.get('format')!r}, this version of "
            f"jaxtrain reads {FORMAT}: use the version that wrote it"
        )
    if run is not None:
        run.check(info, str(directory / str(step)), RETURN)
    return info


def check_match(step: int, saved: dict[str, Any], wanted: Any) -> None:
    """Raise UserError if an abstract state has other paths, shapes or dtypes."""
    old = {path: kind for path, (kind, _) in saved.items()}
    new = {path: _kind(x) for path, x in by_path(wanted).items()}
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
            f"checkpoint {step} does not fit this model and optimizer:\n"
            + "\n".join(sorted(lines))
        )


def check_digests(
    step: int, saved: dict[str, Any], state: Any, sums: dict[str, int]
) -> None:
    """Raise DamagedError if a loaded state and its digests are not those saved."""
    loaded = _describe(state, sums)
    paths = sorted(saved.keys() | loaded.keys())
    differing = [path for path in paths if saved.get(path) != loaded.get(path)]
    if differing:
        more = f" and {len(differing) - 1} more arrays" if len(differing) > 1 else ""
        raise DamagedError(
            f"step {step}: {differing[0]}{more} is not what was saved: the files are "
            "damaged"
        )


def _describe(state: Any, sums: dict[str, int]) -> dict[str, list[str | int]]:
    """Map the path of each array to its dtype and shape, and its digest.

    Orbax's metadata has dicts and lists where the state has named tuples: the names of
    the keys and fields and the positions are the same.
    """
    return {path: [_kind(x), sums[path]] for path, x in by_path(state).items()}


def _kind(x: Any) -> str:
    return f"{jax.numpy.dtype(x.dtype).name}{list(x.shape)}"


def _sealed(manifest: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "checksum": _checksum(manifest)}


def _checksum(info: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(info, sort_keys=True).encode())
