"""Initial weights of a run: random, fitted to training images, or pretrained."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxtrain import keys, weights as weights_lib
from jaxtrain.data.replacements import read_filled
from jaxtrain.errors import UserError
from jaxtrain.parallel.device_put import put_like
from jaxtrain.processes import cluster
from jaxtrain.trainer.programs import Programs, unaugmented
from jaxtrain.trainer.resolve import open_weights
from jaxtrain.trainer.run_data import RunData
from jaxtrain.trainer.setup import Setup

if TYPE_CHECKING:
    from jaxtrain.weights.stored import Transfer, Weights

# Maximum number of pixels for fitting kernels: 5,000 images of 32x32, as in airbench94.
MAX_PIXELS = 5000 * 32 * 32


def plan_start(setup: Setup, trained: Weights | None = None) -> Transfer | None:
    """Match pretrained weights to the model of a run; return None without weights.

    Args:
      setup: Setup of the run.
      trained: Pretrained weights. Defaults to `setup.trained`.

    Raises:
      UserError: Names or shapes of the weights do not match the model.
    """
    trained = trained or setup.trained
    if trained is None:
        return None
    state, task = setup.abstract_state, setup.task
    return weights_lib.compare(
        trained,
        setup.create.blueprint,
        (state.params, state.model_state),
        class_names=task.class_names,
        column_names=task.column_names,
        inferred=task.inferred,
    )


def first_weights(
    setup: Setup, programs: Programs, run_data: RunData, start: Transfer | None
) -> tuple[tuple[Any, Any], str | None]:
    """Create the initial weights; also return a log text on pretrained weights.

    Args:
      setup: Setup of the run.
      programs: Compiled programs of the run.
      run_data: Data of the run, for kernels fitted to training images.
      start: Matched pretrained weights. Defaults to the weights of `model.pretrained`,
        if set.

    Raises:
      UserError: The weights of `model.pretrained` do not match the model, or are
        damaged.
    """
    config = setup.config
    weights = programs.weights(keys.root_key(config.seed))
    if config.model.pretrained is None:
        return _fit_kernels(setup, run_data, weights), None
    start = start or plan_start(setup, open_weights(config.model))
    assert start is not None
    text = f"starts from the weights of {start.weights.where}"
    if "new" in start.rows:
        text += ", except for " + start.rows["new"].partition(":")[0]
    return start.fill(weights), text


def _fit_kernels(
    setup: Setup, run_data: RunData, weights: tuple[Any, Any]
) -> tuple[Any, Any]:
    """Fit the kernels in `Model.kernels_from_images` to training images.

    Raises:
      UserError: `model.transform` removed one of these kernels.
    """
    blueprint = setup.create.blueprint
    fits = blueprint.model_class.kernels_from_images
    if blueprint.backbone is not None:
        fits = {**blueprint.backbone.model_class.kernels_from_images, **fits}
    if not fits:
        return weights
    params, images = dict(weights[0]), _read_images(setup, run_data)
    for layer, fit in fits.items():
        first = params.get(layer, {}).get("kernel")
        if first is None:
            raise UserError(
                f"model.transform removed {layer}/kernel, which "
                f"{setup.config.model.name} computes from training images; leave the "
                f"layer {layer} unchanged"
            )
        # CPUs may round differently: all processes use the kernels of process 0.
        kernel = cluster.current().gather(fit(images, first.shape).tolist())[0]
        params[layer] = {**params[layer], "kernel": put_like(np.array(kernel), first)}
    return params, weights[1]


def _read_images(setup: Setup, run_data: RunData) -> np.ndarray:
    """Read and normalize evenly spaced training images, (N, H, W, C).

    With sliding-window evaluation, return windows instead of full images.
    """
    source, grid = run_data.train_set.source, setup.grid
    most = max(1, MAX_PIXELS // math.prod(grid.window))
    num = min(len(source), most)
    image, window = grid.choose(num, most)
    indices = (np.arange(num) * len(source) // num)[image]
    prepare = unaugmented(setup, run_data.mean, run_data.std, np.float32)
    # Read in parts: the full images of all windows may not fit in memory.
    size = max(1, MAX_PIXELS // math.prod(grid.image_size))
    parts = []
    for start in range(0, len(indices), size):
        some = indices[start : start + size]
        batch = {**read_filled(source, some), "index": some}
        root = keys.root_key(setup.config.seed)
        images = prepare({}, batch, root, jax.numpy.int32(0))["image"]
        parts.append(np.asarray(grid.cut(images, window[start : start + size])))
    return np.concatenate(parts)
