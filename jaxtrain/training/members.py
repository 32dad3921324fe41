"""The members of an ensemble, stacked: a program of one becomes a program of all."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.training.state import TrainState, join_state, part_state

# What the members of a step have together, where it is not a mean over those that took
# the step: a step is skipped if all members skip it.
TOGETHER: dict[str, Callable[[jax.Array], jax.Array]] = {
    "skipped": jnp.min,
    "bad_steps": jnp.max,
    "spike": jnp.max,
    "loss_scale": jnp.min,
    "learning_rate": jnp.max,
    "loss_limit": jnp.min,
}


def over_members(
    function: Callable[[Any], Any], stacked: Any, platform: str | None
) -> Any:
    """Return what a function makes of each member, stacked.

    Args:
      function: Function of the arrays of one member.
      stacked: Arrays of all members, (members, ...) each.
      platform: Platform that it is compiled for. On "cpu" the function is written out
        for each member: XLA:CPU has no fast path for the grouped convolutions that a
        `vmap` over kernels makes (measured: 5.6 times as slow). None writes it out,
        too, for programs that are the same everywhere.
    """
    if platform not in (None, "cpu"):
        return jax.vmap(function)(stacked)
    num = len(jax.tree.leaves(stacked)[0])
    results = [function(jax.tree.map(lambda x, i=i: x[i], stacked)) for i in range(num)]
    # As `jnp.stack` does, of operations that ONNX has, too.
    return jax.tree.map(
        lambda *parts: jnp.concatenate([x[None] for x in parts]), *results
    )


def step_members(
    one_step: Callable[[TrainState, jax.Array], tuple[TrainState, Any]],
    state: TrainState,
    roots: jax.Array,
    platform: str,
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Take a step of each member: `one_step` of its own state and root key.

    Returns:
      The state of all, and the metrics of the step: means over the members that took
      it, `members_skipped`, the number of the others, and `loss_spread`, the largest
      loss less the smallest.
    """
    own, shared = part_state(state)

    def of_member(parts: Any) -> tuple[Any, Any]:
        fields, root = parts
        new, metrics = one_step(join_state(fields, shared), root)
        return part_state(new)[0], metrics

    fields, metrics = over_members(of_member, (own, roots), platform)
    after = join_state(fields, shared)
    return replace(after, step=state.step + 1), _together(metrics)


def _together(metrics: dict[str, jax.Array]) -> dict[str, jax.Array]:
    skipped = metrics["skipped"]
    # If none took the step, the numbers are those of all.
    counted = (skipped == 0) | (skipped.min() > 0)

    def mean(x: jax.Array) -> jax.Array:
        return jnp.mean(x, where=counted)

    losses = metrics["loss"]
    largest = jnp.max(losses, where=counted, initial=-jnp.inf)
    smallest = jnp.min(losses, where=counted, initial=jnp.inf)
    return {
        **{name: TOGETHER.get(name, mean)(x) for name, x in metrics.items()},
        "members_skipped": skipped.sum(),
        "loss_spread": largest - smallest,
    }
