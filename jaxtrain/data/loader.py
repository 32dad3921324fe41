"""Input pipeline: batches of a split, in order, streamed and prefetched.

Each process reads only its slice of a global batch.
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxtrain.data import ahead
from jaxtrain.data.batch import BOX, Batch
from jaxtrain.data.batch_specs import train_numbers
from jaxtrain.data.datasets import Dataset
from jaxtrain.data.memory import flatten, unflatten
from jaxtrain.data.order import DataOrder
from jaxtrain.data.replacements import fill_in
from jaxtrain.errors import UserError
from jaxtrain.parallel import data_sharding

if TYPE_CHECKING:
    from jaxtrain.config import DataConfig
    from jaxtrain.data.image_source import Source

HostBatch = dict[str, Any]

# Key of the list of unreadable images in a host batch.
UNREADABLE = "unreadable"
# Number of stacked batches to transfer to the devices in advance.
PUT_AHEAD = 2


def make_order(config: DataConfig, source: Source, seed: int) -> DataOrder:
    """Return the order of the examples of a training split.

    Args:
      config: Data section of the config.
      source: Training split of the run.
      seed: Seed of the order.

    Raises:
      UserError: Balanced sampling is enabled, but there are no classes to balance.
    """
    groups = check_sampling(config, source)
    size, repeats = config.batch_size, config.repeats
    return DataOrder(seed, len(source), size, groups, repeats)


def check_sampling(config: DataConfig, source: Source) -> np.ndarray | None:
    """Check `data.sampling`; return the classes to balance, or None.

    Returns:
      Class of each example, (N,), or None without balanced sampling.

    Raises:
      UserError: Balanced sampling is enabled, but there are no classes to balance.
    """
    if config.sampling != "balanced":
        return None
    groups = source.strata()
    if groups.ndim > 1:
        raise UserError(
            "data.sampling = 'balanced' requires one class per image, but each image "
            "has several labels: leave data.sampling out"
        )
    if len(np.unique(groups[groups >= 0])) < 2:
        raise UserError(
            "data.sampling = 'balanced' has no effect: the training split has only one "
            "class; leave data.sampling out"
        )
    return groups


def train_batches(
    config: DataConfig,
    dataset: Dataset,
    mesh: Mesh,
    order: DataOrder,
    start: int,
    stop: int,
    rows: slice | None = None,
) -> Generator[HostBatch, None, None]:
    """Yield the training batch of each step from `start` to `stop`, exclusive.

    Args:
      config: Data section of the config.
      dataset: Training split to read.
      mesh: Mesh of the devices.
      order: Order of the examples.
      start: First step of the range.
      stop: End of the range, exclusive.
      rows: Slice of each global batch to read. Defaults to the slice of this process.
    """
    if rows is None:
        rows = data_sharding.local_rows(mesh, config.batch_size)
    numbers = functools.partial(_train_rows, order, rows, train_numbers(config))
    crop_seed = order.seed if dataset.source.canvas_shape else None
    steps = range(start, stop)
    with contextlib.closing(
        _stream(config, dataset, numbers, steps, crop_seed)
    ) as read:
        yield from read


def eval_batches(
    config: DataConfig, dataset: Dataset, mesh: Mesh, batch_size: int
) -> Generator[HostBatch, None, None]:
    """Yield the evaluation batches of a split; the last batch is padded.

    Args:
      config: Data section of the config.
      dataset: Split to read.
      mesh: Mesh of the devices; only the examples of this process are read.
      batch_size: Global batch size.
    """
    rows, num = data_sharding.local_rows(mesh, batch_size), len(dataset.source)
    numbers = functools.partial(
        _eval_rows, num, batch_size, rows, dataset.first, dataset.blank
    )
    return _stream(config, dataset, numbers, range(-(-num // batch_size)))


def all_batches(
    config: DataConfig, dataset: Dataset, mesh: Mesh, batch_size: int
) -> Generator[HostBatch, None, None]:
    """Yield batches of all training examples in index order.

    The last batch is filled up with the first examples.

    Args:
      config: Data section of the config.
      dataset: Training split to read.
      mesh: Mesh of the devices; only the examples of this process are read.
      batch_size: Global batch size.
    """
    num = len(dataset.source)
    order = np.arange(-(-num // batch_size) * batch_size).reshape(-1, batch_size) % num
    return chosen_batches(config, dataset, mesh, order)


def chosen_batches(
    config: DataConfig, dataset: Dataset, mesh: Mesh, chosen: np.ndarray
) -> Generator[HostBatch, None, None]:
    """Yield batches of chosen training examples.

    Args:
      config: Data section of the config.
      dataset: Training split to read.
      mesh: Mesh of the devices; only the examples of this process are read.
      chosen: Indices of the examples, (batches, global batch size).
    """
    rows = data_sharding.local_rows(mesh, chosen.shape[1])
    numbers = functools.partial(_chosen_rows, chosen, rows)
    return _stream(config, dataset, numbers, range(len(chosen)))


def feed(
    batches: Iterator[HostBatch], call_sizes: Iterator[int], mesh: Mesh, batch_size: int
) -> Generator[tuple[int, Batch], None, None]:
    """Stack the batches of each call of the compiled train step, and transfer them.

    The new leading axis is the step. Batches are transferred to the devices `PUT_AHEAD`
    calls in advance.

    Args:
      batches: Host batches, one per step.
      call_sizes: Number of steps of each call.
      mesh: Mesh of the devices.
      batch_size: Global batch size.

    Yields:
      Number of steps, and stacked batches, (steps, B, ...).
    """
    waiting: collections.deque[tuple[int, Batch]] = collections.deque()
    for num_steps in call_sizes:
        stack = [next(batches) for _ in range(num_steps)]
        stacked = jax.tree.map(lambda *x: np.stack(x) if x[1:] else x[0][None], *stack)
        waiting.append((num_steps, data_sharding.put_batch(mesh, stacked, batch_size)))
        if len(waiting) > PUT_AHEAD:
            yield waiting.popleft()
    yield from waiting


def _train_rows(
    order: DataOrder, rows: slice, names: tuple[str, ...], step: int
) -> HostBatch:
    numbers = {"index": order.indices(step)}
    if "repeat" in names:
        numbers["repeat"] = order.copies(numbers["index"])
    if "epoch" in names:
        numbers["epoch"] = np.full_like(numbers["index"], order.epoch(step))
    return {name: array[rows].astype(np.int32) for name, array in numbers.items()}


def _chosen_rows(chosen: np.ndarray, rows: slice, position: int) -> HostBatch:
    return {"index": chosen[position][rows].astype(np.int32)}


def _eval_rows(
    num: int, size: int, rows: slice, first: int, blank: tuple[int, ...], position: int
) -> HostBatch:
    index = np.arange(position * size, (position + 1) * size)[rows]
    mask = (index < num) & np.isin(index, blank, invert=True)
    index = first + np.where(index < num, index, 0)
    return {"index": index.astype(np.int32), "mask": mask.astype(np.int32)}


def _stream(
    config: DataConfig,
    dataset: Dataset,
    numbers: Callable[[int], HostBatch],
    positions: range,
    crop_seed: int | None = None,
) -> Generator[HostBatch, None, None]:
    """Yield host batches: arrays returned by `numbers`, and images and targets.

    If the split is cached on the devices, batches have no images and targets.

    Args:
      config: Data section of the config.
      dataset: Split to read.
      numbers: Function from a batch number to arrays (B,): the example indices `index`,
        and other arrays such as `mask`.
      positions: Batch numbers; steps for training.
      crop_seed: Seed of random crops. None disables them.
    """
    if dataset.on_device:
        yield from map(numbers, positions)
        return
    source, workers = dataset.source, config.workers
    if workers is None:
        workers = ahead.choose_workers(source.has_files, len(source))
    read = functools.partial(_read, numbers, source, crop_seed)
    if workers:
        packed = functools.partial(_read_packed, read)
        stream = ahead.by_workers(packed, positions.start, positions.stop, workers)
    else:
        copied = source.in_memory and crop_seed is None
        stream = ahead.by_threads(read, positions, 1 if copied else ahead.READ_THREADS)
    with contextlib.closing(stream) as batches:
        for batch in batches:
            dataset.defects.add(batch.pop(UNREADABLE, ()))
            if workers and source.canvas_shape and BOX in batch:
                batch = unflatten(batch, source.canvas_shape)
            yield batch


def _read(
    numbers: Callable[[int], HostBatch],
    source: Source,
    crop_seed: int | None,
    position: int,
) -> HostBatch:
    """Read the batch with the number `position`.

    Unreadable images are masked in evaluation, and replaced in training.
    """
    batch = numbers(position)
    index, unreadable, seeds = batch["index"], [], None
    if crop_seed is not None:
        # Seed of each random window: (seed, step, index), and `repeat` if present.
        first = (np.full(len(index), x) for x in (crop_seed, position))
        others = [batch[name] for name in ("index", "repeat") if name in batch]
        seeds = np.column_stack([*first, *others])
    read = source.read(index, seeds, unreadable)
    if not unreadable:
        return {**batch, **read}
    if "mask" in batch:
        bad = [one.index for one in unreadable]
        batch["mask"] = batch["mask"] * np.isin(index, bad, invert=True)
    else:
        read = fill_in(source, read, index, unreadable, seeds)
    return {**batch, **read, UNREADABLE: unreadable}


def _read_packed(read: Callable[[int], HostBatch], position: int) -> HostBatch:
    batch = read(position)
    return flatten(batch) if BOX in batch else batch
