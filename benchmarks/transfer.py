"""What the weights of another task are worth where there are few images.

    python benchmarks/transfer.py [--per-class N] [--seeds N]

Writes the real Fashion-MNIST, of Debian's dataset-fashion-mnist, as folders of PNG
files: all training images of the classes 0 to 4, and N of each of the classes 5 to 9
with all their test images. A ResNet-18 of a quarter of the width learns the former in
three epochs. A run on the latter then begins with its weights (ours); the peer begins
with random ones, and is the same in all else: `configs/folder.py`, 60 epochs in batches
of 50, AdamW at 0.005. Each number is the mean of the test accuracies over the seeds.
`ratio` is that of the errors, the peer's over ours; `fine_tune` is a third run, that
begins with the weights and has the recipe's epochs with --train.fine-tune.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
from PIL import Image

from jaxtrain.config import DataConfig
from jaxtrain.data import sources
from jaxtrain.trainer.records import versions

ROOT = Path(__file__).parents[1]
FASHION_MNIST = "idx:/usr/share/datasets/fashion-mnist"
FIRST_NEW = 5
# Of every run.
COMMON = {
    "model.name": "resnet18",
    "model.stem": "cifar",
    "model.width": 0.25,
    "data.validation-fraction": 0,
    "logging.report": False,
}
KNOWN = {"train.epochs": 3, "data.batch-size": 128}
FEW = {
    "train.epochs": 60,
    "data.batch-size": 50,
    "optimizer.learning-rate": 0.005,
}
# It has a schedule of its own, in place of the recipe's.
FINE_TUNE = {
    "train.fine-tune": True,
    "optimizer.schedule": "constant",
    "optimizer.warmup-fraction": None,
}


def write_images(folder: Path, per_class: int) -> None:
    """Write known/ and new/, each with train/CLASS/*.png and test/CLASS/*.png."""
    data = DataConfig(source=FASHION_MNIST, validation_fraction=0.0)
    splits = sources.load(data, 0)
    for name, split in (("train", splits.train), ("test", splits.test)):
        everything = np.arange(len(split))
        labels = np.asarray(split.targets(everything))
        for label in range(10):
            chosen = everything[labels == label]
            is_new = label >= FIRST_NEW
            if is_new and name == "train":
                chosen = chosen[:per_class]
            place = folder / ("new" if is_new else "known") / name / f"class_{label}"
            place.mkdir(parents=True)
            for number, image in zip(chosen, split.read(chosen)["image"], strict=True):
                Image.fromarray(image[..., 0]).save(place / f"{number:05}.png")


def train(data: Path, workdir: Path, **options: object) -> float:
    """Train by the command line; return the test accuracy."""
    command = [sys.executable, str(ROOT / "main.py")]
    command += ["--config", str(ROOT / "configs" / "folder.py")]
    command += ["--workdir", str(workdir), "--data.source", f"folder:{data}"]
    for field, value in {**COMMON, **options}.items():
        command += [f"--{field}", str(value)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    summary = json.loads((workdir / "summary.json").read_text())
    return summary["eval"]["accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-class", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    found: dict[str, list[float]] = {"ours": [], "peer": [], "fine_tune": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_images(folder, given.per_class)
        known = folder / "known_run"
        base = train(folder / "known", known, **KNOWN)
        begin = {"model.pretrained": known}
        runs = {
            "ours": {**FEW, **begin},
            "peer": FEW,
            "fine_tune": {**FEW, **begin, **FINE_TUNE},
        }
        for seed in range(given.seeds):
            for run, options in runs.items():
                workdir = folder / f"{run}_{seed}"
                accuracy = train(folder / "new", workdir, seed=seed, **options)
                found[run].append(accuracy)
                print(f"{run} {seed}: {accuracy:.4f}", file=sys.stderr, flush=True)
    means = {run: statistics.mean(values) for run, values in found.items()}
    pairs = zip(found["ours"], found["peer"], strict=True)
    differences = [ours - peer for ours, peer in pairs]
    result = {
        "name": "transfer",
        "ratio": (1 - means["peer"]) / (1 - means["ours"]),
        **means,
        "unit": "test accuracy",
        "spread": [min(differences), max(differences)],
        "per_class": given.per_class,
        "accuracy_of_known_classes": base,
        "seeds": given.seeds,
        "device": jax.devices()[0].device_kind or platform.processor(),
        "versions": versions(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
