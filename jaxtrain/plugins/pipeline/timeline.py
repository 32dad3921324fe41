"""One-forward-one-backward (1F1B) schedule of a pipeline, and its bubble.

PipeDream-Flush (Narayanan et al. 2021, arXiv:2006.09503): a stage runs forward passes
until the pipeline is full, then alternates forward and backward passes, then runs the
remaining backward passes. Stage s of S stores the activations of at most S - s
micro-batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

# A backward pass computes input and parameter gradients, each about as costly as the
# forward pass.
BACKWARD_COST = 2.0


class Op(NamedTuple):
    """A pass of one micro-batch through one stage."""

    stage: int
    kind: Literal["forward", "backward"]
    micro: int


@dataclass(frozen=True)
class Timeline:
    """All passes of a step, and the bubble of the pipeline.

    Attributes:
      ops: Passes in the order of their start.
      idle_share: Bubble fraction: idle time / step time, averaged over stages.
    """

    ops: tuple[Op, ...]
    idle_share: float


def stage_order(stage: int, num_stages: int, num_micro: int) -> list[Op]:
    """Passes of one stage in the order of execution."""
    num_ahead = min(num_micro, num_stages - 1 - stage)
    order = [Op(stage, "forward", micro) for micro in range(num_ahead)]
    for micro in range(num_micro):
        if micro + num_ahead < num_micro:
            order.append(Op(stage, "forward", micro + num_ahead))
        order.append(Op(stage, "backward", micro))
    return order


def simulate(costs: Sequence[float], num_micro: int) -> Timeline:
    """Simulate the schedule: a pass starts when its stage and its input are ready.

    Args:
      costs: Cost of a forward pass per stage, in any unit, positive.
      num_micro: Number of micro-batches in a step.

    Returns:
      Timeline of the step. For S equal stages and M micro-batches, `idle_share` is
      (S - 1) / (M + S - 1).
    """
    num_stages = len(costs)
    left = [stage_order(s, num_stages, num_micro) for s in range(num_stages)]
    free_at = [0.0] * num_stages
    done_at: dict[Op, float] = {}
    started: list[tuple[float, Op]] = []
    while any(left):
        for stage, queue in enumerate(left):
            while queue and all(n in done_at for n in _needs(queue[0], num_stages)):
                op = queue.pop(0)
                inputs = [done_at[n] for n in _needs(op, num_stages)]
                start = max(free_at[stage], *inputs, 0.0)
                factor = BACKWARD_COST if op.kind == "backward" else 1.0
                done_at[op] = free_at[stage] = start + factor * costs[stage]
                started.append((start, op))
    work = (1 + BACKWARD_COST) * num_micro * sum(costs)
    idle_share = 1 - work / (num_stages * max(free_at))
    started.sort(key=lambda item: item[0])
    return Timeline(tuple(op for _, op in started), idle_share)


def _needs(op: Op, num_stages: int) -> list[Op]:
    """List the pass of an adjacent stage that `op` depends on; empty if none."""
    before = op.stage + (-1 if op.kind == "forward" else 1)
    return [op._replace(stage=before)] if 0 <= before < num_stages else []
