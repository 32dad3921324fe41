"""How fast `predict` and `evaluate` are, against decoding and computing in turn.

    python benchmarks/predict.py [--images N] [--only evaluate]

The photographs are those of `input.py`, JPEGs of 500x375 pixels and 70 KB, as files;
the model is a ResNet-18 of a quarter of the width, at 224 pixels. Ours is what the
command does, from the names of the files to predictions.csv. The peer decodes all files
first, by as many threads, and then calls the bare jitted model batch by batch: no
padding, no rows, nothing written. Both run in turn, by the clock, and the median of the
pairs' ratios counts. `one_thread` is the same against one thread that decodes, and
`evaluate` is what that command does with the folder, against the first peer, once its
programs are in the cache: it traces, lowers and reads them, computes metrics and draws
intervals, and the peer has its program in memory. `first_evaluate` is the same with
nothing compiled before, for either of them.
"""

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from input import make_photographs
from pairs import Seconds, compare, tell_each, timed

from jaxtrain.config import DataConfig, ResNetConfig
from jaxtrain.data import ahead
from jaxtrain.inference import predict, sinks
from jaxtrain.inference.image_paths import expand_paths
from jaxtrain.inference.model import TrainedModel, make_model
from jaxtrain.inference.pixels import to_pixels
from jaxtrain.parallel import devices
from jaxtrain.tools.evaluation.result import Asked, evaluate
from jaxtrain.tools.evaluation.subject import config_of
from jaxtrain.weights.description import Description
from jaxtrain.weights.stored import abstract_weights

SIDE, BATCH, NUM_CLASSES = 224, 64, 2
PAIRS = 5


def make() -> TrainedModel:
    about = Description(
        task="classification",
        model=ResNetConfig(name="resnet18", width=0.25),
        precision="fp32",
        image_shape=(SIDE, SIDE, 3),
        num_outputs=NUM_CLASSES,
        class_names=tuple(map(str, range(NUM_CLASSES))),
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        crop_pct=0.875,
        interpolation="bilinear",
    )
    draws = np.random.default_rng(0)
    params, model_state = jax.tree.map(
        lambda x: np.abs(draws.normal(0.0, 0.05, x.shape)).astype(x.dtype),
        abstract_weights(about),
    )
    return make_model(about, params, model_state, {}, "here")


def command(model: TrainedModel, folder: Path) -> Callable[[], None]:
    """Return what `predict --out` does once the model is loaded."""

    wanted = predict.Wanted()
    program = predict.make_program(model, wanted)

    def turn() -> None:
        names = expand_paths([str(folder / "photos")])
        out = folder / "predictions.csv"
        with (
            contextlib.ExitStack() as renames,
            sinks.table(out, model, wanted.topk, renames) as write,
        ):
            for batch in predict.predict(model, program, names, BATCH):
                write(batch)

    return turn


def evaluation(model: TrainedModel, folder: Path) -> Callable[[], None]:
    """Return what `evaluate` does once the model is loaded."""
    data = DataConfig(source=f"folder:{folder / 'photos'}", eval_batch_size=BATCH)
    config, data = config_of(model, data)

    def turn() -> None:
        evaluate(model, config, data, Asked(split="all"))

    return turn


def one_after_the_other(
    model: TrainedModel, folder: Path, num_threads: int
) -> Callable[[], None]:
    """Return the peer: decode everything, then compute everything."""
    paths = sorted((folder / "photos").glob("*/*"))
    about, weights = model.description, (model.params, model.model_state)
    weights = jax.device_put(weights)

    @jax.jit
    def bare(params: Any, model_state: Any, pixels: jax.Array) -> jax.Array:
        logits = model.forward(params, model_state, model.prepare(pixels))
        return jax.nn.softmax(logits)

    def turn() -> None:
        with ThreadPoolExecutor(num_threads) as pool:
            images = list(
                pool.map(lambda p: to_pixels(p, about.image_shape, about.fit), paths)
            )
        for i in range(0, len(images), BATCH):
            np.asarray(bare(*weights, np.stack(images[i : i + BATCH])))

    return turn


def measure(
    ours: Callable[[], None],
    peer: Callable[[], None],
    num: int,
    prepare: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Run both in turn, and compare; `prepare` is called before each, untimed."""
    seconds: tuple[list[Seconds], list[Seconds]] = [], []
    for _ in range(PAIRS + 1):
        for turn, taken in zip((ours, peer), seconds, strict=True):
            prepare()
            taken.append(timed(turn))
        print(json.dumps([taken[-1] for taken in seconds]), flush=True)
    # The first compiles.
    return compare(seconds[0][1:], seconds[1][1:], num)


class Case(NamedTuple):
    """What is timed, the threads of its peer, and whether programs stay compiled."""

    command: Callable[[TrainedModel, Path], Callable[[], None]]
    threads: int = ahead.READ_THREADS
    cached: bool = True


CASES = {
    "predict": Case(command),
    "one_thread": Case(command, threads=1),
    "evaluate": Case(evaluation),
    "first_evaluate": Case(evaluation, cached=False),
}


def forget(cache: Path) -> None:
    """Remove all compiled programs, in memory and on disk."""
    jax.clear_caches()
    for path in cache.iterdir():
        path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--only", nargs="+", choices=CASES, default=[*CASES])
    arguments = parser.parse_args()
    num = arguments.images
    with tempfile.TemporaryDirectory() as root:
        folder, cache = Path(root), Path(root, "cache")
        cache.mkdir()
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(cache)
        jax.config.update("jax_compilation_cache_dir", str(cache))
        devices.start("auto")  # As commands do.
        for i in range(NUM_CLASSES):
            (folder / "photos" / str(i)).mkdir(parents=True)
        photographs = make_photographs()
        for i in range(num):
            data = photographs[i % len(photographs)]
            label = str(i % NUM_CLASSES)
            (folder / "photos" / label / f"{i:05d}.jpg").write_bytes(data)
        model = make()

        def row(name: str) -> dict[str, Any]:
            case = CASES[name]
            peer = one_after_the_other(model, folder, case.threads)
            prepare = (lambda: None) if case.cached else lambda: forget(cache)
            return measure(case.command(model, folder), peer, num, prepare)

        tell_each("predict", ((name, row(name)) for name in arguments.only))


if __name__ == "__main__":
    main()
