"""Packed images against array_record: pixels as its records, files by its data source.

    python benchmarks/packed.py

Both sides read the same images in the same random order, in batches, out of the page
cache, and take turns; the median of the pairs' ratios counts, which is that of `raw`.

- `raw`: 256x256x3 pixels from our flat files, over array_record (a record an image,
  not compressed, read by a list of indices) copied into the batch.
- `files`: JPEGs of 30 KB in 64 shards of array_record, over `ArrayRecordDataSource`.
- `flips`: every 997th byte of a packed set is flipped in turn. `verify` and
  `array_record` are the parts of the flips that `data --verify` finds, and that
  reading all records with array_record's own checksums finds.
"""

import io
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from array_record.python.array_record_data_source import ArrayRecordDataSource
from array_record.python.array_record_module import ArrayRecordWriter
from pairs import compare, tell
from PIL import Image
from sklearn.datasets import load_sample_images

from jaxtrain import own
from jaxtrain.config import DataConfig
from jaxtrain.data.files import StoredFile
from jaxtrain.data.shard_files import RecordFiles
from jaxtrain.data.stores import ArrayStore
from jaxtrain.errors import UserError
from jaxtrain.plugins.packed import writer
from jaxtrain.plugins.packed.shard import RECORD_OPTIONS
from jaxtrain.plugins.packed.store import PackedStore, open_packed, verify

NUM, SIDE, BATCH = 2048, 256, 64
RAW_SHARDS, FILE_SHARDS = 4, 64
PAIRS = 15
FEW, STEP = 8, 997

Batch = Callable[[np.ndarray], Any]


class Crops:
    """A store of JPEGs: random squares of scikit-learn's two photographs."""

    image_shape = (SIDE, SIDE, 3)

    def __init__(self, num: int) -> None:
        self.facts = {"num_classes": 2}
        draws = np.random.default_rng(0)
        pictures = load_sample_images().images
        self.pixels = np.stack([_crop(draws, pictures[i % 2]) for i in range(num)])

    def strata(self, indices: np.ndarray) -> np.ndarray:
        return (indices % 2).astype(np.int32)

    def read(self, indices: np.ndarray) -> tuple[list[StoredFile], np.ndarray]:
        found = [StoredFile(f"crop {i}", _jpeg(self.pixels[i])) for i in indices]
        return found, self.strata(indices)


def _crop(draws: np.random.Generator, picture: np.ndarray) -> np.ndarray:
    top, left = (int(draws.integers(size - SIDE)) for size in picture.shape[:2])
    return picture[top : top + SIDE, left : left + SIDE]


def _jpeg(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=92)
    return buffer.getvalue()


def files(num: int = NUM) -> Any:
    """Open the squares as files, as `data.source` does with a user's own source."""
    return Crops(num), {"train": [np.arange(num)]}


def raw(num: int = NUM) -> Any:
    """Open them as arrays."""
    store = Crops(num)
    everything = np.arange(num)
    pixels = ArrayStore(store.pixels, store.strata(everything), store.facts)
    return pixels, {"train": [everything]}


def pack(kind: str, out: Path, num: int, shards: int) -> PackedStore:
    """Pack the squares; return the store of the packed set."""
    a_shard = num // shards
    config = DataConfig(source=f"{__file__}:{kind}", options={"num": num})
    own.allow([config.source])
    with (
        mock.patch.object(writer, "FILES_A_SHARD", a_shard),
        mock.patch.object(writer, "RAW_SHARD_BYTES", a_shard * SIDE * SIDE * 3),
    ):
        writer.pack(config, out, format="raw" if kind == "raw" else "jpeg")
    store: Any = open_packed(str(out), DataConfig(source=f"packed:{out}"))[0]
    return store


def turns(ours: Batch, peer: Batch) -> dict[str, Any]:
    """Compare two ways to read all images in a random order."""
    order = np.random.default_rng(1).permutation(NUM).reshape(-1, BATCH)

    def turn(read: Batch) -> tuple[float, float]:
        start, cpu_start = time.perf_counter(), time.process_time()
        for indices in order:
            read(indices)
        return time.perf_counter() - start, time.process_time() - cpu_start

    pairs = [(turn(ours), turn(peer)) for _ in range(PAIRS + 1)][1:]
    return compare([one for one, _ in pairs], [other for _, other in pairs], NUM)


def compare_raw(folder: Path) -> dict[str, Any]:
    store = pack("raw", folder / "raw", NUM, RAW_SHARDS)
    paths = [folder / f"{shard}.array_record" for shard in range(RAW_SHARDS)]
    parts = np.arange(NUM).reshape(RAW_SHARDS, -1)

    def pixels(indices: np.ndarray) -> np.ndarray:
        images: Any = store.read(indices)[0]
        return images

    for path, part in zip(paths, parts, strict=True):
        records = ArrayRecordWriter(str(path), RECORD_OPTIONS)
        for image in pixels(part):
            records.write(image.tobytes())
        records.close()
    records = RecordFiles(paths, [len(part) for part in parts])

    def peer(indices: np.ndarray) -> np.ndarray:
        batch = np.empty((len(indices), SIDE, SIDE, 3), np.uint8)
        for place, record in enumerate(records[indices]):
            batch[place] = np.frombuffer(record, np.uint8).reshape(SIDE, SIDE, 3)
        return batch

    some = np.arange(0, NUM, 31)
    assert np.array_equal(pixels(some), peer(some))
    return turns(store.read, peer)


def compare_files(folder: Path) -> dict[str, Any]:
    store = pack("files", folder / "files", NUM, FILE_SHARDS)
    source = ArrayRecordDataSource(sorted(map(str, (folder / "files").glob("*.image"))))
    some = range(0, NUM, 31)
    ours: Any = store.read(np.array(some))[0]
    assert [file.data for file in ours] == source.__getitems__(some)
    return turns(store.read, lambda indices: source.__getitems__(indices.tolist()))


def count_flips(folder: Path) -> dict[str, Any]:
    """Return the parts of flipped bytes that are found."""
    pack("files", folder / "few", FEW, 1)
    found = {"verify": 0, "array_record": 0}
    path = folder / "few" / "00000.image"
    good = path.read_bytes()
    flips = range(0, len(good), STEP)
    for place in flips:
        bad = bytearray(good)
        bad[place] ^= 1
        path.write_bytes(bad)
        try:
            verify(folder / "few")
        except UserError:
            found["verify"] += 1
        try:
            RecordFiles([path], [FEW])[np.arange(FEW)]
        except RuntimeError:
            found["array_record"] += 1
    return {"flips": len(flips), **{k: n / len(flips) for k, n in found.items()}}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = {
            "raw": compare_raw(folder),
            "files": compare_files(folder),
            "flips": count_flips(folder),
        }
    result = {
        **results["raw"],
        "results": results,
    }
    tell("packed", result, libraries={"array-record": metadata.version("array-record")})


if __name__ == "__main__":
    main()
