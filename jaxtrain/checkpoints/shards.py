"""Restore of a checkpoint by several processes, each of which reads only its shards."""

from pathlib import Path
from typing import Any

from jaxtrain.checkpoints import manifest
from jaxtrain.checkpoints.digest import ArrayDigest, combine, shard_digests
from jaxtrain.checkpoints.orbax import load, load_shards, reading
from jaxtrain.errors import DamagedError
from jaxtrain.json_files.run_id import RunId
from jaxtrain.processes import cluster
from jaxtrain.trees import by_path


def restore(
    directory: Path, step: int, abstract_state: dict[str, Any], run: RunId
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Load the shards of this process; all processes must call the function.

    Args:
      directory: Directory of the checkpoints.
      step: Step to load.
      abstract_state: Tree of `jax.ShapeDtypeStruct` with shardings.
      run: Expected run of the checkpoint.

    Returns:
      The state and its manifest.

    Raises:
      UserError: The checkpoint's arrays have other paths, shapes or dtypes.
      DamagedError: The step is damaged, or a process cannot read it.
    """
    info, state, shards, error = {}, {}, {}, None
    try:
        info = manifest.read(directory, step, run)
        manifest.check_match(step, info["arrays"], abstract_state)
        with reading(step):
            state = load_shards(directory / str(step), abstract_state)
        shards = shard_digests(state, every_replica=True)
    except DamagedError as damage:
        error = str(damage)
    reports = cluster.current().gather([error, shards])
    for reported, _ in reports:
        if reported is not None:
            raise DamagedError(reported)
    sums = combine([shards for _, shards in reports])
    manifest.check_digests(step, info["arrays"], state, sums)
    return state, info


def verify(directory: Path, step: int, info: dict[str, Any]) -> None:
    """Verify a step in this process, one array at a time.

    Args:
      directory: Directory of the checkpoints.
      step: Step to verify.
      info: Manifest of the step.

    Raises:
      DamagedError: The step is unreadable or damaged.
    """
    with reading(step):
        arrays = load(directory / str(step), ArrayDigest.of)
    sums = {path: array.digest for path, array in by_path(arrays).items()}
    manifest.check_digests(step, info["arrays"], arrays, sums)
