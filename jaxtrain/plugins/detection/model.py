"""FCOS, an anchor-free detector (Tian et al. 2019, arXiv:1904.01355; arXiv:2006.09214).

A backbone feeds a feature pyramid network (Lin et al. 2017, arXiv:1612.03144), and all
pyramid levels share the heads. The heads use group norm, because levels of different
sizes cannot share the running statistics of batch norm.
"""

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.errors import UserError
from jaxtrain.models.layers import Layers
from jaxtrain.plugins.detection.options import FCOSConfig
from jaxtrain.plugins.segmentation.dense import DenseModel, Level

# Numbers of output channels of the box head and the centerness head.
BOXES, CENTERNESS = 4, 1
# Initial probability of each class. If it were larger, background would dominate the
# first losses (Lin et al. 2017, arXiv:1708.02002, section 3.3).
PRIOR = 0.01
# Maximum number of groups of a group norm, and minimum number of channels per group.
GROUPS, GROUP_SIZE = 32, 8


class FCOS(DenseModel):
    """FCOS detector: classes, boxes and centerness at each location of each level."""

    Options: ClassVar = FCOSConfig

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
        levels = self.add_backbone(
            backbone,
            image_shape,
            layers,
            width=width,
            stem=stem,
            drop_path=drop_path,
            norm_epsilon=norm_epsilon,
            padding=padding,
        )
        places = _places(strides, levels, backbone)
        self.stride = max(self.stride, strides[-1])
        self._add_pyramid(pyramid_channels, len(strides), levels, places, layers)
        self._add_heads(pyramid_channels, head_layers, num_classes, layers)

    def _add_pyramid(
        self,
        channels: int,
        num: int,
        levels: Sequence[Level],
        places: Sequence[int],
        layers: Layers,
    ) -> None:
        """Append a feature pyramid of `num` levels.

        `places` are the indices of the backbone levels with lateral connections.
        """
        pyramid: dict[str, nnx.Module] = {}
        for i, place in enumerate(places):
            width = levels[place].channels
            pyramid[f"lateral{i}"] = layers.conv(width, channels, 1, bias=True)
            pyramid[f"smooth{i}"] = layers.conv(channels, channels, 3, bias=True)
        for i in range(len(places), num):
            down = layers.conv(channels, channels, 3, stride=2, bias=True)
            pyramid[f"down{i}"] = down
        # The backbone returns its features deepest level first.
        lateral_indices = tuple(len(levels) - 1 - place for place in places)
        self.add_piece(partial(_pyramid, lateral_indices), **pyramid)

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
    """Return the height of each level's output maps, and the number of classes.

    Raises:
      UserError: The task's outputs are not detections.
    """
    names = {"classes", "boxes", "centerness"}
    levels = isinstance(spec, tuple) and spec and all(isinstance(x, dict) for x in spec)
    if not levels or any(level.keys() != names for level in spec):
        raise UserError(
            "model.name = 'fcos' predicts boxes, but the task requires outputs "
            f"{spec}: set task = 'detection', or choose another model.name"
        )
    return [level["classes"][0] for level in spec], spec[0]["classes"][-1]


def _places(strides: Sequence[int], levels: Sequence[Level], name: str) -> list[int]:
    """Return the indices of the backbone levels whose stride is in `strides`.

    Raises:
      UserError: No stride matches, or strides do not double from level to level.
    """
    by_stride = {level.stride: i for i, level in enumerate(levels)}
    matched = [by_stride[stride] for stride in strides if stride in by_stride]
    doubled = all(b == 2 * a for a, b in itertools.pairwise(strides))
    if not matched or matched != [
        by_stride.get(stride) for stride in strides[: len(matched)]
    ]:
        raise UserError(
            f"model.backbone = {name!r} has features at the strides "
            f"{', '.join(map(str, sorted(by_stride)))}, but task.strides is "
            f"{', '.join(map(str, strides))}: set task.strides to consecutive strides "
            "of the backbone, followed by larger strides"
        )
    if not doubled:
        raise UserError(
            f"task.strides = {tuple(strides)}: model.name = 'fcos' requires strides "
            "that double from level to level, such as 8 16 32"
        )
    return matched


def _pyramid(
    lateral_indices: tuple[int, ...], *arguments: Any
) -> tuple[jax.Array, ...]:
    """Return the pyramid levels, smallest stride first.

    Args:
      lateral_indices: Indices of the backbone features with lateral connections.
      *arguments: Lateral and smoothing convolution of each lateral level, downsampling
        convolutions of the extra levels, backbone features, and `rngs`.
    """
    *layers, features, _ = arguments
    num = len(lateral_indices)
    pairs = list(zip(layers[: 2 * num : 2], layers[1 : 2 * num : 2], strict=True))
    above, levels = None, []
    for (lateral, smooth), place in reversed(
        list(zip(pairs, lateral_indices, strict=True))
    ):
        x = lateral(features[place])
        if above is not None:
            x = x + jnp.repeat(jnp.repeat(above, 2, 1), 2, 2)
        above = x
        levels.insert(0, smooth(x))
    for i, down in enumerate(layers[2 * num :]):
        # As in RetinaNet, a ReLU precedes each extra level except the first.
        levels.append(down(nnx.relu(levels[-1]) if i else levels[-1]))
    return tuple(levels)


def _heads(num: int, *arguments: Any) -> tuple[dict[str, jax.Array], ...]:
    """Apply the shared heads to each level.

    Args:
      num: Number of convolutions of each tower.
      *arguments: Alternating convolutions and norms of the class tower, then of the box
        tower; the output convolutions; the pyramid levels; `rngs`.
    """
    *layers, levels, _ = arguments
    class_tower, box_tower = layers[: 2 * num], layers[2 * num : 4 * num]
    classes, boxes, centerness = layers[4 * num :]
    prior = -math.log((1 - PRIOR) / PRIOR)
    outputs = []
    for x in levels:
        y, z = _tower(class_tower, x), _tower(box_tower, x)
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
