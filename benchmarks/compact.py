"""Structured pruning to half of the FLOPs, judged by the exported files.

    python benchmarks/compact.py [--models NAME:WIDTH ...] [--train-split SPLIT]
        [--epochs N] [--further-epochs N] [--criterion NAME] [--multiple N] [--images N]

Trains each model on Fashion-MNIST (`python main.py data --prepare tfds:fashion_mnist`,
or --source), takes half of its FLOPs out by `main.py compact`, trains on, and exports
both runs for one image at a time. ONNX Runtime then tells the accuracies of both files
on the first --images test images, and their latencies, in turn. `whole_again` is the
model before, trained on for as long in the same way: what fine-tuning alone is worth.
Prints one JSON object.
"""

import argparse
import json
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnxruntime

from jaxtrain import load_model
from jaxtrain.config import DataConfig
from jaxtrain.data import sources
from jaxtrain.run.summary import versions
from jaxtrain.training.state import num_params

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "configs" / "fashion_mnist.py"
# Of every run: a rate that both models learn with.
COMMON = {
    "data.validation-fraction": 0,
    "optimizer.name": "adamw",
    "optimizer.weight-decay": 0.05,
    "logging.report": False,
}
RATE, FURTHER_RATE = 0.004, 0.002
TURNS = 200


def main_py(*words: object) -> str:
    """Run the command line; return what it prints."""
    command = [sys.executable, str(ROOT / "main.py"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stderr}")
    return done.stdout


def train(workdir: Path, fields: dict[str, Any]) -> None:
    words = [w for name, value in fields.items() for w in (f"--{name}", value)]
    main_py("--config", RECIPE, "--workdir", workdir, *words)


def session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def export(workdir: Path) -> Path:
    """Export a run; the file takes pixels, one image at a time."""
    out = workdir.with_suffix(".onnx")
    words = ["--format", "onnx", "--batch", 1, "--include-preprocessing", "--out", out]
    main_py("export", "--workdir", workdir, "--checkpoint", "latest", *words)
    return out


def accuracy(path: Path, images: np.ndarray, labels: np.ndarray) -> float:
    run = session(path)
    outputs = [run.run(None, {"images": image[None]})[0] for image in images]
    found = [int(np.asarray(x).argmax()) for x in outputs]
    return float(np.mean(np.array(found) == labels))


def latencies(paths: list[Path], image: np.ndarray) -> list[float]:
    """Return the median milliseconds of an image, of files in turn."""
    runs, times = [session(path) for path in paths], [[] for _ in paths]
    for turn in range(TURNS + 10):
        for run, found in zip(runs, times, strict=True):
            start = time.perf_counter()
            run.run(None, {"images": image[None]})
            if turn >= 10:
                found.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(found) for found in times]


def measure(name: str, width: float, args: argparse.Namespace, folder: Path) -> Any:
    config = DataConfig(source=args.source, validation_fraction=0.0)
    test = sources.load(config, 0).test
    chosen = np.arange(min(args.images, len(test)))
    images = test.read(chosen)["image"]
    labels = np.asarray(test.targets(chosen))
    whole, smaller = folder / f"{name}_whole", folder / f"{name}_smaller"
    model = {"model.name": name, "model.stem": "cifar", "model.width": width}
    common = {**COMMON, "data.source": args.source, **model}
    common |= {"data.train-split": args.train_split} if args.train_split else {}
    train(
        whole,
        {**common, "train.epochs": args.epochs, "optimizer.learning-rate": RATE},
    )
    options = ["--criterion", args.criterion, "--multiple", args.multiple]
    told = main_py(
        *("compact", "--workdir", whole, "--flops", args.flops, "--out", smaller),
        *("--checkpoint", "latest", *options),
    )
    further = {
        **common,
        "train.epochs": args.further_epochs,
        "optimizer.learning-rate": FURTHER_RATE,
    }
    begun = {"tuned": smaller, "again": whole}
    runs = {"whole": whole}
    for run, start in begun.items():
        runs[run] = folder / f"{name}_{run}"
        train(runs[run], {**further, "model.pretrained": start})
    files = {run: export(place) for run, place in runs.items()}
    ms = latencies([files["whole"], files["tuned"]], images[0])
    found = {run: accuracy(path, images, labels) for run, path in files.items()}
    flops = re.search(r"FLOPs of an image\D*([\d,]+) -> ([\d,]+)", told)
    assert flops is not None
    return {
        "width": width,
        "flops": [int(x.replace(",", "")) for x in flops.groups()],
        "params": [num_params(load_model(p).params) for p in (whole, smaller)],
        "file_bytes": [files[n].stat().st_size for n in ("whole", "tuned")],
        "accuracy": {
            "whole": found["whole"],
            "smaller": found["tuned"],
            "whole_again": found["again"],
        },
        "points_lost": 100 * (found["whole"] - found["tuned"]),
        "latency_ms": ms,
        "latency_ratio": ms[1] / ms[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    models = ["resnet18:0.5", "mobilenet_v2:1.0"]
    parser.add_argument("--models", nargs="+", default=models)
    parser.add_argument("--source", default="tfds:fashion_mnist")
    parser.add_argument("--train-split")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--further-epochs", type=int, default=4)
    parser.add_argument("--flops", type=float, default=0.5)
    parser.add_argument("--criterion", default="taylor")
    parser.add_argument("--multiple", type=int, default=8)
    parser.add_argument("--images", type=int, default=10_000)
    args = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for text in args.models:
            name, _, width = text.partition(":")
            found[name] = measure(name, float(width), args, Path(folder))
    about = {
        "machine": platform.processor() or platform.machine(),
        "device": str(jax.devices()[0]),
        "versions": versions(),
        "onnxruntime": onnxruntime.__version__,
        "arguments": vars(args),
    }
    print(json.dumps({**about, "models": found}, indent=2))


if __name__ == "__main__":
    main()
