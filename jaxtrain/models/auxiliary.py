"""Auxiliary heads, which compute outputs from intermediate layers, only in training.

Their losses give early layers stronger gradients (Szegedy et al. 2014, arXiv:1409.4842,
section 5).
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
    """Training outputs of a model with auxiliary heads, or of one of its pieces.

    Attributes:
      outputs: Outputs of the model or piece.
      auxiliary: Outputs of the auxiliary heads so far, each with the model's output
        shape.
      weight: Weight of each auxiliary loss in the total loss.
    """

    outputs: Any
    auxiliary: tuple[Any, ...]
    weight: float


def main_outputs(outputs: Any) -> Any:
    """Select the main outputs of a model, without auxiliary outputs."""
    return outputs.outputs if isinstance(outputs, WithAuxiliary) else outputs


def apply_to_main(apply: Callable[[Any], Any], x: Any) -> Any:
    """Apply a piece to main outputs; auxiliary outputs of earlier pieces bypass it."""
    if not isinstance(x, WithAuxiliary):
        return apply(x)
    y = apply(x.outputs)
    if not isinstance(y, WithAuxiliary):
        return dataclasses.replace(x, outputs=y)
    assert x.weight == y.weight, "the auxiliary heads of a model share one weight"
    return dataclasses.replace(y, auxiliary=(*x.auxiliary, *y.auxiliary))


class AuxiliaryHead(nnx.Module):
    """A piece that returns its input, and in training adds auxiliary outputs.

    Subclasses create the layers of the head and implement `outputs`.
    """

    def __init__(self, weight: float):
        self.weight = weight
        # The model's methods `train()` and `eval()` set this attribute.
        self.deterministic = False

    def __call__(self, x: Any, rngs: nnx.Rngs | None) -> Any:
        if self.deterministic:
            return x
        return WithAuxiliary(x, (self.outputs(x, rngs),), self.weight)

    def outputs(self, x: Any, rngs: nnx.Rngs | None) -> Any:
        """Compute the outputs of the head, with the model's output shape."""
        raise NotImplementedError
