"""From a source to batches on the devices: order, share, cache or stream."""

import collections
import functools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import grain
import jax
import numpy as np
from jax.sharding import Mesh

from jaxtrain.config import DataConfig
from jaxtrain.data.preprocess import Batch
from jaxtrain.data.sources import ImageSource, Source, Splits
from jaxtrain.data.stores import ArrayStore
from jaxtrain.data.workers import go_on, with_workers
from jaxtrain.parallel import sharding

HostBatch = dict[str, Any]

# A set is kept on the device if it takes at most this part of its memory.
CACHE_FRACTION = 0.25
# What stands for the device's memory where it does not tell, as on CPU.
ASSUMED_DEVICE_BYTES = 8 * 2**30
READ_THREADS = 4
READ_AHEAD = 8
PUT_AHEAD = 2


@dataclass(frozen=True)
class Dataset:
    """One split, and where its examples lie on the device.

    Attributes:
      source: the split.
      on_device: the arrays of all splits, one after the other; {} if streamed.
      first: the split's first example in these arrays.
    """

    source: Source
    on_device: Any
    first: int = 0


@functools.lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, num_examples: int) -> np.ndarray:
    """Return the permutation of one epoch, int64 (num_examples,).

    It sorts raw draws of a counter-based generator, which NumPy keeps the same from
    version to version (NEP 19), as it does not for `permutation`.
    """
    draws = np.random.Philox(key=[seed, epoch]).random_raw(num_examples)
    return np.argsort(draws, kind="stable")


def train_indices(
    seed: int, step: int, num_examples: int, batch_size: int
) -> np.ndarray:
    """Return the examples of the global batch of a step, int64 (batch_size,).

    This is the data order: a function of the seed and the step alone. The last
    `num_examples % batch_size` of each epoch's order are left out.
    """
    epoch, place = divmod(step, num_examples // batch_size)
    start = place * batch_size
    return epoch_order(seed, epoch, num_examples)[start : start + batch_size]


def should_cache(config: DataConfig, splits: Splits) -> bool:
    """Decide whether the images stay on the device."""
    if config.cache == "auto":
        if config.workers or splits.train.takes_windows:
            return False
        sources = [splits.train, splits.validation, splits.test]
        size = sum(len(s) * int(np.prod(s.image_shape)) for s in sources if s)
        stats = jax.local_devices()[0].memory_stats() or {}
        memory = stats.get("bytes_limit", ASSUMED_DEVICE_BYTES)
        return size <= CACHE_FRACTION * memory
    return config.cache == "device"


def make_datasets(
    splits: Splits, mesh: Mesh, cache: bool
) -> tuple[Dataset, Dataset | None, Dataset]:
    """Put all splits onto every device, or leave them to be streamed.

    The splits share one array, so that one program evaluates any of them. The training
    split comes first: its examples keep their numbers.
    """
    sources = [splits.train, splits.validation, splits.test]
    if not cache:
        train, validation, test = (s and Dataset(s, {}) for s in sources)
    else:
        read = [s.read(np.arange(len(s))) for s in sources if s]
        arrays = jax.tree.map(lambda *parts: np.concatenate(parts), *read)
        on_device = jax.device_put(arrays, sharding.replicated(mesh))
        firsts = np.cumsum([0] + [len(s) if s else 0 for s in sources]).tolist()
        store = ArrayStore(arrays["image"], arrays["target"], splits.train.facts)
        train, validation, test = (
            s and Dataset(_part(store, s, first), on_device, first)
            for s, first in zip(sources, firsts, strict=False)
        )
    assert train is not None and test is not None
    return train, validation, test


def _part(store: ArrayStore, source: Source, first: int) -> Source:
    """Return a source that reads from memory what `source` reads from disk."""
    return ImageSource(store, first + np.arange(len(source)), source.image_shape)


def train_batches(
    config: DataConfig, dataset: Dataset, mesh: Mesh, seed: int, start: int, stop: int
) -> Iterator[HostBatch]:
    """Yield this process's rows of the batches of steps `start` to `stop`."""
    size, rows = config.batch_size, sharding.local_rows(mesh, config.batch_size)
    crop_seed = (seed,) if dataset.source.takes_windows else None
    read = _Read(
        indices=functools.partial(_train_rows, seed, len(dataset.source), size, rows),
        source=None if dataset.on_device else dataset.source,
        crop_seed=crop_seed,
    )
    return _run(read, start, stop, 0 if dataset.on_device else config.workers)


def eval_batches(
    config: DataConfig, dataset: Dataset, mesh: Mesh, batch_size: int
) -> Iterator[HostBatch]:
    """Yield this process's rows of a pass over the split, the last batch padded."""
    num, rows = len(dataset.source), sharding.local_rows(mesh, batch_size)
    read = _Read(
        indices=functools.partial(_eval_rows, num, batch_size, rows, dataset.first),
        source=None if dataset.on_device else dataset.source,
    )
    workers = 0 if dataset.on_device else config.workers
    return _run(read, 0, -(-num // batch_size), workers)


def feed(
    batches: Iterator[HostBatch],
    sizes: Iterator[int],
    mesh: Mesh,
    batch_size: int,
) -> Generator[tuple[int, Batch], None, None]:
    """Stack `size` batches for each call, and keep the next calls' on the device."""
    waiting: collections.deque[tuple[int, Batch]] = collections.deque()
    for size in sizes:
        stack = [next(batches) for _ in range(size)]
        stacked = jax.tree.map(_stack, *stack)
        waiting.append((size, sharding.put_batch(mesh, stacked, batch_size)))
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
    crop_seed: tuple[int, ...] | None = None

    def __call__(self, position: int) -> HostBatch:
        batch = self.indices(position)
        if self.source is None:
            return batch
        crop_seed = None if self.crop_seed is None else (*self.crop_seed, position)
        return {**batch, **self.source.read(batch["index"], crop_seed)}


def _train_rows(seed: int, num: int, size: int, rows: slice, step: int) -> HostBatch:
    return {"index": train_indices(seed, step, num, size)[rows].astype(np.int32)}


def _eval_rows(
    num: int, size: int, rows: slice, first: int, position: int
) -> HostBatch:
    index = np.arange(position * size, (position + 1) * size)[rows]
    mask = (index < num).astype(np.int32)
    index = first + np.where(mask, index, 0)
    return {"index": index.astype(np.int32), "mask": mask}


def _run(read: _Read, start: int, stop: int, workers: int) -> Iterator[HostBatch]:
    if read.source is None:
        return map(read, range(start, stop))

    def stream(start: int) -> Any:
        dataset = (
            grain.MapDataset.range(start, stop)
            .map(read)
            .to_iter_dataset(
                grain.ReadOptions(
                    num_threads=READ_THREADS, prefetch_buffer_size=READ_AHEAD
                )
            )
        )
        return iter(with_workers(dataset, workers) if workers else dataset)

    return go_on(stream, start)
