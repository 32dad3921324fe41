"""Channel pruning: removal of the least important channels of a model.

Dependency analysis of the model (`channels/`) finds units of channels that can only be
removed together. All units are ranked by importance per FLOP.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.inference.model import TrainedModel, make_model
from jaxtrain.plugins.compact.channels.cut import take
from jaxtrain.plugins.compact.channels.groups import NUM_IMAGES, ChannelMap, channels_of
from jaxtrain.plugins.compact.importance import Importance
from jaxtrain.training.forward import apply_model
from jaxtrain.training.state import num_params, split_model
from jaxtrain.trees import path_name
from jaxtrain.weights.description import Description

# Name of a prunable group -> ascending indices of retained units.
Kept = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Constraints on the smaller model.

    Attributes:
      flops: Maximum FLOPs per image, as a fraction of the original model's.
      keep: Minimum fraction of channels to retain in each group.
      multiple: Required divisor of each group's number of channels.
    """

    flops: float
    keep: float
    multiple: int


@dataclass(frozen=True, eq=False)
class Compacted:
    """A smaller model, and its comparison with the original model.

    Attributes:
      model: The smaller model.
      channels: Map of the original model's removable channels.
      kept: Indices of the retained units of each prunable group.
      params: Number of parameters before and after pruning.
      flops: FLOPs per image before and after pruning.
    """

    model: TrainedModel
    channels: ChannelMap
    kept: Kept
    params: tuple[int, int]
    flops: tuple[int, int]


def open_channels(about: Description) -> ChannelMap:
    """Find the removable channels of a trained model.

    Raises:
      UserError: The analysis fails, or `model.transform` changes the model.
    """
    about.check_is_one("--workdir: this model")
    if about.model.transform is not None:
        raise UserError(
            f"model.transform = {about.model.transform!r} may change the layout of "
            "channels: train and compact without model.transform, and set "
            "model.transform for fine-tuning"
        )
    return channels_of(about.abstract, about.blueprint().images(NUM_IMAGES))


def compact(
    model: TrainedModel, channels: ChannelMap, importance: Importance, limits: Limits
) -> Compacted:
    """Remove the least important channels of a model.

    Raises:
      UserError: The FLOPs limit is unreachable, or the model fails with fewer channels.
    """
    kept = choose(channels, importance, limits)
    made = without(model, channels, kept)
    return Compacted(
        made,
        channels,
        kept,
        (num_params(model.params), num_params(made.params)),
        (channels.flops({}), channels.flops(kept)),
    )


def choose(channels: ChannelMap, importance: Importance, limits: Limits) -> Kept:
    """Select the units to retain: the most important units within the FLOPs limit.

    Args:
      channels: Channels of a model.
      importance: Prunable group -> importance of each unit.
      limits: Constraints on the smaller model.

    Raises:
      UserError: The FLOPs limit is unreachable.
    """
    costs, least = channels.costs(), {}
    worth, owners = [np.zeros(0)], [np.zeros(0, int)]
    for number, (name, of_units) in enumerate(importance.items()):
        units = len(of_units)
        least[name] = max(1, math.ceil(limits.keep * units))
        # Importance / FLOPs of each removable unit, ascending.
        ratio = np.sort(of_units / costs[name])[: units - least[name]]
        worth.append(ratio)
        owners.append(np.full(len(ratio), number))
    order = np.argsort(np.concatenate(worth), kind="stable")
    owner = np.concatenate(owners)[order]

    def retained(num: int) -> dict[str, np.ndarray]:
        """Remove the `num` least important units, within `limits`; return the rest."""
        lost, kept = np.bincount(owner[:num], minlength=len(importance)), {}
        for (name, of_units), less in zip(importance.items(), lost, strict=True):
            unit, units = channels.groups[name].unit, len(of_units)
            number = _rounded(units - less, unit, limits.multiple)
            number = min(units, max(number, least[name]))
            kept[name] = np.sort(np.argsort(-of_units, kind="stable")[:number])
        return kept

    total, low, high = channels.flops({}), 0, len(order)
    fewest = channels.flops(retained(high)) / total
    if fewest > limits.flops:
        raise UserError(
            f"--flops {limits.flops:g}: expected {fewest:.3f} or more with --keep "
            f"{limits.keep:g} and --multiple {limits.multiple}; raise --flops, or "
            "lower --keep or --multiple"
        )
    while low < high:
        middle = (low + high) // 2
        if channels.flops(retained(middle)) <= limits.flops * total:
            high = middle
        else:
            low = middle + 1
    return retained(high)


def _rounded(units: int, unit: int, multiple: int) -> int:
    """Round `units` so that `units * unit` channels are divisible by `multiple`."""
    step = math.lcm(unit, multiple) // unit
    return max(step, (units + step // 2) // step * step)


def without(model: TrainedModel, channels: ChannelMap, kept: Kept) -> TrainedModel:
    """Return a smaller model that has only the retained units of each group.

    Raises:
      UserError: The model fails with fewer channels.
    """
    indices = channels.indices_of(kept)
    numbers = {
        name: channels.groups[name].unit * len(units)
        for name, units in kept.items()
        if len(units) < channels.groups[name].num_units
    }
    about = model.description
    config = dataclasses.replace(
        about.model, channels={**about.model.channels, **numbers}
    )
    about = dataclasses.replace(about, model=config, chosen={})
    _check_computes(about)

    def cut(tree: object) -> object:
        paths, structure = jax.tree_util.tree_flatten_with_path(tree)
        named = [(path_name(path), np.asarray(x)) for path, x in paths]
        return structure.unflatten([take(name, x, indices) for name, x in named])

    origin = {"step": None, "run": None, "weights": None}
    params, state = cut(model.params), cut(model.model_state)
    return make_model(about, params, state, origin, "the smaller model")


def _check_computes(about: Description) -> None:
    """Check that a smaller model runs in training and in evaluation.

    Raises:
      UserError: The model fails, because its code hard-codes numbers of channels.
    """
    graphdef, params, state = split_model(about.abstract)
    images, key = about.blueprint().images(NUM_IMAGES), jax.random.key(0)
    for training in (False, True):
        apply = functools.partial(apply_model, graphdef, training=training)
        try:
            jax.eval_shape(apply, params, state, images, key)
        except (TypeError, ValueError) as error:
            told = str(error).partition("\n")[0]
            raise UserError(
                f"model.name = {about.model.name!r} fails with fewer channels "
                f"({told}), maybe because its code hard-codes channel counts: read "
                "channel counts from array shapes"
            ) from error
