"""The members of an ensemble, stacked: a program of one becomes a program of all."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from jaxtrain.parallel.mesh import MEMBERS, on_each_device
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
    function: Callable[..., Any],
    stacked: Any,
    shared: tuple[Any, ...],
    platform: str | None,
    mesh: Mesh | None = None,
) -> Any:
    """Return what a function makes of each member, stacked.

    Args:
      function: Function of the arrays of one member, and of those that all share.
      stacked: Arrays of all members, (members, ...) each.
      shared: Further arguments, the same for each member. Where a mesh splits the
        members the function must not close over traced arrays instead: they are of the
        whole mesh, and JAX refuses to index them.
      platform: Platform that it is compiled for. On "cpu" the function is written out
        for each member: XLA:CPU has no fast path for the grouped convolutions that a
        `vmap` over kernels makes (measured: 5.6 times as slow). None writes it out,
        too, for programs that are the same everywhere.
      mesh: Mesh whose axis `members` splits the members: its devices compute their part
        of them, and exchange nothing. None splits nothing.
    """
    if mesh is not None and mesh.shape[MEMBERS] > 1:
        part = P(MEMBERS)
        # What is computed of the members of a device is never the same on others, which
        # JAX would have said of each constant.
        return on_each_device(
            lambda own, *shared: over_members(function, own, shared, platform),
            mesh,
            in_specs=(part, *(P() for _ in shared)),
            out_specs=part,
            axes=(MEMBERS,),
            check_vma=False,
        )(stacked, *shared)
    if platform not in (None, "cpu"):
        return jax.vmap(lambda own: function(own, *shared))(stacked)
    num = len(jax.tree.leaves(stacked)[0])
    each = (jax.tree.map(lambda x, i=i: x[i], stacked) for i in range(num))
    results = [function(own, *shared) for own in each]
    # As `jnp.stack` does, of operations that ONNX has, too.
    return jax.tree.map(
        lambda *parts: jnp.concatenate([x[None] for x in parts]), *results
    )


def step_members(
    one_step: Callable[..., tuple[TrainState, Any]],
    state: TrainState,
    roots: jax.Array,
    others: Any,
    shared: tuple[Any, ...],
    platform: str,
    mesh: Mesh | None = None,
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Take a step of each member: `one_step(state, root, others, *shared)`.

    Args:
      one_step: Step of one member.
      state: State of all, stacked.
      roots: Root keys of the members, (members,).
      others: What else each member has of its own, (members, ...) each.
      shared: Further arguments, the same for each member.
      platform: As `over_members` takes it.
      mesh: Mesh whose axis `members` splits the members; None splits nothing.

    Returns:
      The state of all, and the metrics of the step: means over the members that took
      it, `members_skipped`, the number of the others, and `loss_spread`, the largest
      loss less the smallest.
    """
    own, common = part_state(state)

    def of_member(parts: Any, common: Any, *shared: Any) -> tuple[Any, Any]:
        fields, root, others = parts
        new, metrics = one_step(join_state(fields, common), root, others, *shared)
        return part_state(new)[0], metrics

    fields, metrics = over_members(
        of_member, (own, roots, others), (common, *shared), platform, mesh
    )
    after = join_state(fields, common)
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
