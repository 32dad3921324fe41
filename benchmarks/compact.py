"""What smaller models lose and save, judged by their files of ONNX.

    python benchmarks/compact.py [--models resnet18 mobilenet_v2] [--rows ROW ...]
        [--epochs N] [--tuning-epochs N] [--digits] [--folder FOLDER]

For each model, all through the command line, a run from random weights (`dense`), and
runs that begin with its weights:

    again          as it is: what the further epochs alone are worth
    compact        without half of its FLOPs (`main.py compact`)
    int8           with `model.quantize`, its teacher the dense model
    sparse         with nine weights in ten pruned
    compact_int8   what `compact` has made, with `model.quantize` and the teacher

each for --tuning-epochs, those with `model.quantize` for half as long, and a file of
each. The dense model is rounded without training, too: `rounded_mse`,
`rounded_percentile` and `rounded_minmax` by `main.py quantize`, and `rounded_by_ort` by
`export --precision int8`. ONNX Runtime computes the accuracies of all files on the
test split, and their times for one image and for eight, in turn. Ratios are those to
the dense file. `same` is the part of the logits of a file in 8 bits that are those of
its model to one step of the last scale, of 1,000 images.

Data: Fashion-MNIST (`python main.py data --prepare tfds:fashion_mnist`), or, with
--digits, scikit-learn's, with small models, in some minutes. Runs that --folder has
are not trained again.
"""

import argparse
import functools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnxruntime
from pairs import CPU_INFO, describe_device, take_turns

from jaxtrain import load_model
from jaxtrain.config.recipe import load_config
from jaxtrain.data import sources
from jaxtrain.plugins.compact.channels.groups import NUM_IMAGES, channels_of
from jaxtrain.trainer.records import versions
from jaxtrain.training.state import num_params
from jaxtrain.trees import by_path

ROOT = Path(__file__).resolve().parent.parent
# Name -> options of the model, and those for digits.
MODELS = {
    "resnet18": ({"width": 0.5, "stem": "cifar"}, {"width": 0.125}),
    "mobilenet_v2": ({"stem": "cifar"}, {"width": 0.25}),
}
COMMON = {
    "optimizer.name": "sgd",
    "optimizer.momentum": 0.9,
    "optimizer.nesterov": True,
    "optimizer.weight-decay": 5e-4,
    "optimizer.warmup-epochs": 0.3,
    "data.validation-fraction": 0.02,
    "logging.report": False,
}
RATE, FURTHER_RATE, ROUNDED_RATE = 0.1, 0.03, 0.01
INT8 = {"model.quantize": "int8", "optimizer.learning-rate": ROUNDED_RATE}
# Rows that are trained: what a run begins with, and its fields.
ROWS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "again": ("dense", {}),
    "compact": ("half", {}),
    "int8": ("dense", INT8),
    "sparse": ("dense", {"prune.sparsity": 0.9}),
    "compact_int8": ("compact", INT8),
}
# Rows that are not trained.
ROUNDED = ("rounded_mse", "rounded_percentile", "rounded_minmax")
BY_ORT = "rounded_by_ort"
BATCHES, TURNS, THREADS = (1, 8), 200, 2


def main_py(*words: object) -> str:
    """Run the command line to its end; return what it printed."""
    command = [sys.executable, str(ROOT / "main.py"), *map(str, words)]
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ).stdout


class Bench:
    """The runs and files of a model.

    Args:
      name: Name of the model.
      folder: Where they are.
      given: Arguments of the script.
    """

    def __init__(self, name: str, folder: Path, given: argparse.Namespace):
        options, small = MODELS[name]
        options = {**options, **(small if given.digits else {})}
        self.model = {"model.name": name}
        self.model |= {f"model.{key}": value for key, value in options.items()}
        self.folder, self.given = folder / name, given
        self.folder.mkdir(parents=True, exist_ok=True)
        data = "digits" if given.digits else "fashion_mnist"
        self.recipe = ROOT / "configs" / f"{data}.py"

    def run(self, row: str) -> Path:
        """Return the folder of a row, made if it is not there."""
        workdir = self.folder / row
        if row == BY_ORT:
            return self.run("dense")
        if row in ROUNDED:
            method = ["--calibration", row.partition("_")[2], "--checkpoint", "latest"]
            if not workdir.exists():
                words = ["--workdir", self.run("dense"), "--out", workdir]
                main_py("quantize", *words, *method)
            return workdir
        if (workdir / "summary.json").exists():
            return workdir
        fields = {**COMMON, **self.model}
        if row == "dense":
            fields |= {"optimizer.learning-rate": RATE}
            fields |= {"train.epochs": self.given.epochs}
        else:
            begun, own = ROWS[row]
            start = self.half() if begun == "half" else self.run(begun)
            fields |= {"model.pretrained": start}
            part = 0.5 if "model.quantize" in own else 1
            fields |= {"train.epochs": part * self.given.tuning_epochs}
            fields |= {"optimizer.learning-rate": FURTHER_RATE, **own}
        words = [w for key, value in fields.items() for w in (f"--{key}", value)]
        if "model.quantize" in fields:
            words += ["--method", "distillation"]
            words += ["--method.teacher", self.run("dense")]
        main_py("--config", self.recipe, "--workdir", workdir, *words)
        return workdir

    def half(self) -> Path:
        """Return the folder of the dense model without half of its FLOPs."""
        out = self.folder / "half"
        if not out.exists():
            words = ["--checkpoint", "latest", "--flops", 0.5, "--out", out]
            main_py("compact", "--workdir", self.run("dense"), *words)
        return out

    def file(self, row: str, *, pixels: bool = True) -> Path:
        """Return the file of a row; with `pixels` it puts out probabilities."""
        out = self.folder / f"{row}{'' if pixels else '_logits'}.onnx"
        if not out.exists():
            words = ["--format", "onnx", "--out", out]
            words += ["--include-preprocessing"] if pixels else []
            words += ["--precision", "int8"] if row == BY_ORT else []
            images = ["--images", self.run("dense")]
            words += images if row in ROUNDED else ["--checkpoint", "latest"]
            main_py("export", "--workdir", self.run(row), *words)
        return out

    @functools.cached_property
    def test(self) -> tuple[np.ndarray, np.ndarray]:
        """The images of the test split, and their labels."""
        config = load_config(self.recipe)
        split = sources.load(config.data, config.seed).test
        read = split.read(np.arange(len(split)))
        return np.asarray(read["image"]), np.asarray(read["target"])

    def measure(self) -> dict[str, Any]:
        """Return what is measured of each row."""
        rows = ["dense", BY_ORT, *ROUNDED, *self.given.rows]
        files = {row: self.file(row) for row in rows}
        outputs = {row: outputs_of(path, self.test[0]) for row, path in files.items()}
        found = {row: self.describe(row, outputs[row]) for row in rows}
        for size in BATCHES:
            images = self.test[0][:size]
            calls = [timed_call(path, images) for path in files.values()]
            for row, times in zip(rows, take_turns(calls, TURNS), strict=True):
                middle = statistics.median(wall for wall, _ in times)
                found[row][f"milliseconds_of_{size}"] = 1e3 * middle
        dense = found["dense"]
        for numbers in found.values():
            numbers["points_lost"] = 100 * (dense["accuracy"] - numbers["accuracy"])
            for key in ("bytes", *(f"milliseconds_of_{size}" for size in BATCHES)):
                numbers[f"{key}_ratio"] = numbers[key] / dense[key]
        return found

    def describe(self, row: str, outputs: np.ndarray) -> dict[str, Any]:
        """Return what a file is worth by itself."""
        images, labels = self.test
        trained = load_model(self.run(row))
        about: dict[str, Any] = {
            "accuracy": float((outputs.argmax(-1) == labels).mean()),
            "params": num_params(trained.params),
            "bytes": self.file(row).stat().st_size,
        }
        if trained.description.model.quantize is None:
            shapes = trained.description.blueprint().images(NUM_IMAGES)
            channels = channels_of(trained.description.abstract, shapes)
            about["flops"] = channels.flops({})
            return about
        ends = by_path(trained.model_state)
        low, high = (ends[f"head/linear/output_range/{x}"] for x in ("low", "high"))
        some = images[:1000]
        prepared = np.asarray(trained.prepare(jnp.asarray(some)))
        found = outputs_of(self.file(row, pixels=False), prepared)
        away = np.abs(found - trained.logits(some)) / (float(high - low) / 255)
        return {**about, "same": float((away <= 1.01).mean())}


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = THREADS, 3
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(path, options, providers=providers)


def outputs_of(path: Path, images: np.ndarray) -> np.ndarray:
    """Return the outputs of a file for the images."""
    run, parts = session(path), range(0, len(images), 100)
    return np.concatenate(
        [
            np.asarray(run.run(None, {"images": images[start : start + 100]})[0])
            for start in parts
        ]
    )


def timed_call(path: Path, images: np.ndarray) -> Callable[[], tuple[float, float]]:
    """Return what times a call with some images."""
    run = session(path)

    def call() -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        run.run(None, {"images": images})
        return time.perf_counter() - wall, time.process_time() - cpu

    call()
    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=[*MODELS], default=[*MODELS])
    parser.add_argument("--rows", nargs="*", choices=[*ROWS], default=[*ROWS])
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--tuning-epochs", type=float, default=4)
    parser.add_argument("--digits", action="store_true")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = given.folder or Path(made)
        models = {n: Bench(n, folder.resolve(), given).measure() for n in given.models}
    told = {
        "name": "compact",
        "epochs": [given.epochs, given.tuning_epochs],
        "vnni": "vnni" in CPU_INFO.read_text(),
        "device": describe_device(),
        "versions": {**versions(), "onnxruntime": onnxruntime.__version__},
        "models": models,
    }
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
