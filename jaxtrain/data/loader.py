"""From a source to batches on the devices: order, share, cache or stream."""

import collections
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxtrain.config import DataConfig
from jaxtrain.data import ahead
from jaxtrain.data.batch import Batch, train_numbers
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
      source: the split.
      on_device: the arrays of all splits, one after the other; {} if streamed.
      first: the split's first example in these arrays.
      defects: its unreadable images, as far as they were met.
      blank: the numbers of those on the device that an evaluation leaves out.
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
    groups = source.strata() if config.sampling == "balanced" else None
    if groups is not None and len(np.unique(groups)) < 2:
        raise UserError(
            "data.sampling = 'balanced' has no effect: the training split has one class"
        )
    return DataOrder(seed, len(source), config.batch_size, groups, config.repeats)


def should_cache(
    config: DataConfig, splits: Splits, device_bytes: int | None = None
) -> bool:
    """Decide whether the images stay on the device.

    Args:
      config: which may leave it open.
      splits: all of which would stay there.
      device_bytes: of its memory; None: that of the first device of this process.
    """
    if config.cache == "auto":
        if config.workers or splits.train.canvas_shape:
            return False
        sources = [splits.train, splits.validation, splits.test]
        size = sum(len(s) * int(np.prod(s.image_shape)) for s in sources if s)
        return size <= cache_bytes(device_bytes)
    return config.cache == "device"


def cache_bytes(device_bytes: int | None = None) -> int:
    """Return how much of a device's memory a set may take that is kept there.

    Args:
      device_bytes: all of it; None: that of the first device of this process.
    """
    known = device_bytes
    if known is None:
        stats = jax.local_devices()[0].memory_stats() or {}
        known = stats.get("bytes_limit")
    return int(CACHE_FRACTION * (known or ASSUMED_DEVICE_BYTES))


def make_datasets(
    splits: Splits, mesh: Mesh, cache: bool, max_bad_fraction: float
) -> tuple[Dataset, Dataset | None, Dataset]:
    """Put all splits onto every device, or leave them to be streamed.

    The splits share one array, so that one program evaluates any of them. The training
    split comes first: its examples keep their numbers.

    Raises:
      UserError: more images than `max_bad_fraction` of a split are unreadable.
    """
    named = splits.named()
    defects = {
        name: Defects(name, len(source), max_bad_fraction)
        for name, source in named.items()
    }
    if not cache:
        datasets = {n: Dataset(source, {}, defects[n]) for n, source in named.items()}
    else:
        datasets = _cached(named, defects, mesh)
    return datasets["train"], datasets.get("validation"), datasets["test"]


def _cached(
    named: dict[str, Source], defects: dict[str, Defects], mesh: Mesh
) -> dict[str, Dataset]:
    read, blank = [], {}
    for name, source in named.items():
        batch, unreadable = read_all(source)
        defects[name].add(unreadable)
        if name == "train" and unreadable:
            everything = np.arange(len(source))
            batch, unreadable = source.fill_in(batch, everything, unreadable), []
        read.append(batch)
        blank[name] = tuple(bad.index for bad in unreadable)
    arrays = jax.tree.map(lambda *parts: np.concatenate(parts), *read)
    on_device = jax.device_put(arrays, sharding.replicated(mesh))
    store = ArrayStore(arrays["image"], arrays["target"], named["train"].facts)
    datasets, first = {}, 0
    for name, source in named.items():
        part = _part(store, source, first)
        datasets[name] = Dataset(part, on_device, defects[name], first, blank[name])
        first += len(source)
    return datasets


def read_all(source: Source) -> tuple[dict[str, Any], list[Unreadable]]:
    """Return all examples of a split, and those that are unreadable.

    They are read in blocks, by threads, so that no more files lie in memory than these.
    """
    starts = range(0, len(source), READ_BLOCK)

    def read(start: int) -> tuple[dict[str, Any], list[Unreadable]]:
        unreadable: list[Unreadable] = []
        block = np.arange(start, min(start + READ_BLOCK, len(source)))
        return source.read(block, unreadable=unreadable), unreadable

    parts = list(ahead.by_threads(read, starts, ahead.READ_THREADS))
    batches = [batch for batch, _ in parts]
    whole = jax.tree.map(lambda *arrays: np.concatenate(arrays), *batches)
    return whole, [bad for _, unreadable in parts for bad in unreadable]


def _part(store: ArrayStore, source: Source, first: int) -> Source:
    """Return a source that reads from memory what `source` reads from disk."""
    indices = first + np.arange(len(source))
    return Source(store, indices, source.image_shape, max_pixels=0)


def train_batches(
    config: DataConfig,
    dataset: Dataset,
    mesh: Mesh,
    order: DataOrder,
    start: int,
    stop: int,
    rows: slice | None = None,
) -> Iterator[HostBatch]:
    """Yield the batches of steps `start` to `stop`.

    Args:
      config: of the data.
      dataset: the training split.
      mesh: of the devices.
      order: of the examples.
      start: the first step.
      stop: one after the last.
      rows: of each batch; None: those of this process.
    """
    if rows is None:
        rows = sharding.local_rows(mesh, config.batch_size)
    crop_seed = order.seed if dataset.source.canvas_shape else None
    names = train_numbers(config)
    read = _Read(
        indices=functools.partial(_train_rows, order, rows, names),
        source=None if dataset.on_device else dataset.source,
        crop_seed=crop_seed,
    )
    return _run(read, dataset, start, stop, config.workers)


def eval_batches(
    config: DataConfig, dataset: Dataset, mesh: Mesh, batch_size: int
) -> Generator[HostBatch, None, None]:
    """Yield this process's rows of a pass over the split, the last batch padded."""
    num, rows = len(dataset.source), sharding.local_rows(mesh, batch_size)
    read = _Read(
        indices=functools.partial(
            _eval_rows, num, batch_size, rows, dataset.first, dataset.blank
        ),
        source=None if dataset.on_device else dataset.source,
    )
    return _run(read, dataset, 0, -(-num // batch_size), config.workers)


def all_batches(
    config: DataConfig, dataset: Dataset, mesh: Mesh, batch_size: int
) -> Generator[HostBatch, None, None]:
    """Yield this process's rows of all training examples, each as training sees it.

    The last batch is filled up with the first examples.
    """
    num, rows = len(dataset.source), sharding.local_rows(mesh, batch_size)
    read = _Read(
        indices=functools.partial(_rows_in_order, num, batch_size, rows),
        source=None if dataset.on_device else dataset.source,
    )
    return _run(read, dataset, 0, -(-num // batch_size), config.workers)


def feed(
    batches: Iterator[HostBatch],
    call_sizes: Iterator[int],
    mesh: Mesh,
    batch_size: int,
) -> Generator[tuple[int, Batch], None, None]:
    """Stack the batches of each call, and keep the next calls' on the device.

    Args:
      batches: of each step.
      call_sizes: Number of steps that each call runs.
      mesh: of the devices.
      batch_size: of the global batch.
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


@dataclass(frozen=True)
class _Read:
    """Maps a position to a batch; picklable, for data workers."""

    indices: Callable[[int], HostBatch]
    source: Source | None
    crop_seed: int | None = None
    in_worker: bool = False

    def __call__(self, position: int) -> HostBatch:
        batch = self._read(position)
        return flatten(batch) if self.in_worker and BOX in batch else batch

    def _read(self, position: int) -> HostBatch:
        batch = self.indices(position)
        if self.source is None:
            return batch
        index, unreadable = batch["index"], []
        seeds = self._crop_seeds(batch, position)
        read = self.source.read(index, seeds, unreadable)
        if not unreadable:
            return {**batch, **read}
        if "mask" in batch:
            bad = [one.index for one in unreadable]
            batch["mask"] = batch["mask"] * np.isin(index, bad, invert=True)
        else:
            read = self.source.fill_in(read, index, unreadable, seeds)
        return {**batch, **read, UNREADABLE: unreadable}

    def _crop_seeds(self, batch: HostBatch, position: int) -> np.ndarray | None:
        """Return the numbers that each image's window is a function of."""
        if self.crop_seed is None:
            return None
        columns = [batch[name] for name in ("index", "repeat") if name in batch]
        first = np.broadcast_to([self.crop_seed, position], (len(batch["index"]), 2))
        return np.column_stack([first, *columns])


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


def _eval_rows(
    num: int, size: int, rows: slice, first: int, blank: tuple[int, ...], position: int
) -> HostBatch:
    index = np.arange(position * size, (position + 1) * size)[rows]
    mask = (index < num) & np.isin(index, blank, invert=True)
    index = first + np.where(index < num, index, 0)
    return {"index": index.astype(np.int32), "mask": mask.astype(np.int32)}


def _run(
    read: _Read, dataset: Dataset, start: int, stop: int, workers: int | None
) -> Generator[HostBatch, None, None]:
    source = read.source
    if source is None:
        yield from map(read, range(start, stop))
        return
    if workers is None:
        workers = ahead.choose_workers(source.has_files, len(source))
    if workers:
        shared = dataclasses.replace(read, in_worker=True)
        stream = ahead.by_workers(shared, start, stop, workers)
    else:
        copied = source.in_memory and read.crop_seed is None
        threads = 1 if copied else ahead.READ_THREADS
        stream = ahead.by_threads(read, range(start, stop), threads)
    with contextlib.closing(stream) as batches:
        for batch in batches:
            dataset.defects.add(batch.pop(UNREADABLE, ()))
            if workers and source.canvas_shape and BOX in batch:
                batch = unflatten(batch, source.canvas_shape)
            yield batch
