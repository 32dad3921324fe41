"""What fits on a target: the largest batch, and what to change if a config does not."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jaxtrain.config import Config
from jaxtrain.errors import UserError, counted
from jaxtrain.parallel.mesh import BATCH_AXES, axis_sizes
from jaxtrain.performance.plan import Plan, Planner

# The largest batch is found to one part in so many.
RESOLUTION = 64


def largest_batch(planner: Planner, config: Config) -> Plan:
    """Return the plan of the largest batch that fits, to about one part in 64.

    Raises:
      UserError: not even the smallest batch fits, or there are too few examples for
        it.
    """
    num_devices = planner.target.num_devices
    if num_devices is None:
        num_devices = planner.plan(config).facts.num_devices
    unit = batch_unit(config, num_devices)
    num_examples = len(planner.splits.train)
    largest = num_examples // unit
    if largest == 0:
        raise UserError(
            f"--batch max: a batch for {counted(num_devices, 'device')} has a "
            f"multiple of {unit} examples, and the training split has "
            f"{num_examples}: use fewer devices, or a "
            "smaller parallel.batch_norm or train.accumulate_steps"
        )

    def attempt(num_units: int) -> Plan | None:
        plan = planner.plan(with_batch(config, num_units * unit))
        return plan if plan.fits else None

    start = max(1, config.data.batch_size // unit)
    found = search(attempt, min(start, largest), largest)
    if found is None:
        raise UserError(
            f"not even data.batch_size = {unit} fits on {planner.target}: use smaller "
            "images or a smaller model, or more devices with --parallel.preset fsdp"
        )
    return found


def with_batch(config: Config, size: int) -> Config:
    """Return a config with another batch, and evaluations of as many examples.

    A call is one step, the program that is compiled: the epochs of a large batch may
    have no more.

    Raises:
      UserError: no batch has so many.
    """
    if size < 1:
        raise UserError(f"--batch {size}: expected a number above 0, or max")
    data = replace(config.data, batch_size=size, eval_batch_size=None)
    return replace(config, data=data, train=replace(config.train, steps_per_call=1))


def changes(config: Config, num_devices: int) -> dict[str, tuple[str, Any]]:
    """Return what may lower the memory of a device, the cheapest in time first.

    Returns:
      The field and its new value, by their words.
    """
    found: list[tuple[str, Any]] = []
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
    return {f"{name} {value}": (name, value) for name, value in found}


def search(
    attempt: Callable[[int], Plan | None], start: int, largest: int
) -> Plan | None:
    """Return the result of the largest number that has one, to a part in 64.

    Args:
      attempt: returns a plan where one fits.
      start: the first number to try.
      largest: there is; both are above 0.

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
    """Return the size that would fit if all but state and kept data grew with it."""
    facts = plan.facts
    fixed = facts.state_bytes + (facts.input_bytes if facts.cached else 0)
    growing = max(1, facts.peak_bytes - fixed)
    step = max(1, size // RESOLUTION)
    return max(size + step, size * (plan.usable_bytes - fixed) // growing)


def batch_unit(config: Config, num_devices: int) -> int:
    """Return what a batch must be a multiple of (see `run.checks`).

    Raises:
      UserError: the mesh of the config does not fit the devices.
    """
    sizes = axis_sizes(config.parallel, num_devices)
    shards = math.prod(sizes[axis] for axis in BATCH_AXES)
    group = config.parallel.batch_norm
    micro = shards * (1 if group == "global" else group)
    mixed = config.data.repeats * (2 if config.data.augment.mixes else 1)
    return math.lcm(micro * config.train.accumulate_steps, mixed * shards)
