"""What models of maps and of boxes share: a backbone, seen at several strides.

A backbone is a classifier without its head. Its layers keep their names, so that
weights of the classifier fit.
"""

import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.models.classifiers import CLASSIFIERS
from jaxtrain.models.layers import Layers
from jaxtrain.registry import find_row


class Level(NamedTuple):
    """The last features of a backbone at one stride.

    Attributes:
      stride: Pixels of the image, in height and in width, that became one.
      channels: Number of channels.
    """

    stride: int
    channels: int


class DenseModel(Model):
    """A model that begins with a backbone.

    Behind `add_backbone`, what goes from piece to piece is a tuple: the features of the
    last level, of the level before, and so on to those of the first, and at last the
    images. `backbone_options` that are None have the defaults of the backbone.
    """

    backbone_options: ClassVar[tuple[str, ...] | None] = (
        *("width", "stem", "drop_path", "norm_epsilon", "padding"),
    )

    num_backbone_pieces: int = 0

    @property
    def backbone_layers(self) -> tuple[str, ...]:
        """Names of the layers of the backbone."""
        own = self.pieces[: self.num_backbone_pieces]
        return tuple(name for piece in own for name in piece.names)

    def add_backbone(
        self,
        name: str,
        image_shape: tuple[int, int, int],
        layers: Layers,
        **options: Any,
    ) -> tuple[Level, ...]:
        """Append all pieces of a classifier but its head; return its levels.

        Args:
          name: Name of the classifier, or the user's own.
          image_shape: Height, width and channels of the images.
          layers: Maker of its layers.
          **options: Options of the classifier; those that are None have its defaults.

        Returns:
          The levels, that of the least stride first.

        Raises:
          UserError: there is no such classifier, it takes no such option, or it has no
            features with rows and columns.
        """
        kind = find_row(CLASSIFIERS, "model.backbone", name)
        given = {option: x for option, x in options.items() if x is not None}
        made = kind(image_shape, 1, layers=layers, **given)
        shapes = _features(made, image_shape)
        if not shapes:
            raise UserError(
                f"model.backbone = {name!r} has no features with rows and columns: "
                "choose another"
            )
        self.stride, self.min_size = made.stride, made.min_size
        self.min_share = made.min_share  # pyright: ignore[reportAttributeAccessIssue]
        height, channels, levels = image_shape[0], image_shape[2], []
        for piece, (rows, _, out_channels) in zip(made.pieces, shapes, strict=False):
            is_first = piece is made.pieces[0]
            keep = rows < height and not is_first
            if keep:
                levels.append(Level(round(image_shape[0] / height), channels))
            own = {layer: getattr(made, layer) for layer in piece.names}
            self.add_piece(_carrying(piece.apply, is_first, keep), **own)
            self.num_backbone_pieces += 1
            height, channels = rows, out_channels
        return (*levels, Level(round(image_shape[0] / height), channels))


def _features(model: Model, image_shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return (rows, columns, channels) behind each piece, to the last that has them."""
    model.eval()  # Running statistics must not change under this trace.

    def all_outputs(x: jax.Array) -> list[Any]:
        outputs = []
        for piece in model.pieces:
            x = piece.apply(*(getattr(model, n) for n in piece.names), x, None)
            outputs.append(x)
        return outputs

    images = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
    found = jax.eval_shape(all_outputs, images)
    model.train()
    shapes = []
    for x in found:
        if not (isinstance(x, jax.ShapeDtypeStruct) and len(x.shape) == 4):
            break
        shapes.append(x.shape[1:])
    return shapes


def _carrying(
    apply: Callable[..., Any], is_first: bool, keep: bool
) -> Callable[..., Any]:
    """Return a piece that takes features along, and keeps those it gets if asked."""

    @functools.wraps(apply)
    def carrying(*arguments: Any) -> tuple[Any, ...]:
        *own, x, rngs = arguments
        x, kept = (x, (x,)) if is_first else (x[0], x[1:])
        return apply(*own, x, rngs), *((x,) if keep else ()), *kept

    return carrying


def resized(x: jax.Array, size: tuple[int, int]) -> jax.Array:
    """Return activations (B, rows, columns, C) of another size, by linear means.

    The middles of the outer pixels stay where they are in the image, as in PyTorch's
    `interpolate` with `align_corners=False`.
    """
    if x.shape[1:3] == size:
        return x
    shape = (x.shape[0], *size, x.shape[-1])
    return jax.image.resize(x, shape, "bilinear", antialias=False)
