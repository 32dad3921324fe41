"""Base class of models: a sequence of pieces."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import jax
import numpy as np
from flax import nnx

from jaxtrain import scopes
from jaxtrain.config.model import ModelConfig
from jaxtrain.config.train import Remat
from jaxtrain.errors import UserError
from jaxtrain.models.auxiliary import apply_to_main
from jaxtrain.models.centres import CENTRES
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers
from jaxtrain.models.named import name_layers
from jaxtrain.models.projection import PROJECTION
from jaxtrain.models.remat import Segment, join
from jaxtrain.models.streams import drawing_from

KernelFromImages = Callable[[np.ndarray, tuple[int, ...]], np.ndarray]


@dataclass(frozen=True)
class Piece:
    """The smallest unit of a model for pipeline stages and rematerialization.

    Attributes:
      names: Names of the piece's layers, which are attributes of the model.
      apply: Function `(*layers, x, rngs) -> x`. `x` is any pytree of floating-point
        arrays (B, ...); four-dimensional arrays are (B, H, W, C). Auxiliary outputs
        bypass later pieces (see `jaxtrain.models.auxiliary`).
    """

    names: tuple[str, ...]
    apply: Callable[..., Any]


class Model(nnx.Module):
    """A sequence of pieces that maps images [B, H, W, C] to outputs.

    Subclasses create all layers with `add_piece`. `train()` and `eval()` set the mode
    of the layers.
    """

    # Smallest supported height and width in pixels. The class has the minimum over all
    # options; an instance may have a larger value.
    min_size: int = 1
    # Output stride of the last convolutional layer, in pixels.
    stride: int = 1
    # Under spatial sharding: minimum height and width of a device's shard, in the
    # output of the last convolutional layer.
    min_share: int = 1
    # Whether the model has several pieces, and its layers declare how they are split
    # over the `model` axis. False for plain Flax modules.
    has_pieces: ClassVar[bool] = True
    # Layer name -> function that returns the initial kernel of the layer, from
    # normalized training images [N, H, W, C] and the kernel shape.
    kernels_from_images: ClassVar[Mapping[str, KernelFromImages]] = {}

    # Config class with the constructor's options as fields. None means
    # `jaxtrain.config.CustomModelConfig`.
    Options: ClassVar[type[ModelConfig] | None] = None
    # Names of the options that are passed on to the backbone, a classifier that is
    # named by the option `backbone`. None for models without a backbone.
    backbone_options: ClassVar[tuple[str, ...] | None] = None

    pieces: tuple[Piece, ...] = ()

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        **options: Any,
    ):
        """Create the layers; subclasses declare options as keyword arguments.

        `num_outputs` is the number of output features of the last layer. Subclasses may
        have a keyword argument `output_spec`: output shape for one image, or tree of
        shapes.
        """
        raise NotImplementedError

    @classmethod
    def constructor(cls) -> Callable[..., Any]:
        """Return the function whose keyword arguments are the options of the model."""
        return cls.__init__

    @classmethod
    def create(
        cls,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        **options: Any,
    ) -> "Model":
        """Create the model; the arguments are described in `__init__`."""
        return cls(image_shape, num_outputs, layers=layers, **options)

    @classmethod
    def variant(cls, **attributes: Any) -> type[Self]:
        """Create a subclass with other class attributes, such as stage depths."""
        return type(cls)(cls.__name__, (cls,), attributes)

    @property
    def backbone_layers(self) -> tuple[str, ...]:
        """Paths of the backbone layers: the layers of all pieces before the head."""
        behind = {CENTRES, PROJECTION}
        pieces = [piece for piece in self.pieces if behind.isdisjoint(piece.names)]
        return tuple(name for piece in pieces[:-1] for name in piece.names)

    def add_piece(self, apply: Callable[..., Any], **layers: nnx.Module) -> None:
        """Append a piece that computes `apply(*layers, x, rngs)`.

        Args:
          apply: Plain function, or unbound method such as `Head.__call__`. It must use
            only `layers`: other layers may be on devices of another pipeline stage.
          **layers: Layers by name. The names are also part of parameter paths.

        Raises:
          UserError: A name is used by another layer, or by an attribute of `Model`.
        """
        for name, layer in layers.items():
            if hasattr(self, name):
                taken = any(name in piece.names for piece in self.pieces)
                other = "another layer" if taken else "an attribute of every model"
                raise UserError(
                    f"model {type(self).__name__}: add_piece got the layer name "
                    f"{name!r}, which is already the name of {other}; rename the layer"
                )
            setattr(self, name, layer)
            name_layers(name, layer)
        self.pieces = (*self.pieces, Piece(tuple(layers), apply))

    def __call__(
        self,
        x: Any,
        *,
        key: jax.Array | None = None,
        part: slice = slice(None),
        remat: Remat = "none",
        tied: bool = False,
    ) -> Any:
        """Apply all pieces, or only the pieces in `part`, to `x`.

        Outputs of the full model are [B, num_outputs], or have the shapes of
        `output_spec`. In training, a model with auxiliary heads returns
        `WithAuxiliary`.

        Args:
          x: Images, or the output of the pieces before `part`.
          key: PRNG key for training, such as for dropout. The index of each piece is
            folded in, so that random numbers depend neither on other pieces nor on
            stages.
          part: Slice of consecutive pieces.
          remat: Policy of rematerialization (see `jaxtrain.models.remat`).
          tied: Whether XLA must compute gradients piece by piece (see `remat.join`).
        """
        whole = join(
            remat,
            [
                self.make_part(index, piece)
                for index, piece in list(enumerate(self.pieces))[part]
            ],
            tied=tied,
        )
        return whole.apply({n: getattr(self, n) for n in whole.names}, x, key)

    def evaluate_layers(self, layers: frozenset[str]) -> None:
        """Set the layers with the given paths to evaluation mode."""
        for path, layer in nnx.iter_modules(self):
            if "/".join(map(str, path)) in layers:
                layer.eval()

    def drop_head(self) -> bool:
        """Remove the last head, so that the model returns features.

        Returns:
          Whether the model had a head.
        """
        # The layers are in the order of the pieces; auxiliary heads precede the head.
        layers = [getattr(self, n) for piece in self.pieces for n in piece.names]
        heads = [x for _, x in nnx.iter_graph(layers) if isinstance(x, Head)]
        if heads:
            heads[-1].bare = True
        return bool(heads)

    def make_part(self, index: int, piece: Piece) -> Segment:
        """Create a `Segment` of one piece, for `remat.join`."""
        return Segment(piece.names, partial(_apply, index, piece))


def _apply(
    index: int,
    piece: Piece,
    layers: Mapping[str, nnx.Module],
    x: Any,
    key: jax.Array | None,
) -> Any:
    rngs = None
    if key is not None:
        rngs = nnx.Rngs(dropout=jax.random.fold_in(key, index))
    own = [layers[name] for name in piece.names]
    # Named scope of operations outside of the layers, such as ReLU, pooling or a sum.
    scope = scopes.layer("+".join(piece.names or [f"piece{index}"]) + "/rest")
    with scope, drawing_from(rngs):
        return apply_to_main(lambda x: piece.apply(*own, x, rngs), x)
