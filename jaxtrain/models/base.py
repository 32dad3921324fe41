"""Models: pieces in a row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import jax
import numpy as np
from flax import nnx

from jaxtrain import scopes
from jaxtrain.config.train import Remat
from jaxtrain.errors import UserError
from jaxtrain.models.auxiliary import apply_beside
from jaxtrain.models.centres import CENTRES
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers
from jaxtrain.models.named import name_layers
from jaxtrain.models.projection import PROJECTION
from jaxtrain.models.remat import Part, join
from jaxtrain.models.streams import drawing_from

KernelFromImages = Callable[[np.ndarray, tuple[int, ...]], np.ndarray]


@dataclass(frozen=True)
class Piece:
    """A part of a model, never cut.

    Attributes:
      names: of its layers, which are attributes of the model.
      apply: `(*layers, x, rngs) -> x`. What goes from piece to piece may be any pytree
        of floating-point arrays that have the batch as their first dim; those of four
        dims have rows and columns next. What auxiliary heads have put out goes past
        the pieces behind them (see `jaxtrain.models.auxiliary`).
    """

    names: tuple[str, ...]
    apply: Callable[..., Any]


class Model(nnx.Module):
    """A model that images [B, H, W, C] pass through, piece by piece.

    A model creates its layers with `add_piece` and has no others. `train()` and
    `eval()` switch them.
    """

    # Smallest height and width in pixels that leave the last layers any: of the class,
    # with any options; of a model, with its own.
    min_size: int = 1
    # Pixels of the image, in height and in width, that become one in the last layer of
    # convolutions.
    stride: int = 1
    # Least rows of that layer, and columns, on each device, where devices share images.
    min_share: int = 1
    # Whether the model is cut into pieces, between layers of known splits.
    has_pieces: ClassVar[bool] = True
    # Layers whose kernels a new run computes from training images before the first
    # step: name -> (normalised images [N, H, W, C], shape of the kernel) -> kernel.
    kernels_from_images: ClassVar[Mapping[str, KernelFromImages]] = {}

    # Options that are those of a classifier, the option `backbone`, whose layers come
    # first; None: there is no such option.
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
        """Create the layers; subclasses name their options and give the defaults.

        One with the keyword `output_spec` is given the shape of the outputs for an
        image, or a tree of shapes; `num_outputs` are the features of the last layer.
        """
        raise NotImplementedError

    @classmethod
    def constructor(cls) -> Callable[..., Any]:
        """Return the function whose keywords are the options of the model."""
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
        """Create the model: see `__init__`."""
        return cls(image_shape, num_outputs, layers=layers, **options)

    @classmethod
    def variant(cls, **attributes: Any) -> type[Self]:
        """Return a subclass with other attributes, such as the depths of stages."""
        return type(cls)(cls.__name__, (cls,), attributes)

    @property
    def backbone_layers(self) -> tuple[str, ...]:
        """Paths of the layers of the backbone: of all pieces before the head."""
        behind = {CENTRES, PROJECTION}
        pieces = [piece for piece in self.pieces if behind.isdisjoint(piece.names)]
        return tuple(name for piece in pieces[:-1] for name in piece.names)

    def add_piece(self, apply: Callable[..., Any], **layers: nnx.Module) -> None:
        """Append a piece: what `apply(*layers, x, rngs)` makes of `x`.

        Args:
          apply: a plain function, or the method of a class such as `Head.__call__`. It
            looks up no other layers: a pipeline stage holds only those of its pieces.
          **layers: by the names that they have in checkpoints.

        Raises:
          UserError: A name is that of another layer, or of a part of `Model`.
        """
        for name, layer in layers.items():
            if hasattr(self, name):
                taken = any(name in piece.names for piece in self.pieces)
                other = "another layer" if taken else "an attribute of every model"
                raise UserError(
                    f"model {type(self).__name__}: add_piece is given a layer "
                    f"{name!r}, which is the name of {other}: give it a name of its own"
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
        """Apply all pieces, or those of `part`, to `x`.

        The last one makes the outputs, [B, num_outputs] or as the task's
        `output_spec` says; in training they are the
        `outputs` of a `WithAuxiliary` if the model has auxiliary heads.

        Args:
          x: Images, or what the piece before `part` returned.
          key: Key of all that is random in training, such as dropout. Each piece draws
            from a key of its own, made from this and the piece's place in the model: so
            it draws the same whatever the others draw, and wherever the model is cut.
          part: Slice of consecutive pieces.
          remat: What a backward pass recomputes (see `jaxtrain.models.remat`).
          tied: Whether gradients are computed piece by piece (see there).
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
        """Have some layers compute as in an evaluation, by their paths."""
        for path, layer in nnx.iter_modules(self):
            if "/".join(map(str, path)) in layers:
                layer.eval()

    def drop_head(self) -> bool:
        """Return features from now on, the input of the last layer; False: has none."""
        # In the order of the pieces: auxiliary heads come before.
        layers = [getattr(self, n) for piece in self.pieces for n in piece.names]
        heads = [x for _, x in nnx.iter_graph(layers) if isinstance(x, Head)]
        if heads:
            heads[-1].bare = True
        return bool(heads)

    def make_part(self, index: int, piece: Piece) -> Part:
        """Return the forward pass of a piece."""
        return Part(piece.names, partial(_apply, index, piece))


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
    # Of what is between its layers, such as a ReLU, a pool or a sum.
    scope = scopes.layer("+".join(piece.names or [f"piece{index}"]) + "/rest")
    with scope, drawing_from(rngs):
        return apply_beside(lambda x: piece.apply(*own, x, rngs), x)
