"""A loop of steps in a compiled program: `lax.scan`, or unrolled where that pays."""

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
    """Do what `jax.lax.scan(body, carry, xs)` does, unrolled unless it `scans`."""
    if scans(xs, platform):
        return jax.lax.scan(body, carry, xs)
    results = []
    for x in unstack(xs):
        carry, result = body(carry, x)
        results.append(result)
    return carry, jax.tree.map(lambda *parts: jnp.stack(parts), *results)


def scans(xs: Any, platform: str | None = None) -> bool:
    """Whether passes over `xs` are a loop in the program.

    On CPU, and for a single pass, the body is written out once for each pass: XLA:CPU
    runs a convolution in a loop body on a slow path (measured: 20 times slower), and
    `scan(..., unroll=True)` still gives it a loop, of one pass.

    Args:
      xs: Arrays with a leading axis of passes.
      platform: Platform that it is compiled for. Defaults to that of JAX.
    """
    platform = platform or jax.default_backend()
    return jax.tree.leaves(xs)[0].shape[0] > 1 and platform != "cpu"


def unstack(xs: Any) -> Iterator[Any]:
    """Yield the parts of arrays along their leading axis."""
    for i in range(jax.tree.leaves(xs)[0].shape[0]):
        yield jax.tree.map(lambda x, i=i: x[i], xs)
