"""FCOS (Tian et al. 2019, arXiv:1904.01355; 2020, arXiv:2006.09214): boxes, no anchors.

A feature pyramid (Lin et al. 2017, arXiv:1612.03144) over a backbone; heads that all
levels share. Group norm has no running statistics, which levels of different sizes
could not share.
"""

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.errors import UserError
from jaxtrain.models.layers import Layers
from jaxtrain.plugins.segmentation.dense import DenseModel, Level

# Features of the maps of a level beside those of the classes.
BOXES, CENTERNESS = 4, 1
# The classes begin rare: else the many places without a box make the first steps.
PRIOR = 0.01
# Groups of a norm at most, of 8 channels each at least.
GROUPS, GROUP_SIZE = 32, 8


class FCOS(DenseModel):
    """Boxes, classes and centerness at each place of each level."""

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        output_spec: Any,
        backbone: str = "resnet18",
        pyramid_channels: int = 256,
        head_layers: int = 4,
        width: float | None = None,
        stem: str | None = None,
        drop_path: float | None = None,
        norm_epsilon: float | None = None,
        padding: str | None = None,
    ):
        rows, num_classes = _read_spec(output_spec)
        strides = [image_shape[0] // row for row in rows]
        found = self.add_backbone(
            backbone,
            image_shape,
            layers,
            width=width,
            stem=stem,
            drop_path=drop_path,
            norm_epsilon=norm_epsilon,
            padding=padding,
        )
        places = _places(strides, found, backbone)
        self.stride = max(self.stride, strides[-1])
        self._add_pyramid(pyramid_channels, len(strides), found, places, layers)
        self._add_heads(pyramid_channels, head_layers, num_classes, layers)

    def _add_pyramid(
        self,
        channels: int,
        num: int,
        found: Sequence[Level],
        places: Sequence[int],
        layers: Layers,
    ) -> None:
        """Append the pyramid of `num` levels, the first of them at some of `found`."""
        pyramid: dict[str, nnx.Module] = {}
        for i, place in enumerate(places):
            width = found[place].channels
            pyramid[f"lateral{i}"] = layers.conv(width, channels, 1, bias=True)
            pyramid[f"smooth{i}"] = layers.conv(channels, channels, 3, bias=True)
        for i in range(len(places), num):
            down = layers.conv(channels, channels, 3, stride=2, bias=True)
            pyramid[f"down{i}"] = down
        # As in a tuple of features: the last level comes first.
        taken = tuple(len(found) - 1 - place for place in places)
        self.add_piece(partial(_pyramid, taken), **pyramid)

    def _add_heads(
        self, channels: int, head_layers: int, num_classes: int, layers: Layers
    ) -> None:
        """Append the heads, which all levels share."""
        heads: dict[str, nnx.Module] = {}
        for kind in ("class", "box"):
            for i in range(head_layers):
                conv = layers.conv(channels, channels, 3, bias=False)
                groups = math.gcd(GROUPS, max(1, channels // GROUP_SIZE))
                heads[f"{kind}_conv{i}"] = conv
                heads[f"{kind}_norm{i}"] = layers.group_norm(channels, groups)
        sizes = {"classes": num_classes, "boxes": BOXES, "centerness": CENTERNESS}
        for kind, size in sizes.items():
            small = nnx.initializers.normal(0.01)
            heads[kind] = layers.conv(channels, size, 3, bias=True, init=small)
        self.add_piece(partial(_heads, head_layers), **heads)


def _read_spec(spec: Any) -> tuple[list[int], int]:
    """Return the rows of each level, and the number of classes.

    Raises:
      UserError: the task does not want boxes.
    """
    names = {"classes", "boxes", "centerness"}
    levels = isinstance(spec, tuple) and spec and all(isinstance(x, dict) for x in spec)
    if not levels or any(level.keys() != names for level in spec):
        raise UserError(
            f"model.name = 'fcos' finds boxes, and the task wants outputs {spec}: set "
            "task = 'detection', or another model.name"
        )
    return [level["classes"][0] for level in spec], spec[0]["classes"][-1]


def _places(strides: Sequence[int], found: Sequence[Level], name: str) -> list[int]:
    """Return which level of a backbone each stride is, as far as it has them.

    Raises:
      UserError: there is none, or the next strides are not twice each other.
    """
    there = {level.stride: i for i, level in enumerate(found)}
    known = [there[stride] for stride in strides if stride in there]
    doubled = all(b == 2 * a for a, b in itertools.pairwise(strides))
    if not known or known != [there.get(stride) for stride in strides[: len(known)]]:
        raise UserError(
            f"model.backbone = {name!r} has features at the strides "
            f"{', '.join(map(str, sorted(there)))}, and the task looks for boxes at "
            f"{', '.join(map(str, strides))}: set strides of task_options to some of "
            "them, and any beyond the last"
        )
    if not doubled:
        raise UserError(
            f"strides = {tuple(strides)} of task_options: model.name = 'fcos' has "
            "levels of twice the stride of the level before"
        )
    return known


def _pyramid(taken: tuple[int, ...], *arguments: Any) -> tuple[jax.Array, ...]:
    """Return the levels, that of the least stride first.

    Args:
      taken: Places of the levels in the features of the backbone.
      *arguments: For each of these the lateral layer and that behind the sum; layers of
        further levels; the features; `rngs`.
    """
    *layers, features, _ = arguments
    num = len(taken)
    pairs = list(zip(layers[: 2 * num : 2], layers[1 : 2 * num : 2], strict=True))
    above, levels = None, []
    for (lateral, smooth), place in reversed(list(zip(pairs, taken, strict=True))):
        x = lateral(features[place])
        if above is not None:
            x = x + jnp.repeat(jnp.repeat(above, 2, 1), 2, 2)
        above = x
        levels.insert(0, smooth(x))
    for i, down in enumerate(layers[2 * num :]):
        # As in RetinaNet, an activation stands between two of these.
        levels.append(down(nnx.relu(levels[-1]) if i else levels[-1]))
    return tuple(levels)


def _heads(num: int, *arguments: Any) -> tuple[dict[str, jax.Array], ...]:
    """Return the maps of each level.

    Args:
      num: Number of convolutions in front of the last ones.
      *arguments: Convolution and norm in turn, of the classes, then of the boxes; the
        last convolutions; the levels; `rngs`.
    """
    *layers, levels, _ = arguments
    of_classes, of_boxes = layers[: 2 * num], layers[2 * num : 4 * num]
    classes, boxes, centerness = layers[4 * num :]
    prior = -math.log((1 - PRIOR) / PRIOR)
    outputs = []
    for x in levels:
        y, z = _tower(of_classes, x), _tower(of_boxes, x)
        outputs.append(
            {
                "classes": classes(y) + prior,
                "boxes": boxes(z),
                "centerness": centerness(z),
            }
        )
    return tuple(outputs)


def _tower(layers: Sequence[Any], x: jax.Array) -> jax.Array:
    for conv, norm in zip(layers[::2], layers[1::2], strict=True):
        x = nnx.relu(norm(conv(x)))
    return x
