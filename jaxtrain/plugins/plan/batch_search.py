"""Search for the largest batch, or the fastest micro-batch, that fits in memory.

The caller supplies the function that tries a batch by planning it or by running steps.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from jaxtrain.config import Config
from jaxtrain.errors import UserError, counted
from jaxtrain.parallel.mesh import BATCH_AXES, axis_sizes

# The largest batch is found to within 1 / RESOLUTION of its size.
RESOLUTION = 64
# Minimum speed-up that counts as faster, above timing noise.
GAIN = 1.02


class Fitting(Protocol):
    """Protocol of a trial result for a batch that fits; bytes are per device."""

    @property
    def peak_bytes(self) -> int: ...

    @property
    def fixed_bytes(self) -> int:
        """Bytes that do not depend on the batch size."""
        ...

    @property
    def usable_bytes(self) -> int: ...

    @property
    def images_per_second(self) -> float | None: ...


F = TypeVar("F", bound=Fitting)


def largest_batch(
    attempt: Callable[[Config], F | None],
    config: Config,
    *,
    num_devices: int,
    most: int,
    option: str,
    limit: str = "the training split has",
) -> F | None:
    """Find the largest batch that fits in memory, to within 1/64 of its size.

    Args:
      attempt: Function from a config to the result of a trial; None if the batch does
        not fit in memory.
      config: Config with the batch to try first.
      num_devices: Number of devices that share a batch.
      most: Largest batch to try, such as the length of the training split.
      option: Command-line option that the error message names.
      limit: Description of `most` in the error message, such as "--largest is".

    Raises:
      UserError: `most` is smaller than the smallest possible batch, `batch_unit`.
    """
    unit = batch_unit(config, num_devices)
    if most < unit:
        raise UserError(
            f"{option}: a batch on {counted(num_devices, 'device')} must be a multiple "
            f"of {unit} examples, but {limit} only {most}: use fewer devices, or a "
            "smaller parallel.batch_norm or train.accumulate_steps"
        )
    start = max(1, config.data.batch_size // unit)
    return search(
        lambda num_units: attempt(with_batch(config, num_units * unit)),
        min(start, most // unit),
        most // unit,
    )


def search(attempt: Callable[[int], F | None], start: int, largest: int) -> F | None:
    """Find the largest batch size that fits in memory, to within 1/64.

    Memory grows about linearly with the batch size, so the search extrapolates linearly
    first, and then bisects.

    Args:
      attempt: Function from a batch size, in any unit, to the result of a trial; None
        if the batch does not fit in memory.
      start: First size to try, positive.
      largest: Largest size to try, positive.

    Returns:
      Result of the largest size that fits; None if no size fits.
    """
    fits, too_large, size = 0, largest + 1, start
    best: F | None = None
    while too_large - fits > max(1, fits // RESOLUTION):
        found = attempt(size)
        if found is None:
            too_large = size
        else:
            fits, best = size, found
        size = (fits + too_large) // 2
        if best is not None and too_large > largest:
            size = min(largest, _estimate(best, fits))
    return best


def _estimate(found: Fitting, size: int) -> int:
    """Estimate the largest size that fits, by linear extrapolation from `size`."""
    growing = max(1, found.peak_bytes - found.fixed_bytes)
    step = max(1, size // RESOLUTION)
    left = found.usable_bytes - found.fixed_bytes
    return max(size + step, size * left // growing)


def fastest(attempt: Callable[[int], F | None], counts: Sequence[int]) -> F | None:
    """Find the number of micro-batches with the highest throughput.

    The largest micro-batch is usually the fastest. The search therefore starts at the
    smallest number that fits in memory, and tries larger numbers while they are faster.

    Args:
      attempt: Function from a number of micro-batches to the result of a trial; None if
        a micro-batch does not fit in memory.
      counts: Candidate numbers of micro-batches, non-empty, ascending.

    Returns:
      Result of the fastest trial; None if no candidate fits.
    """
    tried: dict[int, F | None] = {}

    def at(index: int) -> F | None:
        if index not in tried:
            tried[index] = attempt(counts[index])
        return tried[index]

    last, too_small, fits = len(counts) - 1, -1, 0
    while at(fits) is None:
        if fits == last:
            return None
        too_small, fits = fits, min(2 * fits + 1, last)
    while fits - too_small > 1:
        middle = (fits + too_small) // 2
        if at(middle) is None:
            too_small = middle
        else:
            fits = middle
    best = at(fits)
    for index in range(fits + 1, last + 1):
        found = at(index)
        if not is_faster(found, best):
            break
        best = found
    return best


def is_faster(found: Fitting | None, than: Fitting | None) -> bool:
    """Whether both are given and `found` is over `GAIN` times as fast as `than`."""
    if found is None or than is None:
        return False
    return (found.images_per_second or 0) > GAIN * (than.images_per_second or 0)


def micro_batch_counts(config: Config, num_devices: int) -> list[int]:
    """Return the possible numbers of micro-batches for the batch size of a config.

    Raises:
      UserError: The batch size is not a multiple of `batch_unit`.
    """
    size, found = config.data.batch_size, list[int]()
    for count in (n for n in range(1, size + 1) if size % n == 0):
        try:
            changed = with_micro_batches(config, count)
        except UserError:
            continue  # The batch-norm group does not divide this micro-batch.
        if size % batch_unit(changed, num_devices) == 0:
            found.append(count)
    if not found:
        unit = batch_unit(with_micro_batches(config, 1), num_devices)
        raise UserError(
            f"data.batch_size = {size}: expected a multiple of {unit} on "
            f"{counted(num_devices, 'device')}"
        )
    return found


def with_batch(config: Config, size: int) -> Config:
    """Replace the batch size of a config, including the evaluation batch size.

    `train.steps_per_call` becomes 1, as an epoch of large batches may have fewer steps
    than one call.

    Raises:
      UserError: The batch size is not positive.
    """
    if size < 1:
        raise UserError(f"--batch {size}: expected a number above 0, or max")
    data = replace(config.data, batch_size=size, eval_batch_size=None)
    return replace(config, data=data, train=replace(config.train, steps_per_call=1))


def with_micro_batches(config: Config, count: int) -> Config:
    """Replace the number of micro-batches of a config.

    Raises:
      UserError: Batch-norm groups do not divide a micro-batch.
    """
    train = replace(config.train, accumulate_steps=count, steps_per_call=1)
    return replace(config, train=train)


def batch_unit(config: Config, num_devices: int) -> int:
    """Return the number that must divide the batch size.

    Raises:
      UserError: The mesh of the config does not fit the number of devices.
    """
    sizes = axis_sizes(config.parallel, num_devices)
    shards = math.prod(sizes[axis] for axis in BATCH_AXES)
    group = config.parallel.batch_norm
    micro = shards * (1 if group == "global" else group)
    mixed = config.data.repeats * config.data.augment.group
    return math.lcm(micro * config.train.accumulate_steps, mixed * shards)
