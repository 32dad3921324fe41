"""Multi-scale backbones of segmentation and detection models.

A backbone is a classifier without its head. Its layers have the names of the
classifier's layers, so that classifier weights can be loaded.
"""

import functools
import inspect
from collections.abc import Callable, Container
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxtrain.errors import UserError
from jaxtrain.models import CLASSIFIERS
from jaxtrain.models.base import Model, Piece
from jaxtrain.models.layers import Layers
from jaxtrain.registry import find_row

# Height and width in pixels of the images used to compute strides: large enough to
# neglect the borders that unpadded convolutions remove.
LARGE = 1024


class Level(NamedTuple):
    """Description of a feature map of a backbone.

    Attributes:
      stride: Stride relative to the image, in pixels.
      channels: Number of channels.
    """

    stride: int
    channels: int


class DenseModel(Model):
    """Base class of models with a backbone.

    After `add_backbone`, the input of each appended piece is a tuple: the feature maps,
    deepest first, then the images. An option in `backbone_options` that is None has the
    backbone's default.
    """

    backbone_options: ClassVar[tuple[str, ...] | None] = (
        "width",
        "stem",
        "drop_path",
        "norm_epsilon",
        "padding",
    )

    _backbone_layers: tuple[str, ...] = ()

    @property
    def backbone_layers(self) -> tuple[str, ...]:
        """Names of the backbone layers."""
        return self._backbone_layers

    def add_backbone(
        self,
        name: str,
        image_shape: tuple[int, int, int],
        layers: Layers,
        *,
        keep: Container[str] | None = None,
        output_stride: int | None = None,
        **options: Any,
    ) -> tuple[Level, ...]:
        """Append the pieces of a classifier, except its head and auxiliary heads.

        Args:
          name: Name of the classifier in the config, such as resnet50.
          image_shape: Height, width and channels of the images.
          layers: Factory of the layers.
          keep: Names of layers. The input of a piece that contains one of these layers
            is saved as a feature map. By default, the last feature map of each stride
            is saved.
          output_stride: Maximum stride; beyond it, dilation replaces strides. Defaults
            to the classifier's stride.
          **options: Options of the classifier; None selects the classifier's default.

        Returns:
          Descriptions of the saved feature maps and of the backbone's output, in order
          of increasing stride.

        Raises:
          UserError: The classifier or an option is unknown, or the classifier has no
            spatial features.
        """
        made = _make(name, image_shape, layers, output_stride, options)
        pieces = _with_features(made, image_shape)
        if not pieces:
            raise UserError(
                f"model.backbone = {name!r} has no spatial features: choose another "
                "backbone"
            )
        self.stride, self.min_size = made.stride, made.min_size
        self.min_share = made.min_share
        levels = []
        stride, channels = 1, image_shape[2]
        for piece, level in zip(
            pieces, _levels(made, pieces, image_shape), strict=True
        ):
            is_first, is_last = piece is pieces[0], piece is pieces[-1]
            kept = (
                level.stride > stride
                if keep is None
                else any(layer in keep for layer in piece.names)
            )
            if kept and not is_first:
                levels.append(Level(stride, channels))
            own = {layer: getattr(made, layer) for layer in piece.names}
            apply = _carrying(piece.apply, is_first, is_last, kept and not is_first)
            self.add_piece(apply, **own)
            self._backbone_layers = (*self._backbone_layers, *own)
            stride, channels = level
        return (*levels, Level(stride, channels))


def _make(
    name: str,
    image_shape: tuple[int, int, int],
    layers: Layers,
    output_stride: int | None,
    options: dict[str, Any],
) -> Model:
    """Create the classifier of a backbone, without auxiliary heads."""
    kind = find_row(CLASSIFIERS, "model.backbone", name)
    if not (inspect.isclass(kind) and issubclass(kind, Model)):
        raise UserError(
            f"model.backbone = {name!r} is {kind!r}: expected a subclass of "
            "jaxtrain.models.base.Model (docs/extending.md)"
        )
    known = inspect.signature(kind.__init__).parameters
    given = {option: x for option, x in options.items() if x is not None}
    for option, value in given.items():
        if option not in known:
            raise UserError(
                f"model.{option} = {value!r} has no effect on model.backbone = "
                f"{name!r}: leave model.{option} out, or choose another backbone"
            )
    if output_stride is not None:
        if "max_stride" not in known:
            raise UserError(
                f"model.output_stride = {output_stride}: model.backbone = {name!r} "
                "does not support dilation instead of strides; choose a ResNet"
            )
        given["max_stride"] = output_stride
    if "aux_weight" in known:
        given["aux_weight"] = 0.0
    return kind(image_shape, 1, layers=layers, **given)


def _with_features(model: Model, image_shape: tuple[int, ...]) -> list[Piece]:
    """Return the leading pieces of a classifier, all with (B, H, W, C) outputs."""
    outputs = _outputs(model, model.pieces, image_shape)
    for index, x in enumerate(outputs):
        if any(len(part.shape) != 4 for part in jax.tree.leaves(x)):
            return list(model.pieces[:index])
    return list(model.pieces)


def _levels(
    model: Model, pieces: list[Piece], image_shape: tuple[int, ...]
) -> list[Level]:
    shape, found = (LARGE, LARGE, image_shape[2]), []
    rows, stride = LARGE, 1
    for x in _outputs(model, pieces, shape):
        parts = jax.tree.leaves(x)
        stride *= round(rows / parts[0].shape[1])
        rows = parts[0].shape[1]
        found.append(Level(stride, sum(part.shape[3] for part in parts)))
    return found


def _outputs(model: Model, pieces: Any, image_shape: tuple[int, ...]) -> list[Any]:
    """Outputs of the first pieces of a model, as `jax.ShapeDtypeStruct`."""
    model.eval()  # The trace must not update running statistics.

    def all_outputs(x: Any) -> list[Any]:
        outputs = []
        for piece in pieces:
            x = piece.apply(*(getattr(model, n) for n in piece.names), x, None)
            outputs.append(x)
        return outputs

    images = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
    found = jax.eval_shape(all_outputs, images)
    model.train()
    return found


def _carrying(
    apply: Callable[..., Any], is_first: bool, is_last: bool, keep: bool
) -> Callable[..., Any]:
    """Wrap the function `apply` of a backbone piece to pass on saved feature maps.

    Input and output become tuples: the current features; the saved feature maps, newest
    first; the images. With `keep`, the input features are saved, too. The input of the
    first piece is only the images.
    """

    @functools.wraps(apply)
    def carrying(*arguments: Any) -> tuple[Any, ...]:
        *own, x, rngs = arguments
        x, kept = (x, (x,)) if is_first else (x[0], x[1:])
        y = apply(*own, x, rngs)
        return _joined(y) if is_last else y, *((_joined(x),) if keep else ()), *kept

    return carrying


def _joined(x: Any) -> jax.Array:
    parts = jax.tree.leaves(x)
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)


def resized(x: jax.Array, size: tuple[int, int]) -> jax.Array:
    """Resize activations (B, rows, columns, C) bilinearly.

    Equals `interpolate(mode="bilinear", align_corners=False)` in PyTorch.
    """
    if x.shape[1:3] == size:
        return x
    shape = (x.shape[0], *size, x.shape[-1])
    return jax.image.resize(x, shape, "bilinear", antialias=False)


def doubled(x: jax.Array, size: tuple[int, int]) -> jax.Array:
    """Upsample activations (B, rows, columns, C) by 2 (nearest neighbour).

    If the result has one row or column more than `size`, the last row or column is
    dropped. If it differs from `size` by more, it is resized bilinearly.
    """
    batch, rows, columns, channels = x.shape
    x = jnp.broadcast_to(
        x[:, :, None, :, None], (batch, rows, 2, columns, 2, channels)
    ).reshape(batch, 2 * rows, 2 * columns, channels)
    if all(n - 1 <= wanted <= n for n, wanted in zip(x.shape[1:3], size, strict=True)):
        return x[:, : size[0], : size[1]]
    return resized(x, size)
