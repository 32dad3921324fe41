"""What 8 bits cost and save: trained with them, and rounded after training.

    python benchmarks/quantization.py [--only resnet18 mobilenet_v2] [--epochs 10]
        [--tuning-epochs 4] [--digits]

For each model, all through the command line: a run in float32; a run that begins with
its weights and trains with `model.quantize` at a tenth of the learning rate; and three
files of ONNX: the first run's in fp32 and in int8, with ranges from training images,
and the second's. Each file is evaluated in ONNX Runtime on the whole test split, and
the calls of a single image are timed, in turn. `ours` and `peer` are the times of the
second run's file and of the fp32 one. Fashion-MNIST as `configs/fashion_mnist.py` has
it (`python main.py data --prepare tfds:fashion_mnist`); --digits takes small models and
digits, in a minute or two.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from pairs import CPU_INFO, compare, take_turns, tell_each

from jaxtrain.config.recipe import load_config
from jaxtrain.data import sources

ROOT = Path(__file__).resolve().parent.parent
RATE, TUNING_RATE = 0.1, 0.01
# Name -> options of the model, and those for digits.
MODELS = {
    "resnet18": ({"width": "0.5", "stem": "cifar"}, {"width": "0.125"}),
    "mobilenet_v2": ({"stem": "cifar"}, {"width": "0.25"}),
}
TURNS = 300
THREADS = 2


def recipe(given: argparse.Namespace) -> Path:
    """Return the config file of the data."""
    return ROOT / "configs" / f"{'digits' if given.digits else 'fashion_mnist'}.py"


def main_py(*words: object) -> str:
    """Run the command line to its end; return what it printed."""
    command = [sys.executable, str(ROOT / "main.py"), *map(str, words)]
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ).stdout


def train(name: str, workdir: Path, given: argparse.Namespace, **extra: Any) -> None:
    """Train one of the models."""
    options, small = MODELS[name]
    options = {**options, **(small if given.digits else {})}
    values = {
        "config": recipe(given),
        "workdir": workdir,
        "model.name": name,
        **{f"model.{option}": value for option, value in options.items()},
        "optimizer.name": "sgd",
        "optimizer.momentum": 0.9,
        "optimizer.weight-decay": 5e-4,
        "optimizer.warmup-fraction": 0.05,
        "logging.report": False,
        **extra,
    }
    main_py(*(word for key, value in values.items() for word in (f"--{key}", value)))


def export(workdir: Path, out: Path, *words: str) -> Path:
    """Write a file of ONNX that takes pixels."""
    preprocessing = ("--format", "onnx", "--include-preprocessing")
    main_py("export", "--workdir", workdir, "--out", out, *preprocessing, *words)
    return out


def runner(path: Path) -> Callable[[np.ndarray], np.ndarray]:
    """Return what runs a file as a server with two cores would."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = THREADS, 3
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )
    return lambda images: np.asarray(session.run(None, {"images": images})[0])


def accuracy(path: Path, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the part of the images that a file gives the right class."""
    run, parts = runner(path), range(0, len(images), 100)
    found = [run(images[start : start + 100]).argmax(-1) for start in parts]
    return float((np.concatenate(found) == labels).mean())


def timed_call(path: Path, image: np.ndarray) -> Callable[[], tuple[float, float]]:
    """Return what times a call with one image."""
    run = runner(path)

    def call() -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        run(image)
        return time.perf_counter() - wall, time.process_time() - cpu

    call()
    return call


def measure(name: str, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Train, export, evaluate and time one of the models."""
    full, tuned = folder / name, folder / f"{name}_int8"
    rates = {"optimizer.learning-rate": RATE, "train.epochs": given.epochs}
    train(name, full, given, **rates)
    rates = {
        "optimizer.learning-rate": TUNING_RATE,
        "train.epochs": given.tuning_epochs,
    }
    begin = {"model.pretrained": full, "model.quantize": "int8"}
    train(name, tuned, given, **rates, **begin)
    files = {
        "fp32": export(full, folder / f"{name}_fp32.onnx"),
        "after_training": export(
            full, folder / f"{name}_after.onnx", "--precision", "int8"
        ),
        "in_training": export(tuned, folder / f"{name}_in.onnx"),
    }
    config = load_config(recipe(given))
    test = sources.load(config.data, config.seed).test
    read = test.read(np.arange(len(test)))
    images, labels = np.asarray(read["image"]), np.asarray(read["target"])
    right = {kind: accuracy(path, images, labels) for kind, path in files.items()}
    calls = [timed_call(path, images[:1]) for path in files.values()]
    times = dict(zip(files, take_turns(calls, TURNS), strict=True))
    milliseconds = {
        kind: 1e3 * statistics.median(wall for wall, _ in found)
        for kind, found in times.items()
    }
    sizes = {kind: path.stat().st_size for kind, path in files.items()}
    return {
        **compare(times["in_training"], times["fp32"], 1.0, "images/s"),
        "accuracy": right,
        "points_lost": {k: 100 * (right["fp32"] - right[k]) for k in right},
        "milliseconds": milliseconds,
        "time_ratio": milliseconds["in_training"] / milliseconds["fp32"],
        "megabytes": {kind: size / 1e6 for kind, size in sizes.items()},
        "size_ratio": sizes["in_training"] / sizes["fp32"],
        "test_images": len(labels),
        "vnni": "vnni" in CPU_INFO.read_text(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(MODELS), default=[*MODELS])
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--tuning-epochs", type=float, default=4)
    parser.add_argument("--digits", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = ((name, measure(name, Path(folder), given)) for name in given.only)
        tell_each("quantization", rows)


if __name__ == "__main__":
    main()
