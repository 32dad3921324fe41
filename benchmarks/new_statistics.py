"""What statistics of batch norms computed anew are worth to averaged weights.

    python benchmarks/new_statistics.py --seeds 3
    python benchmarks/new_statistics.py --seeds 3 --epochs 2 --rate 0.5

Small runs on the digits, on the CPU. Each average is evaluated on the test split twice:
with the statistics that training left (of a soup, their means), and with those computed
anew of training images, which a run and `average` take. Prints a table, and one JSON
object last: the ratio is the loss with the former over that with the latter.
"""

import argparse
import contextlib
import dataclasses
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxtrain
from jaxtrain import load_model
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import (
    AugmentConfig,
    CheckpointConfig,
    Config,
    ConvNetConfig,
    DataConfig,
    LoggingConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.config.optimizer import OPTIMIZERS
from jaxtrain.config.part import make_part
from jaxtrain.data import sources
from jaxtrain.inference.model import TrainedModel, make_model
from jaxtrain.json_files.run_id import RunId
from jaxtrain.plugins.averaging.average import average

SOUP = 3
Sections = dict[str, Any]


def runs_of(epochs: float, rate: float) -> dict[str, Sections]:
    """Return the sections of each run that differ from `config_of`."""
    half = epochs / 2

    def free(name: str, rate: float) -> Sections:
        config = dataclasses.replace(
            make_part(OPTIMIZERS, name), learning_rate=rate, warmup_fraction=0.1
        )
        return {"optimizer": config}

    lookahead = SGDConfig(learning_rate=rate, warmup_fraction=0.1, lookahead_steps=5)
    return {
        "SWA, constant rate": {
            "train": TrainConfig(epochs=epochs, swa_start_epochs=half)
        },
        "schedule-free SGD": free("schedule_free_sgd", 5 * rate),
        "schedule-free AdamW": free("schedule_free_adamw", rate / 10),
        "Lookahead, 5 steps": {"optimizer": lookahead},
    }


def config_of(seed: int, epochs: float, rate: float, **sections: Any) -> Config:
    """Return a run on the digits whose last checkpoint is the only one."""
    parts: Sections = {
        "data": DataConfig(source="digits", batch_size=64, mean=(0.3,), std=(0.35,)),
        "model": ConvNetConfig(name="convnet", width=0.25),
        "optimizer": SGDConfig(learning_rate=rate, warmup_fraction=0.1),
        "train": TrainConfig(epochs=epochs),
        "checkpoint": CheckpointConfig(every_epochs=epochs, keep=1, keep_best=0),
        "logging": LoggingConfig(report=False, tensorboard=False),
    }
    return Config(seed=seed, **{**parts, **sections})


def measure(model: TrainedModel, config: Config) -> tuple[float, float]:
    """Return the cross entropy and the accuracy on the test split."""
    test = sources.load(config.data, config.seed).test
    read = test.read(np.arange(len(test)))
    logits, labels = model.logits(read["image"]), read["target"]
    losses = -np.take_along_axis(
        np.asarray(jax.nn.log_softmax(logits)), labels[:, None], 1
    )
    return float(losses.mean()), float((logits.argmax(1) == labels).mean())


def of_run(folder: Path, config: Config) -> list[tuple[float, float]]:
    """Return what is measured without, and with, statistics computed anew."""
    workdir = folder / "run"
    step = jaxtrain.train(config, workdir)["step"]
    new = load_model(workdir, "latest")
    place, run = workdir / "checkpoints", RunId.read(workdir)
    saved = Checkpoints(place, CheckpointConfig(), run=run, read_only=True)
    with contextlib.closing(saved):
        state, _ = saved.read(step)
    old = make_model(
        new.description,
        state["extras"]["average"]["params"],
        state["model_state"],
        {},
        str(workdir),
    )
    return [measure(model, config) for model in (old, new)]


def of_soup(
    folder: Path, seed: int, epochs: float, rate: float
) -> list[tuple[float, float]]:
    """Return the same of a soup of runs with other data orders and augmentation."""
    base, config = folder / "base", config_of(seed, epochs, rate)
    jaxtrain.train(config, base)
    models = []
    for number in range(SOUP):
        data = dataclasses.replace(
            config.data, augment=AugmentConfig(crop_padding=number)
        )
        model = dataclasses.replace(config.model, pretrained=str(base))
        workdir = folder / str(number)
        again = config_of(100 + number, epochs, rate, data=data, model=model)
        jaxtrain.train(again, workdir)
        models.append(load_model(workdir, "latest"))
    soups = [
        average(
            models, config, num_images=num, greedy=False, judged_by_validation=False
        ).model
        for num in (0, 10_000)
    ]
    return [measure(model, config) for model in soups]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=12)
    parser.add_argument("--rate", type=float, default=0.1)
    options = parser.parse_args()
    epochs, rate = options.epochs, options.rate
    runs = runs_of(epochs, rate)
    ratios, rows = [], []
    for name in [*runs, f"soup of {SOUP} runs"]:
        found = []
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as text:
                folder = Path(text)
                if name in runs:
                    config = config_of(seed, epochs, rate, **runs[name])
                    found.append(of_run(folder, config))
                else:
                    found.append(of_soup(folder, seed, epochs, rate))
        ratios += [old[0] / new[0] for old, new in found]
        cells = [
            f"{statistics.mean(pair[i][k] for pair in found):.4f}"
            for i in (0, 1)
            for k in (0, 1)
        ]
        rows.append(f"| {name} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    print("\n| average | loss, left | accuracy | loss, anew | accuracy |")
    print("|---|---|---|---|---|", *rows, sep="\n")
    result = {
        "name": "loss with the statistics that training left over that with new ones",
        "ratio": statistics.median(ratios),
        "spread": [min(ratios), max(ratios)],
        "unit": "cross entropy",
        "device": jax.devices()[0].device_kind,
        "versions": {"jax": jax.__version__},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
