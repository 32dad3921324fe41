"""Forward passes of a model in training and in evaluation."""

from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh

from jaxtrain.config.train import Remat
from jaxtrain.models import CONVOLUTIONS
from jaxtrain.models.copied import use_copies
from jaxtrain.parallel.copies import Copies
from jaxtrain.parallel.mesh import has_accelerators
from jaxtrain.plugin import resolve
from jaxtrain.training.frozen import NOTHING, Frozen
from jaxtrain.training.state import split_model


def apply_model(
    graphdef: Any,
    params: Any,
    model_state: Any,
    x: Any,
    key: jax.Array | None = None,
    part: slice = slice(None),
    frozen: Frozen = NOTHING,
    copies: Copies | None = None,
    remat: Remat = "none",
    cpus: Mesh | None = None,
    training: bool = True,
) -> tuple[Any, Any]:
    """Apply a model, or the slice `part` of its pieces; return outputs and new state.

    `key` is the model's PRNG key (see `Model`). `frozen` layers run in evaluation mode.
    `copies` lists the parameters that are per-device copies. `cpus` is a data-parallel
    mesh of CPUs, for which `CONVOLUTIONS` replaces the convolutions. If not `training`,
    the model runs in evaluation mode and its state is unchanged.
    """
    model = nnx.merge(graphdef, params, model_state, copy=True)
    model.train() if training else model.eval()
    frozen.switch(model)
    if copies is not None:
        use_copies(model, copies.mesh)
    if cpus is not None and "cpu" in CONVOLUTIONS:
        CONVOLUTIONS["cpu"](model, cpus)
    y = model(x, part=part, key=key, remat=remat, tied=not frozen.layers)
    return y, split_model(model)[2]


def predict(
    graphdef: Any,
    params: Any,
    model_state: Any,
    x: Any,
    part: slice = slice(None),
    mesh: Mesh | None = None,
) -> Any:
    """Apply a model, or the slice `part` of its pieces, in evaluation mode.

    If `mesh` is given, batch norms are folded into convolutions where that is faster
    (see `jaxtrain.models.folding`).
    """

    def function(weights: Any, x: Any) -> Any:
        model = nnx.merge(graphdef, *weights, copy=True)
        model.eval()
        return model(x, part=part)

    weights = params, model_state
    if mesh is not None and has_accelerators(mesh):
        fold_norms = resolve("jaxtrain.models.folding:fold_norms")
        return fold_norms(function, weights, x)
    return function(weights, x)
