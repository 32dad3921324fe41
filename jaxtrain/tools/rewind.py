"""A lottery ticket: early weights of a run, without those that it has pruned since.

Frankle and Carbin 2019, arXiv:1803.03635; from a later step than the first, Frankle et
al. 2020, arXiv:1912.05671.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import keys
from jaxtrain.config.recipe import read_run
from jaxtrain.errors import UserError
from jaxtrain.inference.description import Description
from jaxtrain.inference.load import load_model
from jaxtrain.inference.model import TrainedModel, make_model
from jaxtrain.json_files.run_id import RunId
from jaxtrain.models.blueprint import initial_rngs
from jaxtrain.training.state import split_model
from jaxtrain.trees import by_path, path_name


@dataclass(frozen=True, eq=False)
class Ticket:
    """A sparse model to train.

    Attributes:
      model: Early weights, 0 where they are pruned.
      pruned: Number of weights that are, by the path of each kernel that has any.
      sizes: Number of weights of these kernels.
    """

    model: TrainedModel
    pruned: dict[str, int]
    sizes: dict[str, int]


def rewind(sparse: TrainedModel, early: TrainedModel) -> Ticket:
    """Return an early model without the weights that are 0 in a later one.

    An early weight that stays, and happens to be 0, becomes the least number of its
    dtype that is not: a run that prunes all zeros tells it from those that are pruned.

    Raises:
      UserError: The later model has no zeros.
    """
    found = by_path(sparse.params)
    zeros = {p: np.asarray(x) == 0 for p, x in found.items() if np.ndim(x) > 1}
    zeros = {path: x for path, x in zeros.items() if x.any()}
    if not zeros:
        raise UserError(
            f"{sparse.origin['run']} has pruned no weights, and so there is no ticket: "
            "train it with prune.sparsity or prune.pattern (docs/pruning.md)"
        )

    def keep(path: Any, x: Any) -> np.ndarray:
        x, gone = np.asarray(x), zeros.get(path_name(path))
        if gone is None:
            return x
        return np.where(gone, x.dtype.type(0), np.where(x == 0, _least(x.dtype), x))

    params = jax.tree_util.tree_map_with_path(keep, early.params)
    return Ticket(
        dataclasses.replace(early, params=params),
        {path: int(x.sum()) for path, x in zeros.items()},
        {path: x.size for path, x in zeros.items()},
    )


def _least(dtype: Any) -> Any:
    return jnp.finfo(dtype).smallest_normal.astype(dtype)


def weights_at(workdir: Path, about: Description, step: int) -> TrainedModel:
    """Return the model of a run as it was after so many steps.

    Args:
      workdir: Folder of the run.
      about: Model that it has trained.
      step: Steps; 0: its first weights, which the seed says.

    Raises:
      UserError: There is no such checkpoint, or the first weights are not those that
        the seed says.
    """
    if step:
        return load_model(workdir, step)
    config, instead = read_run(workdir), "give a step that is saved, --to STEP"
    if config.model.pretrained is not None:
        raise UserError(
            f"--to 0: {workdir} began with the weights of {config.model.pretrained}: "
            f"{instead}, or join those with prune.sparsity anew"
        )
    if about.abstract.kernels_from_images:
        raise UserError(
            f"--to 0: the first kernels of {about.model.name} come from the images of "
            f"{workdir}: {instead}"
        )
    if about.members > 1:
        raise UserError(f"--to 0: {workdir} is an ensemble; {instead}")

    def create(root: jax.Array) -> tuple[Any, Any]:
        rngs = initial_rngs(keys.stream(root, keys.INIT))
        return split_model(about.blueprint().build(rngs))[1:]

    params, model_state = jax.device_get(jax.jit(create)(keys.root_key(config.seed)))
    origin = {"step": 0, "run": RunId.read(workdir).value, "weights": None}
    return make_model(about, params, model_state, origin, str(workdir))
