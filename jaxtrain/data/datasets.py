"""Training, validation and test data, cached on the devices or streamed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxtrain.data import ahead
from jaxtrain.data.defects import Defects
from jaxtrain.data.replacements import fill_in
from jaxtrain.parallel import data_sharding

if TYPE_CHECKING:
    from jaxtrain.config import DataConfig
    from jaxtrain.data.defects import Unreadable
    from jaxtrain.data.image_source import Source
    from jaxtrain.data.sources import Splits

# Maximum size of cached data sets, as a fraction of a device's memory.
CACHE_FRACTION = 0.25
# Assumed device memory in bytes if it is unknown, as on CPU.
ASSUMED_DEVICE_BYTES = 8 * 2**30
# Number of examples to read at a time for the device cache.
READ_BLOCK = 512


@dataclass(frozen=True)
class Dataset:
    """A split, and the position of its examples in the device cache.

    Attributes:
      source: Examples of the split.
      on_device: Arrays `image` and `target` of all splits, concatenated; {} if the
        split is streamed.
      defects: Unreadable images that were encountered so far.
      first: Index of the split's first example in `on_device`.
      blank: Indices, in the split, of unreadable examples in the cache; evaluation
        masks these examples.
    """

    source: Source
    on_device: Any
    defects: Defects
    first: int = 0
    blank: tuple[int, ...] = ()


def should_cache(
    config: DataConfig, splits: Splits, device_bytes: int | None = None
) -> bool:
    """Whether to cache the images of all splits on the devices.

    Args:
      config: Data section of the config.
      splits: Splits of the run.
      device_bytes: Memory of a device in bytes. Defaults to the memory of the first
        local device.
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
    """Return the maximum total size of cached splits in bytes.

    Args:
      device_bytes: Memory of a device in bytes. Defaults to the memory of the first
        local device.
    """
    if device_bytes is None:
        stats = jax.local_devices()[0].memory_stats() or {}
        device_bytes = stats.get("bytes_limit")
    return int(CACHE_FRACTION * (device_bytes or ASSUMED_DEVICE_BYTES))


def make_datasets(
    splits: Splits, mesh: Mesh, cache: bool, max_bad_fraction: float
) -> tuple[Dataset, Dataset | None, Dataset]:
    """Create the datasets of all splits, cached on every device or streamed.

    The cached splits share one array, so that one compiled program evaluates any split.
    The training split comes first, so that its example indices apply to this array.

    Args:
      splits: Splits of the run.
      mesh: Mesh of the devices.
      cache: Whether to cache the splits on the devices.
      max_bad_fraction: Maximum fraction of unreadable images in a split.

    Returns:
      Training, validation (or None) and test dataset.

    Raises:
      UserError: More than `max_bad_fraction` of a split's images are unreadable.
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
            batch, unreadable = fill_in(source, batch, everything, unreadable), []
        read.append(batch)
        blank[name] = tuple(bad.index for bad in unreadable)
    arrays = jax.tree.map(lambda *parts: np.concatenate(parts), *read)
    on_device = jax.device_put(arrays, data_sharding.replicated(mesh))
    datasets, first = {}, 0
    for name, dataset in streamed.items():
        # Host reads use the host copy of the cache, not the disk.
        part = dataset.source.in_arrays(arrays, first)
        datasets[name] = Dataset(part, on_device, dataset.defects, first, blank[name])
        first += len(part)
    return datasets


def read_all(source: Source) -> tuple[dict[str, Any], list[Unreadable]]:
    """Return all examples of a split as one batch, and the unreadable images.

    Threads read the examples in blocks, which bounds the number of files in memory.
    """

    def read(start: int) -> tuple[dict[str, Any], list[Unreadable]]:
        unreadable: list[Unreadable] = []
        block = np.arange(start, min(start + READ_BLOCK, len(source)))
        return source.read(block, unreadable=unreadable), unreadable

    starts = range(0, len(source), READ_BLOCK)
    parts = list(ahead.by_threads(read, starts, ahead.READ_THREADS))
    batches = [batch for batch, _ in parts]
    everything = jax.tree.map(lambda *arrays: np.concatenate(arrays), *batches)
    return everything, [bad for _, unreadable in parts for bad in unreadable]
