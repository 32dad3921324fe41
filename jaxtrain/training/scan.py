"""Loops in compiled programs: `lax.scan`, or unrolled on CPU."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

Carry = TypeVar("Carry")


def repeat(
    body: Callable[[Carry, Any], tuple[Carry, Any]],
    carry: Carry,
    xs: Any,
    platform: str | None = None,
) -> tuple[Carry, Any]:
    """Compute `jax.lax.scan(body, carry, xs)`; unroll the loop unless `scans(xs)`."""
    if scans(xs, platform):
        return jax.lax.scan(body, carry, xs)
    results = []
    for x in unstack(xs):
        carry, result = body(carry, x)
        results.append(result)
    return carry, jax.tree.map(lambda *parts: jnp.stack(parts), *results)


def scans(xs: Any, platform: str | None = None) -> bool:
    """Whether `repeat` compiles to a loop over `xs`.

    On CPU, and for a single iteration, the body is unrolled: XLA:CPU runs convolutions
    in a loop body on a slow path (measured: 20 times slower), and `scan(...,
    unroll=True)` still emits a loop of one iteration.

    Args:
      xs: Arrays with a leading axis of iterations.
      platform: Platform to compile for. Defaults to JAX's default backend.
    """
    platform = platform or jax.default_backend()
    return jax.tree.leaves(xs)[0].shape[0] > 1 and platform != "cpu"


def unstack(xs: Any) -> Iterator[Any]:
    """Yield slices of arrays along the leading axis."""
    for i in range(jax.tree.leaves(xs)[0].shape[0]):
        yield jax.tree.map(lambda x, i=i: x[i], xs)
