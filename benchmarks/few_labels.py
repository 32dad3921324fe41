"""What features learnt without labels are worth, where few images have a label.

    python benchmarks/few_labels.py [--labels 100] [--seeds 1] [--losses simclr byol]
        [--out runs/few_labels] [--source idx:/usr/share/datasets/fashion-mnist]
        [--epochs 3]

The recipes configs/simclr.py and configs/byol.py are trained on all training images.
Then a classifier is trained on a few images a class, with the same recipe each time:
from scratch, with the last layer alone on the frozen features (a linear probe), and
with all layers from these features (fine-tuned). What counts is the accuracy on all
test images, a mean over the seeds, each of which draws other images. All runs are those
of main.py; one that has reached its end is not run again. The `ratio` is the part of
the errors from scratch over that of the best.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import numpy as np
from pairs import timed_process

from jaxtrain.config import DataConfig
from jaxtrain.data import sources
from jaxtrain.trainer.records import versions

ROOT = Path(__file__).resolve().parent.parent
PRETRAINED = ("simclr", "byol")
EPOCHS = 20
# Of a classifier on few images; `scratch`, probe and fine-tuning differ in their words.
RECIPE = """\
from jaxtrain.config import *


def get_config() -> Config:
    return Config(
        seed={seed},
        data=DataConfig(
            source="arrays:{arrays}",
            batch_size=100,
            eval_batch_size=500,
            validation_fraction=0.0,
            augment=AugmentConfig(horizontal_flip=True, crop_padding=2),
        ),
        model=WhitenedCNNConfig(name="whitened_cnn_small"),
        optimizer=AdamWConfig(
            learning_rate=2e-3, schedule=CosineSchedule(), warmup_epochs=1
        ),
        train=TrainConfig(epochs={epochs}),
        checkpoint=CheckpointConfig(every_epochs={epochs}),
        logging=LoggingConfig(report=False, tensorboard=False),
    )
"""


def write_arrays(path: Path, source: str, num_labels: int, seed: int) -> None:
    """Write a few images of each class, drawn by a seed, and the whole test split."""
    splits = sources.load(DataConfig(source=source, validation_fraction=0.0), 0)
    train, test = splits.train, splits.test
    assert test is not None
    label, rng = train.strata(), np.random.default_rng(seed)
    chosen = [
        rng.choice(np.flatnonzero(label == number), num_labels, replace=False)
        for number in np.unique(label)
    ]
    few = train.read(np.sort(np.concatenate(chosen)))
    others = test.read(np.arange(len(test)))
    np.savez(
        path,
        image=few["image"],
        label=few["target"],
        image_test=others["image"],
        label_test=others["target"],
    )


def train(config: Path, workdir: Path, *words: str) -> float:
    """Train to the end; return the seconds of CPU."""
    command = ["main.py", "--config", str(config), "--workdir", str(workdir), *words]
    print(" ".join(command), file=sys.stderr, flush=True)
    return timed_process([sys.executable, str(ROOT / command[0]), *command[1:]])[0][1]


def accuracy(workdir: Path, metric: str = "accuracy") -> float:
    return json.loads((workdir / "summary.json").read_text())["eval"][metric]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--losses", nargs="+", default=PRETRAINED, choices=PRETRAINED)
    parser.add_argument("--out", type=Path, default=Path("runs/few_labels"))
    source = "idx:/usr/share/datasets/fashion-mnist"
    parser.add_argument("--source", default=source)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    cpu_seconds, knn = {}, {}
    for name in given.losses:
        words = ("--data.source", given.source, "--train.epochs", str(given.epochs))
        words = (*words, "--logging.report", "False")
        config = ROOT / "configs" / f"{name}.py"
        cpu_seconds[name] = train(config, given.out / name, *words)
        knn[name] = accuracy(given.out / name, "knn_accuracy")
    ways: dict[str, tuple[str, ...]] = {"scratch": ()}
    for name in given.losses:
        begin = ("--model.pretrained", str(given.out / name))
        ways[f"{name}_probe"] = (*begin, "--train.freeze", "backbone")
        ways[f"{name}_fine_tuned"] = begin
    found: dict[str, list[float]] = {way: [] for way in ways}
    for seed in range(given.seeds):
        arrays = given.out / f"few{seed}.npz"
        if not arrays.exists():
            write_arrays(arrays, given.source, given.labels, seed)
        config = given.out / f"recipe{seed}.py"
        fields = {"arrays": arrays.resolve(), "seed": seed, "epochs": EPOCHS}
        config.write_text(RECIPE.format(**fields))
        for way, words in ways.items():
            workdir = given.out / f"{way}{seed}"
            cpu_seconds[f"{way}{seed}"] = train(config, workdir, *words)
            found[way].append(accuracy(workdir))
    means = {way: statistics.mean(values) for way, values in found.items()}
    best = max(means, key=lambda way: means[way])
    told = {
        "name": "few_labels",
        "ratio": (1 - means["scratch"]) / (1 - means[best]),
        "ours": means[best],
        "peer": means["scratch"],
        "unit": "test accuracy",
        "spread": [min(found[best]), max(found[best])],
        "best": best,
        "accuracies": found,
        "knn_accuracy": knn,
        "labels_a_class": given.labels,
        "cpu_seconds": cpu_seconds,
        "device": "cpu",
        "versions": versions(),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
