"""Auxiliary heads: outputs from the middle of a model, which training looks at, too.

Their losses bring gradients to the early layers (Szegedy et al. 2014, arXiv:1409.4842,
section 5). In evaluation there are none.
"""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from flax import nnx


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["outputs", "auxiliary"],
    meta_fields=["weight"],
)
@dataclass(frozen=True)
class WithAuxiliary:
    """Outputs of a model in training, or of one of its pieces.

    Attributes:
      outputs: of the model, or of the piece.
      auxiliary: outputs of the auxiliary heads so far, each shaped as those of the
        model.
      weight: factor on the loss of each of these, beside the loss of `outputs`.
    """

    outputs: Any
    auxiliary: tuple[Any, ...]
    weight: float


def main_outputs(outputs: Any) -> Any:
    """Return the outputs of a model without those of its auxiliary heads."""
    return outputs.outputs if isinstance(outputs, WithAuxiliary) else outputs


def apply_beside(apply: Callable[[Any], Any], x: Any) -> Any:
    """Apply a piece to what came out of the one before.

    What auxiliary heads have put out goes past it.
    """
    if not isinstance(x, WithAuxiliary):
        return apply(x)
    y = apply(x.outputs)
    if not isinstance(y, WithAuxiliary):
        return dataclasses.replace(x, outputs=y)
    assert x.weight == y.weight, "the auxiliary heads of a model have one weight"
    return dataclasses.replace(y, auxiliary=(*x.auxiliary, *y.auxiliary))


class AuxiliaryHead(nnx.Module):
    """A piece that passes on what it gets, and in training adds outputs made of it.

    Subclasses create the layers, and say in `outputs` what is made of the activations.
    """

    def __init__(self, weight: float):
        self.weight = weight
        # Set by `train()` and `eval()` of the model.
        self.deterministic = False

    def __call__(self, x: Any, rngs: nnx.Rngs | None) -> Any:
        if self.deterministic:
            return x
        return WithAuxiliary(x, (self.outputs(x, rngs),), self.weight)

    def outputs(self, x: Any, rngs: nnx.Rngs | None) -> Any:
        """Return outputs, shaped as those of the model, of what the piece gets."""
        raise NotImplementedError
