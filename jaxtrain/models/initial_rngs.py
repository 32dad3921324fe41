"""The source of a model's initial weights."""

import jax
from flax import nnx


class _Counted(nnx.RngStream):
    """A stream that counts its keys in Python: in a trace they are constants.

    Flax counts in an array. Under a trace it then looks, for each key, through all that
    was traced before: for ResNet-152 that takes most of the time in which it is built.
    """

    def __init__(self, key: jax.Array, *, tag: str):
        super().__init__(key, tag=tag)
        self.taken = 0

    def __call__(self) -> jax.Array:
        key = jax.random.fold_in(self.key[...], self.taken)
        self.taken += 1
        return key


def initial_rngs(key: jax.Array) -> nnx.Rngs:
    """Return what gives the keys that `nnx.Rngs(params=key)` would."""
    rngs = nnx.Rngs()
    rngs.params = _Counted(key, tag="params")  # pyright: ignore[reportAttributeAccessIssue]
    return rngs
