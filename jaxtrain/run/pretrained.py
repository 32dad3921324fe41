"""The first weights of a run that begins with those of a trained model."""

from typing import Any

import jax
import numpy as np

from jaxtrain import keys
from jaxtrain.checkpoints.digest import flatten, name
from jaxtrain.config import Config, ModelConfig
from jaxtrain.errors import UserError
from jaxtrain.inference.load import load_model
from jaxtrain.run.programs import Programs

# Arrays that may have another shape: then the run's own stay, for other classes.
HEAD = "head/"


def first_weights(
    config: Config, programs: Programs
) -> tuple[tuple[Any, Any], str | None]:
    """Return the weights that a run begins with: new ones, or trained ones.

    Returns:
      Parameters and other state, and what there is to tell of trained ones.

    Raises:
      UserError: `model.pretrained` names no model that fits.
      CheckpointError: it is damaged.
    """
    weights = programs.weights(keys.root_key(config.seed))
    if config.model.pretrained is None:
        return weights, None
    return replace_weights(config.model, weights)


def replace_weights(
    config: ModelConfig, weights: tuple[Any, Any]
) -> tuple[tuple[Any, Any], str]:
    """Put trained weights in the place of the first ones.

    Args:
      config: whose `pretrained` names the folder of a run, or of an exported model.
      weights: parameters and other state, on the devices, as the run has made them.

    Returns:
      The weights, where and in the dtypes that they were, and what there is to tell.

    Raises:
      UserError: there is no such model, or its layers are others.
      CheckpointError: it is damaged.
    """
    assert config.pretrained is not None
    model = load_model(config.pretrained)
    trained = {name(p): x for p, x in flatten((model.params, model.model_state))}
    paths, tree = jax.tree_util.tree_flatten_with_path(weights)
    own = {name(path): x for path, x in paths}
    fits = {path: _fits(x, trained.get(path)) for path, x in own.items()}
    kept = sorted(p for p, fit in fits.items() if not fit)
    differing = [p for p in kept if not _in_head(p) or p not in trained]
    differing += sorted(trained.keys() - own.keys())
    if differing:
        raise UserError(
            f"model.pretrained = {config.pretrained!r} does not fit model.name = "
            f"{config.name!r}: {differing[0].partition('/')[2]} and "
            f"{len(differing) - 1} more arrays are missing or have other shapes; give "
            "the model and the options that it was trained with, "
            f"{_shown(model.description.model)}"
        )
    begun = [_put(trained[p], x) if fits[p] else x for p, x in own.items()]
    text = f"begins with the weights of {config.pretrained}"
    if model.origin.get("step") is not None:
        text += f", step {model.origin['step']}"
    if kept:
        num = model.description.num_outputs
        text += f", but for the last layer, which had {num} outputs"
    return tree.unflatten(begun), text


def _fits(own: Any, trained: Any) -> bool:
    # Statistics of each group of batch norm begin with those of all.
    return trained is not None and own.shape[own.ndim - trained.ndim :] == trained.shape


def _put(trained: Any, own: Any) -> jax.Array:
    """Place an array as another one is, each device its part."""
    array = np.broadcast_to(np.asarray(trained, own.dtype), own.shape)
    return jax.make_array_from_callback(own.shape, own.sharding, lambda i: array[i])


def _in_head(path: str) -> bool:
    return path.partition("/")[2].startswith(HEAD)


def _shown(config: ModelConfig) -> str:
    values = {k: v for k, v in vars(config).items() if v not in (None, {})}
    return ", ".join(f"model.{k} = {v!r}" for k, v in values.items())
