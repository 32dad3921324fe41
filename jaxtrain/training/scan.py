"""A loop of steps in a compiled program: `lax.scan`, or unrolled where that pays."""

from collections.abc import Callable
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
    """Do what `jax.lax.scan(body, carry, xs)` does.

    `platform` is that of the devices it is compiled for; None: JAX's default.

    On CPU, and for a single pass, the body is written out once for each pass: XLA:CPU
    runs a convolution in a loop body on a slow path (measured: 20 times slower), and
    `scan(..., unroll=True)` still gives it a loop, of one pass.
    """
    length = jax.tree.leaves(xs)[0].shape[0]
    if length > 1 and (platform or jax.default_backend()) != "cpu":
        return jax.lax.scan(body, carry, xs)
    results = []
    for i in range(length):
        carry, result = body(carry, jax.tree.map(lambda x, i=i: x[i], xs))
        results.append(result)
    return carry, jax.tree.map(lambda *parts: jnp.stack(parts), *results)
