"""RNG streams for layers that draw random numbers, such as `nnx.Dropout`.

Random numbers depend only on seed, step and piece of the model. Therefore, streams have
no state, and checkpoints contain no RNG state.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.errors import UserError

# RNG streams of the current piece; None in evaluation.
_keys: ContextVar[nnx.Rngs | None] = ContextVar("keys", default=None)


class CountedStream(nnx.RngStream):
    """RNG stream whose counter is an int, and therefore a constant in traces.

    Flax's counter is an array, and each update of it in a trace searches all traced
    equations, which takes most of the time to build a ResNet-152.
    """

    def __init__(self, key: jax.Array, *, tag: str):
        super().__init__(key, tag=tag)
        self.taken = 0

    def __call__(self) -> jax.Array:
        key = jax.random.fold_in(self.key[...], self.taken)
        # `vars` bypasses a check of Flax, which refuses to set attributes of an object
        # from an outer trace. Flax transforms draw keys in inner traces.
        vars(self)["taken"] += 1
        return key


class PieceStream(nnx.RngStream):
    """RNG stream without state; keys are drawn from the current piece's streams."""

    def __call__(self) -> jax.Array:
        rngs = _keys.get()
        if rngs is None:
            raise UserError(
                f"a layer draws from the RNG stream {self.tag!r} in evaluation; "
                "draw only if not self.deterministic (set by train() and eval() of the "
                "model), as in nnx.Dropout"
            )
        return rngs.dropout()

    def fork(self, *, split: int | tuple[int, ...] | None = None) -> nnx.RngStream:
        return nnx.RngStream(self(), tag=self.tag).fork(split=split)

    def split(self, k: int | tuple[int, ...]) -> nnx.RngStream:
        return nnx.RngStream(self(), tag=self.tag).split(k)

    def broadcast(self, k: int | tuple[int, ...]) -> nnx.RngStream:
        return nnx.RngStream(self(), tag=self.tag).broadcast(k)


@contextlib.contextmanager
def drawing_from(rngs: nnx.Rngs | None) -> Iterator[None]:
    """Make the `PieceStream`s of layers draw keys from `rngs` within the context."""
    token = _keys.set(rngs)
    try:
        yield
    finally:
        _keys.reset(token)


def use_keys_of_pieces(model: nnx.Module) -> None:
    """Convert all RNG streams in a model's layers to `PieceStream`s.

    Raises:
      UserError: A layer stores a PRNG key outside of an RNG stream.
    """
    for _, node in nnx.iter_graph(model):
        if isinstance(node, nnx.RngStream) and not isinstance(node, PieceStream):
            del node.key, node.count
            object.__setattr__(node, "__class__", PieceStream)
    for path, variable in nnx.to_flat_state(nnx.state(model)):
        dtype = getattr(variable, "dtype", None)
        if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
            raise UserError(
                f"model {type(model).__name__}: {'/'.join(map(str, path))} is a PRNG "
                "key, which checkpoints cannot store; use the `rngs` passed to the "
                "forward pass, or store an nnx.Rngs in the layer"
            )
