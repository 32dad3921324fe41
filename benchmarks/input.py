"""What input costs: our pipeline, from packed data to batches, against bare libraries.

    python benchmarks/input.py [--only NAME ...]

The photographs are the two of scikit-learn, cut and resized to 500x375 pixels, JPEGs of
70 KB on average. Our side is what a run does: the loader's stream of batches from
`packed:DIR`, with one thread that reads. Both sides run in turn, and the median of the
pairs' ratios counts. What is compared is the CPU time of all threads, that is images
per second of one core, which other users of the machine disturb least; `workers` alone
is measured by the clock. `ratio` is that of the first comparison.
"""

import argparse
import io
import json
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import grain
import numpy as np
import simplejpeg
from PIL import Image

from jaxtrain.config import AugmentConfig, DataConfig, ParallelConfig, replace
from jaxtrain.data import ahead, canvas, images, loader, sources
from jaxtrain.data.datasets import make_datasets
from jaxtrain.data.files import MODES, ImageFile, StoredFile
from jaxtrain.data.fit import Fit
from jaxtrain.data.stores import ArrayStore
from jaxtrain.own import allow
from jaxtrain.parallel.mesh import make_mesh
from jaxtrain.plugins.packed.writer import pack
from jaxtrain.trainer.records import versions

NUM_PHOTOGRAPHS, QUALITY = 256, 94
NUM_SMALL, SMALL_BATCH, BATCH = 60_000, 512, 64
PAIRS = 7
MEMORY_BATCHES = 20_000
WORKER_BATCHES = 40
BARE_SECONDS = 3.0


class Photographs:
    """A store of image files, as one of TFDS hands them out."""

    # As of a set whose images differ in size, so that the host cuts them.
    image_shape = (None, None, 3)

    def __init__(self) -> None:
        self.files = make_photographs()
        self.facts = {"num_classes": 2}

    def strata(self, indices: np.ndarray) -> np.ndarray:
        return (indices % 2).astype(np.int32)

    def read(self, indices: np.ndarray) -> tuple[list[StoredFile], np.ndarray]:
        found = [StoredFile(f"photograph {i}", self.files[i]) for i in indices]
        return found, self.strata(indices)


def make_photographs() -> list[bytes]:
    from sklearn.datasets import load_sample_images

    pictures = [Image.fromarray(p) for p in load_sample_images().images]
    draws, files = np.random.default_rng(0), []
    for i in range(NUM_PHOTOGRAPHS):
        picture = pictures[i % 2]
        width = int(draws.integers(500, 568))
        height = width * 375 // 500
        left = int(draws.integers(0, picture.width - width))
        top = int(draws.integers(0, picture.height - height))
        box = left, top, left + width, top + height
        cut = picture.resize((500, 375), Image.Resampling.BICUBIC, box)
        if i % 4 > 1:
            cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        buffer = io.BytesIO()
        cut.save(buffer, "JPEG", quality=QUALITY)
        files.append(buffer.getvalue())
    return files


def photographs() -> Any:
    """Open the photographs, as `data.source` does with a user's own source."""
    everything = np.arange(NUM_PHOTOGRAPHS)
    return Photographs(), {"train": [everything], "test": [everything[:0]]}


def small() -> Any:
    """Open 28x28 arrays, as many as Fashion-MNIST has to train."""
    draws = np.random.default_rng(0)
    images = draws.integers(0, 256, (NUM_SMALL, 28, 28, 1), np.uint8)
    store = ArrayStore(images, np.arange(NUM_SMALL, dtype=np.int32) % 10, {})
    everything = np.arange(NUM_SMALL)
    return store, {"train": [everything], "test": [everything[:0]]}


# Reads images; returns their number.
Turn = Callable[[], int]


class Pipeline:
    """A turn reads so many batches of the training split as a run gets them.

    The stream of a turn ends with it, so that nothing is read ahead for the next one.
    """

    def __init__(self, num_batches: int, **fields: Any):
        self.num, self.place = num_batches, 0
        self.config = DataConfig(
            test_split="train[:1]",
            allow_overlap=True,
            validation_fraction=0.0,
            **fields,
        )
        self.mesh = make_mesh(ParallelConfig())
        splits = sources.load(self.config, 0)
        self.train, _, _ = make_datasets(splits, self.mesh, False, 0.0)
        self.order = loader.make_order(self.config, self.train.source, 0)

    def __call__(self) -> int:
        # Several would slow each other down, and the peers have one.
        with mock.patch.object(ahead, "READ_THREADS", 1):
            return sum(len(batch["image"]) for batch in self.stream())

    def stream(self) -> Iterator[Any]:
        start, self.place = self.place, self.place + self.num
        return loader.train_batches(
            self.config, self.train, self.mesh, self.order, start, self.place
        )


def compare(
    ours: Turn, peer: Turn, clock: Callable[[], float] = time.process_time
) -> dict[str, Any]:
    """Return images a second of both, and our speed over the peer's."""
    rates: list[tuple[float, float]] = []
    for _ in range(PAIRS + 1):
        pair = []
        for turn in (ours, peer):
            start = clock()
            count = turn()
            pair.append(count / (clock() - start))
        rates.append((pair[0], pair[1]))
    return summarize(rates[1:])  # The first warms up.


def summarize(rates: list[tuple[float, float]]) -> dict[str, Any]:
    ratios = sorted(one / other for one, other in rates)
    quarter = len(ratios) // 4
    return {
        "ratio": statistics.median(ratios),
        "spread": [ratios[quarter], ratios[-1 - quarter]],
        "ours": statistics.median(one for one, _ in rates),
        "peer": statistics.median(other for _, other in rates),
    }


def jpeg(folder: Path) -> dict[str, Any]:
    """Random windows of JPEGs for the step, over decoding them and nothing else."""
    files = make_photographs()

    def decode() -> int:
        for data in files:
            simplejpeg.decode_jpeg(data, "RGB")
        return len(files)

    return compare(crops(folder, "jpeg"), decode)


def pillow(folder: Path) -> dict[str, Any]:
    """The same pipeline, over the same with Pillow as the decoder."""
    ours, theirs = crops(folder, "jpeg"), crops(folder, "jpeg")

    def peer() -> int:
        with mock.patch.object(ImageFile, "_decode_jpeg", decode_by_pillow):
            return theirs()

    return compare(ours, peer)


def host(folder: Path) -> dict[str, Any]:
    """The same pipeline, over one where Pillow decodes and resizes on the host."""
    ours, theirs = crops(folder, "jpeg"), crops(folder, "jpeg")

    def cut(
        file: ImageFile, window: Any, size: int, fit: Fit, pixels: np.ndarray
    ) -> tuple[int, int, int, int]:
        decoded = file.decode(pixels.shape[-1])
        pixels[:size, :size] = images.resize(decoded, size, fit.interpolation, window)
        return 0, 0, size, size

    def peer() -> int:
        with (
            mock.patch.object(ImageFile, "_decode_jpeg", decode_by_pillow),
            mock.patch.object(canvas, "cut", cut),
        ):
            return theirs()

    return compare(ours, peer)


def decode_by_pillow(file: ImageFile, channels: int, *_: Any) -> np.ndarray:
    with Image.open(io.BytesIO(file.data)) as image:
        return np.asarray(image.convert(MODES[channels]))


def raw(folder: Path) -> dict[str, Any]:
    """Packed arrays of 256, which the step cuts to 224, over those JPEGs."""
    return compare(crops(folder, "raw"), crops(folder, "jpeg"))


def crops(folder: Path, form: str) -> Pipeline:
    return Pipeline(
        4 if form == "jpeg" else 8,
        source=f"packed:{folder / form}",
        batch_size=BATCH,
        image_size=224,
        augment=AugmentConfig(random_resized_crop=True),
    )


def arrays(folder: Path) -> dict[str, Any]:
    """Packed arrays of 28x28, over indexing an array in memory likewise."""
    images, ours = small()[0].images, small_batches(folder)

    def index() -> int:
        for place in range(ours.num):
            _ = images[ours.order.indices(place)]
        return ours.num * SMALL_BATCH

    return compare(ours, index)


def records(folder: Path) -> dict[str, Any]:
    """Packed arrays of 28x28, over grain reading them from memory one by one."""
    images = small()[0].images

    def one_by_one() -> int:
        numbers = grain.MapDataset.range(8 * SMALL_BATCH).shuffle(0)
        batches = numbers.map(lambda i: {"image": images[i], "target": i % 10})
        options = grain.ReadOptions(num_threads=4, prefetch_buffer_size=512)
        stream = batches.to_iter_dataset(options).batch(SMALL_BATCH)
        return sum(len(batch["image"]) for batch in stream)

    return compare(small_batches(folder), one_by_one)


def small_batches(folder: Path, **fields: Any) -> Pipeline:
    source = f"packed:{folder / 'small'}"
    return Pipeline(100, source=source, batch_size=SMALL_BATCH, **fields)


def workers(folder: Path) -> dict[str, Any]:
    """Two data workers over one, for random crops of JPEGs; by the clock.

    Beside it, of the same minutes: two processes over one that only decode. More than
    that the machine does not give.
    """
    pipelines = {}
    for num in (2, 1):
        pipelines[num] = crops(folder, "jpeg")
        pipelines[num].num = WORKER_BATCHES
        pipelines[num].config = replace(pipelines[num].config, "workers", num)
    rates: dict[str, list[tuple[float, float]]] = {"ours": [], "bare": []}
    for _ in range(PAIRS):
        two, one = (rate_by_clock(pipelines[num], num) for num in (2, 1))
        rates["ours"].append((two, one))
        two, one = (rate_of_processes(num) for num in (2, 1))
        rates["bare"].append((two, one))
    return {**summarize(rates["ours"]), "bare": summarize(rates["bare"])}


def rate_by_clock(pipeline: Pipeline, num_first: int) -> float:
    """Return images a second, once so many batches have shown that all workers run.

    The clock stops with the last batch: the workers then take half a second to end.
    """
    start = now = 0.0
    count = 0
    for place, batch in enumerate(pipeline.stream(), 1):
        now = time.perf_counter()
        if place > num_first:
            count += len(batch["image"])
        elif place == num_first:
            start = now
    return count / (now - start)


def rate_of_processes(num: int) -> float:
    """Return images a second of so many processes that only decode."""
    context = multiprocessing.get_context("spawn")
    together, told = context.Barrier(num), context.SimpleQueue()
    arguments = (make_photographs(), together, told)
    processes = [
        context.Process(target=decode_alone, args=arguments) for _ in range(num)
    ]
    for process in processes:
        process.start()
    rates = [told.get() for _ in processes]
    for process in processes:
        process.join()
    return sum(rates)


def decode_alone(files: list[bytes], together: Any, told: Any) -> None:
    """Decode for some seconds, from when all others do so, too."""
    together.wait()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < BARE_SECONDS:
        simplejpeg.decode_jpeg(files[count % len(files)], "RGB")
        count += 1
    told.put(count / (time.perf_counter() - start))


def memory(folder: Path) -> dict[str, Any]:
    """The memory of the process after a tenth of many batches, over that after all."""
    return watch(small_batches(folder))


def jpeg_memory(folder: Path) -> dict[str, Any]:
    """The same of random crops of JPEGs, small ones in small batches, by threads."""
    path = folder / "few_pixels"
    pack(DataConfig(source=f"{__file__}:photographs"), path, size=128)
    return watch(
        Pipeline(
            0,
            source=f"packed:{path}",
            batch_size=8,
            image_size=112,
            augment=AugmentConfig(random_resized_crop=True),
            workers=0,
        )
    )


def watch(pipeline: Pipeline) -> dict[str, Any]:
    pipeline.num = MEMORY_BATCHES
    sizes = []
    for place, _ in enumerate(pipeline.stream()):
        if place % (MEMORY_BATCHES // 20) == MEMORY_BATCHES // 20 - 1:
            sizes.append(resident())
    first, last = sizes[1], sizes[-1]
    return {"ratio": first / last, "spread": [min(sizes), max(sizes)], "unit": "bytes"}


def resident() -> int:
    """Return the bytes in memory of this process, without files that are mapped."""
    text = Path("/proc/self/status").read_text()
    lines = dict(line.split(":", 1) for line in text.splitlines())
    return 1024 * sum(int(lines[k].split()[0]) for k in ("RssAnon", "RssShmem"))


QUESTIONS = {
    function.__name__: function
    for function in (
        jpeg,
        pillow,
        host,
        raw,
        arrays,
        records,
        workers,
        memory,
        jpeg_memory,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=[*QUESTIONS])
    names = parser.parse_args().only
    allow(f"{__file__}:{source}" for source in ("photographs", "small"))
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        own = DataConfig(source=f"{__file__}:photographs")
        pack(own, path / "jpeg")
        pack(own, path / "raw", format="raw", size=256)
        own = DataConfig(source=f"{__file__}:small")
        pack(own, path / "small", format="raw")
        for name in names:
            results[name] = QUESTIONS[name](path)
            print(name, json.dumps(results[name]), flush=True)
    result = {
        "name": "input",
        "ratio": results[names[0]]["ratio"],
        "unit": "images/s of a core",
        **results[names[0]],
        "results": results,
        "device": f"{os.cpu_count()} x {platform.processor() or platform.machine()}",
        "versions": versions(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
