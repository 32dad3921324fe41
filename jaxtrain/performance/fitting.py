"""What fits on a target: the largest batch, and what to change if a config does not."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jaxtrain import config as config_lib
from jaxtrain.config import Config
from jaxtrain.errors import UserError
from jaxtrain.performance.facts import Facts
from jaxtrain.performance.plan import Plan, Planner

# The largest batch is found to one part in so many.
RESOLUTION = 64
# Fields of the config, with new values.
Change = tuple[str, Any]


def largest_batch(planner: Planner, config: Config) -> Plan:
    """Return the plan of the largest batch that fits, to about one part in 64.

    Raises:
      UserError: not even the smallest batch fits.
    """
    unit = _batch_unit(config, planner.facts(config)[0])
    largest = planner.num_examples // unit

    def attempt(num_units: int) -> Plan | None:
        changed = with_batch(config, num_units * unit)
        facts = planner.facts(changed)[0]
        if isinstance(facts, str):
            raise UserError(facts)
        plan = planner.plan_of(changed, facts)
        return plan if plan.fits else None

    start = max(1, config.data.batch_size // unit)
    found = _search(attempt, min(start, largest), largest)
    if found is None:
        raise UserError(
            f"not even data.batch_size = {unit} fits on {planner.target}: use smaller "
            "images or a smaller model, or more devices with --parallel.preset fsdp"
        )
    return found


def with_batch(config: Config, size: int) -> Config:
    """Return a config with another batch, and evaluations of as many examples."""
    data = replace(config.data, batch_size=size, eval_batch_size=None)
    return replace(config, data=data)


def changes(planner: Planner, plan: Plan) -> list[tuple[str, Plan | str]]:
    """Compile what may make a config fit: each change alone, and its plan.

    Returns:
      What to add to the command, and the plan with it, or why there is none.
    """
    candidates = _candidates(plan.config, planner.target.num_devices or 1)
    configs = [
        config_lib.replace(plan.config, name, value) for name, value in candidates
    ]
    return [
        (
            f"--{name.replace('_', '-')} {value}",
            facts if isinstance(facts, str) else planner.plan_of(config, facts),
        )
        for (name, value), config, facts in zip(
            candidates, configs, planner.facts(*configs), strict=True
        )
    ]


def _candidates(config: Config, num_devices: int) -> list[Change]:
    """Return what may lower the memory of a device, the cheapest in time first."""
    found: list[Change] = []
    if config.precision in ("fp32", "tf32"):
        found.append(("precision", "bf16"))
    if num_devices > 1 and config.parallel.preset == "data_parallel":
        found.append(("parallel.preset", "fsdp"))
    micro = config.train.accumulate_steps
    found += [
        ("train.accumulate_steps", factor * micro)
        for factor in (2, 4)
        if config.data.batch_size % (factor * micro) == 0
    ]
    if config.train.remat == "none":
        found += [("train.remat", name) for name in ("conv_outputs", "block", "full")]
    return found


def _search(
    attempt: Callable[[int], Plan | None], start: int, largest: int
) -> Plan | None:
    """Return the result of the largest number that has one.

    Memory grows about evenly with the batch: the next number is where it would be used
    up, then the middle of what is left open.
    """
    fits, too_large, size = 0, largest + 1, start
    best: Plan | None = None
    while too_large - fits > max(1, fits // RESOLUTION):
        plan = attempt(size)
        if plan is None:
            too_large = size
        else:
            fits, best = size, plan
        size = (fits + too_large) // 2
        if best is not None and too_large > largest:
            size = min(largest, _estimate(best, fits))
    return best


def _estimate(plan: Plan, size: int) -> int:
    """Return the size that would fit if all but the state grew with it."""
    state = plan.facts.state_bytes
    growing = max(1, plan.facts.peak_bytes - state)
    step = max(1, size // RESOLUTION)
    return max(size + step, size * (plan.usable_bytes - state) // growing)


def _batch_unit(config: Config, facts: Facts | str) -> int:
    """Return what a batch must be a multiple of."""
    if isinstance(facts, str):
        raise UserError(facts)
    shards = math.prod(facts.mesh.get(axis, 1) for axis in ("data", "fsdp"))
    group = config.parallel.batch_norm
    micro = shards if group == "global" else math.lcm(shards, group)
    return micro * config.train.accumulate_steps
