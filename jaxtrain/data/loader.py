"""From a source to batches on the devices: order, share, cache or stream."""

import collections
import contextlib
import functools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxtrain.config import DataConfig
from jaxtrain.data import ahead
from jaxtrain.data.batch import Batch
from jaxtrain.data.batch_specs import train_numbers
from jaxtrain.data.canvas import BOX, flatten, unflatten
from jaxtrain.data.defects import Defects
from jaxtrain.data.image_source import Source, Unreadable
from jaxtrain.data.order import DataOrder
from jaxtrain.data.sources import Splits
from jaxtrain.data.stores import ArrayStore
from jaxtrain.errors import UserError
from jaxtrain.parallel import sharding

HostBatch = dict[str, Any]

# A set is kept on the device if it takes at most this part of its memory.
CACHE_FRACTION = 0.25
# What stands for the device's memory where it does not tell, as on CPU.
ASSUMED_DEVICE_BYTES = 8 * 2**30
# Of a batch on the host: those of its images that could not be read.
UNREADABLE = "unreadable"
# Examples that are read at once of a set that goes to the device.
READ_BLOCK = 512
PUT_AHEAD = 2


@dataclass(frozen=True)
class Dataset:
    """One split, and where its examples lie on the device.

    Attributes:
      source: The split.
      on_device: The arrays of all splits, one after the other; {} if streamed.
      first: The split's first example in these arrays.
      defects: Its unreadable images, as far as they were met.
      blank: Numbers of those on the device that an evaluation leaves out.
    """

    source: Source
    on_device: Any
    defects: Defects
    first: int = 0
    blank: tuple[int, ...] = ()


def make_order(config: DataConfig, source: Source, seed: int) -> DataOrder:
    """Return the order in which a training split is gone through.

    Raises:
      UserError: there are no classes to balance.
    """
    groups = check_sampling(config, source)
    size, repeats = config.batch_size, config.repeats
    return DataOrder(seed, len(source), size, groups, repeats)


def check_sampling(config: DataConfig, source: Source) -> np.ndarray | None:
    """Return the groups that are sampled alike, (N,); None: there are none."""
    if config.sampling != "balanced":
        return None
    groups = source.strata()
    if groups.ndim > 1:
        raise UserError(
            "data.sampling = 'balanced' takes as many images of each class, and these "
            "have several labels each: leave it out"
        )
    if len(np.unique(groups[groups >= 0])) < 2:
        raise UserError(
            "data.sampling = 'balanced' has no effect: the training split has one class"
        )
    return groups


def should_cache(
    config: DataConfig, splits: Splits, device_bytes: int | None = None
) -> bool:
    """Return whether the images of all splits stay on the device.

    Args:
      device_bytes: Memory of a device; defaults to that of this process's first one.
    """
    if config.cache == "auto":
        if config.workers or splits.train.canvas_shape:
            return False
        sources = splits.named().values()
        itemsize = np.dtype(splits.train.dtype).itemsize
        size = sum(itemsize * len(s) * int(np.prod(s.image_shape)) for s in sources)
        return size <= cache_bytes(device_bytes)
    return config.cache == "device"


def cache_bytes(device_bytes: int | None = None) -> int:
    """Return the bytes that a set may take of a device's memory."""
    if device_bytes is None:
        stats = jax.local_devices()[0].memory_stats() or {}
        device_bytes = stats.get("bytes_limit")
    return int(CACHE_FRACTION * (device_bytes or ASSUMED_DEVICE_BYTES))


def make_datasets(
    splits: Splits, mesh: Mesh, cache: bool, max_bad_fraction: float
) -> tuple[Dataset, Dataset | None, Dataset]:
    """Put all splits onto every device, or leave them to be streamed.

    The splits share one array, so that one program evaluates any of them. The training
    split comes first: its examples keep their numbers.

    Raises:
      UserError: more images than `max_bad_fraction` of a split are unreadable.
    """
    datasets = {
        name: Dataset(source, {}, Defects(name, len(source), max_bad_fraction))
        for name, source in splits.named().items()
    }
    if cache:
        datasets = _on_device(datasets, mesh)
    return datasets["train"], datasets.get("validation"), datasets["test"]


def _on_device(streamed: dict[str, Dataset], mesh: Mesh) -> dict[str, Dataset]:
    read, blank = [], {}
    for name, dataset in streamed.items():
        source = dataset.source
        batch, unreadable = read_all(source)
        dataset.defects.add(unreadable)
        if name == "train" and unreadable:
            everything = np.arange(len(source))
            batch, unreadable = source.fill_in(batch, everything, unreadable), []
        read.append(batch)
        blank[name] = tuple(bad.index for bad in unreadable)
    arrays = jax.tree.map(lambda *parts: np.concatenate(parts), *read)
    on_device = jax.device_put(arrays, sharding.replicated(mesh))
    facts = streamed["train"].source.facts
    store = ArrayStore(arrays["image"], arrays["target"], facts)
    datasets, first = {}, 0
    for name, dataset in streamed.items():
        indices = first + np.arange(len(dataset.source))
        # Reads from memory what the source has read from disk.
        part = Source(store, indices, dataset.source.image_shape, max_pixels=0)
        datasets[name] = Dataset(part, on_device, dataset.defects, first, blank[name])
        first += len(indices)
    return datasets


def read_all(source: Source) -> tuple[dict[str, Any], list[Unreadable]]:
    """Return all examples of a split, and those that are unreadable.

    They are read in blocks, by threads, so that no more files lie in memory than these.
    """

    def read(start: int) -> tuple[dict[str, Any], list[Unreadable]]:
        unreadable: list[Unreadable] = []
        block = np.arange(start, min(start + READ_BLOCK, len(source)))
        return source.read(block, unreadable=unreadable), unreadable

    starts = range(0, len(source), READ_BLOCK)
    parts = list(ahead.by_threads(read, starts, ahead.READ_THREADS))
    batches = [batch for batch, _ in parts]
    whole = jax.tree.map(lambda *arrays: np.concatenate(arrays), *batches)
    return whole, [bad for _, unreadable in parts for bad in unreadable]


def train_batches(
    config: DataConfig,
    dataset: Dataset,
    mesh: Mesh,
    order: DataOrder,
    start: int,
    stop: int,
    rows: slice | None = None,
) -> Generator[HostBatch, None, None]:
    """Yield the batches of steps `start` to `stop`.

    Args:
      rows: Rows of each batch; defaults to those of this process.
    """
    if rows is None:
        rows = sharding.local_rows(mesh, config.batch_size)
    numbers = functools.partial(_train_rows, order, rows, train_numbers(config))
    crop_seed = order.seed if dataset.source.canvas_shape else None
    steps = range(start, stop)
    with contextlib.closing(_run(config, dataset, numbers, steps, crop_seed)) as read:
        yield from read


def eval_batches(
    config: DataConfig, dataset: Dataset, mesh: Mesh, batch_size: int
) -> Generator[HostBatch, None, None]:
    """Yield this process's rows of a pass over the split, the last batch padded."""
    rows, num = sharding.local_rows(mesh, batch_size), len(dataset.source)
    numbers = functools.partial(
        _eval_rows, num, batch_size, rows, dataset.first, dataset.blank
    )
    return _run(config, dataset, numbers, range(-(-num // batch_size)))


def all_batches(
    config: DataConfig, dataset: Dataset, mesh: Mesh, batch_size: int
) -> Generator[HostBatch, None, None]:
    """Yield this process's rows of all training examples, each as training sees it.

    The last batch is filled up with the first examples.
    """
    rows, num = sharding.local_rows(mesh, batch_size), len(dataset.source)
    numbers = functools.partial(_rows_in_order, num, batch_size, rows)
    return _run(config, dataset, numbers, range(-(-num // batch_size)))


def chosen_batches(
    config: DataConfig, dataset: Dataset, mesh: Mesh, chosen: np.ndarray
) -> Generator[HostBatch, None, None]:
    """Yield this process's rows of batches of the training split.

    Args:
      chosen: Numbers of the examples, (batches, batch size).
    """
    rows = sharding.local_rows(mesh, chosen.shape[1])
    numbers = functools.partial(_chosen_rows, chosen, rows)
    return _run(config, dataset, numbers, range(len(chosen)))


def feed(
    batches: Iterator[HostBatch], call_sizes: Iterator[int], mesh: Mesh, batch_size: int
) -> Generator[tuple[int, Batch], None, None]:
    """Stack the batches of each call, and keep the next calls' on the device.

    Args:
      call_sizes: Number of steps that each call runs.
    """
    waiting: collections.deque[tuple[int, Batch]] = collections.deque()
    for num_steps in call_sizes:
        stack = [next(batches) for _ in range(num_steps)]
        stacked = jax.tree.map(_stack, *stack)
        waiting.append((num_steps, sharding.put_batch(mesh, stacked, batch_size)))
        if len(waiting) > PUT_AHEAD:
            yield waiting.popleft()
    yield from waiting


def _stack(*arrays: np.ndarray) -> np.ndarray:
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)


def _train_rows(
    order: DataOrder, rows: slice, names: tuple[str, ...], step: int
) -> HostBatch:
    numbers = {"index": order.indices(step)}
    if "repeat" in names:
        numbers["repeat"] = order.copies(numbers["index"])
    if "epoch" in names:
        numbers["epoch"] = np.full_like(numbers["index"], order.epoch(step))
    return {name: array[rows].astype(np.int32) for name, array in numbers.items()}


def _rows_in_order(num: int, size: int, rows: slice, position: int) -> HostBatch:
    index = np.arange(position * size, (position + 1) * size)[rows] % num
    return {"index": index.astype(np.int32)}


def _chosen_rows(chosen: np.ndarray, rows: slice, position: int) -> HostBatch:
    return {"index": chosen[position][rows].astype(np.int32)}


def _eval_rows(
    num: int, size: int, rows: slice, first: int, blank: tuple[int, ...], position: int
) -> HostBatch:
    index = np.arange(position * size, (position + 1) * size)[rows]
    mask = (index < num) & np.isin(index, blank, invert=True)
    index = first + np.where(index < num, index, 0)
    return {"index": index.astype(np.int32), "mask": mask.astype(np.int32)}


def _run(
    config: DataConfig,
    dataset: Dataset,
    numbers: Callable[[int], HostBatch],
    positions: range,
    crop_seed: int | None = None,
) -> Generator[HostBatch, None, None]:
    """Yield the batches whose numbers, `index` among them, a function has."""
    if dataset.on_device:
        yield from map(numbers, positions)
        return
    source, workers = dataset.source, config.workers
    if workers is None:
        workers = ahead.choose_workers(source.has_files, len(source))
    read = functools.partial(_read, numbers, source, crop_seed)
    if workers:
        packed = functools.partial(_read_flat, read)
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
    """Return the batch at a position; evaluations mask what is unreadable."""
    batch = numbers(position)
    index, unreadable, seeds = batch["index"], [], None
    if crop_seed is not None:
        # What each image's window is a function of.
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
        read = source.fill_in(read, index, unreadable, seeds)
    return {**batch, **read, UNREADABLE: unreadable}


def _read_flat(read: Callable[[int], HostBatch], position: int) -> HostBatch:
    batch = read(position)
    return flatten(batch) if BOX in batch else batch
