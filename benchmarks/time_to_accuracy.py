"""How long a recipe trains to an accuracy, beside how long a peer takes to its end.

    python benchmarks/time_to_accuracy.py --config configs/RECIPE.py
        [--peer-config configs/fashion_mnist.py | --peer-python PYTHON]
        [--accuracy 0.93] [--seeds 3] [--section.field VALUE ...]

The peer is another recipe or, by --peer-python, the same recipe in plain PyTorch
(`torch_recipe.py`), run by the interpreter that has it. Both are trained in processes
of their own, in turn and once a seed; options of the config are those of our recipe.
What counts is the time of the whole process, from its start to the test on all test
images, without `compile_seconds` of its summary, which are told beside it, as is the
ratio with them. Ours reads and decodes its data set, PyTorch finds arrays in a file. An
accuracy is reached if the mean over the seeds is at least that, as in the public speed
runs.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pairs import quartiles, tell, timed_process
from peer_cases import CASES

from jaxtrain.commands.train import TrainArguments
from jaxtrain.config import AugmentConfig, Config
from jaxtrain.config.recipe import parse
from jaxtrain.data import sources
from jaxtrain.errors import UserError
from jaxtrain.evaluation.evaluate import eval_batch_size
from jaxtrain.trainer.periods import make_timetable

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "configs"
TORCH_RECIPE = Path(__file__).resolve().parent / "torch_recipe.py"


class TrainedRun(NamedTuple):
    """A run, from its start to its test.

    Attributes:
      seconds: Seconds of the process, without those of compiling.
      cpu_seconds: Seconds of all cores, with those of compiling.
      compile_seconds: Seconds of compiling.
      train_seconds: Seconds of the training steps, evaluations and saves.
      accuracy: Test accuracy.
      device: Number and kind of the devices.
    """

    seconds: float
    cpu_seconds: float
    compile_seconds: float
    train_seconds: float
    accuracy: float
    device: str


# Seed -> run.
Train = Callable[[int], TrainedRun]


def train(config: Path, words: list[str], seed: int) -> TrainedRun:
    """Train a recipe through the command line."""
    with tempfile.TemporaryDirectory() as folder:
        workdir = Path(folder) / "run"
        command = [sys.executable, str(ROOT / "main.py"), "--config", str(config)]
        command += ["--workdir", str(workdir), "--seed", str(seed), *words]
        (seconds, cpu_seconds), _ = timed_process(command)
        told = json.loads((workdir / "summary.json").read_text())
    return TrainedRun(
        seconds - told["compile_seconds"],
        cpu_seconds,
        told["compile_seconds"],
        told["train_seconds"],
        told["eval"]["accuracy"],
        f"{told['num_devices']} x {told['device_kind']}",
    )


class TorchRecipe:
    """A recipe in plain PyTorch, with its data as arrays in a file.

    Args:
      python: Interpreter that has PyTorch.
      config: Recipe, one of the speed runs'.
      folder: Folder for the arrays.

    Raises:
      UserError: the recipe has what the peer has not.
    """

    def __init__(self, python: str, config: Config, folder: Path):
        self.python, self.folder = python, folder
        splits = sources.load(config.data, config.seed)
        arrays = {}
        for name in ("train", "test"):
            source = getattr(splits, name)
            indices = np.arange(len(source))
            arrays[f"{name}_images"] = source.read(indices)["image"]
            arrays[f"{name}_labels"] = source.targets(indices)
        np.savez(folder / "data.npz", allow_pickle=False, **arrays)
        timetable = make_timetable(config, len(splits.train), has_validation=False)
        self.request = {
            "data": str(folder / "data.npz"),
            "steps": timetable.total_steps,
            "warmup_steps": timetable.warmup_steps,
            **in_plain_torch(config, splits.input_shape),
        }

    def train(self, seed: int) -> TrainedRun:
        path = self.folder / "request.json"
        path.write_text(json.dumps({**self.request, "seed": seed}))
        (seconds, cpu_seconds), told = timed_process(
            [self.python, str(TORCH_RECIPE), str(path)]
        )
        found = json.loads(told)
        device = f"PyTorch {found['torch']}, {found['num_threads']} threads"
        return TrainedRun(
            seconds,
            cpu_seconds,
            0.0,
            found["train_seconds"],
            found["accuracy"],
            device,
        )


def in_plain_torch(config: Config, image_shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the arguments of `torch_recipe.train` that a config says."""
    optimizer, options, data = config.optimizer, config.train, config.data
    wanted = {
        "model.name": (config.model.name, ("whitened_cnn_small",)),
        "optimizer.name": (optimizer.name, ("muon",)),
        "optimizer.schedule": (optimizer.schedule, ("linear",)),
        "train.freeze": (options.freeze, (("whiten",),)),
        "data.augment": (data.augment, (AugmentConfig(alternating_flip=True),)),
        "data.validation_fraction": (data.validation_fraction, (0.0,)),
    }
    for field, (value, known) in wanted.items():
        if value not in known:
            raise UserError(f"--peer-python: the peer has no {field} = {value!r}")
    name, arguments = CASES[config.model.name].peer
    return {
        "model": [name, {"image_shape": image_shape, "num_classes": 10, **arguments}],
        "batch_size": data.batch_size,
        "eval_batch_size": eval_batch_size(data),
        "rate": optimizer.learning_rate,
        "momentum": optimizer.arguments()["momentum"],
        "weight_decay": optimizer.weight_decay,
        "label_smoothing": config.task.arguments()["label_smoothing"],
        "ema_decay": options.ema_decay,
        "mirrored_test": options.tta == "flip",
    }


def summarize(runs: list[TrainedRun]) -> dict[str, Any]:
    """Return medians and spreads of some runs of a recipe, and the mean accuracy."""
    seconds = [run.seconds for run in runs]
    return {
        "seconds": statistics.median(seconds),
        "spread": quartiles(seconds),
        "cpu_seconds": statistics.median(run.cpu_seconds for run in runs),
        "compile_seconds": statistics.median(run.compile_seconds for run in runs),
        "train_seconds": statistics.median(run.train_seconds for run in runs),
        "accuracy": statistics.mean(run.accuracy for run in runs),
        "accuracies": [run.accuracy for run in runs],
        "devices": runs[0].device,
    }


def take_turns(trains: dict[str, Train], seeds: int, accuracy: float) -> dict[str, Any]:
    """Train ours and the peer's in turn, once a seed; return what is told of them."""
    runs: dict[str, list[TrainedRun]] = {name: [] for name in trains}
    for seed in range(seeds):
        for name, train_one in trains.items():
            runs[name].append(train_one(seed))
            print(f"{name}, seed {seed}: {runs[name][-1]}", file=sys.stderr, flush=True)
    ours, peer = map(summarize, runs.values())
    pairs = list(zip(*runs.values(), strict=True))
    ratios = [theirs.seconds / own.seconds for own, theirs in pairs]
    with_compiling = [
        (theirs.seconds + theirs.compile_seconds) / (own.seconds + own.compile_seconds)
        for own, theirs in pairs
    ]
    return {
        "ratio": statistics.median(ratios),
        "ratio_with_compiling": statistics.median(with_compiling),
        "ours": ours["seconds"],
        "peer": peer["seconds"],
        "unit": "s",
        "spread": quartiles(ratios),
        "wanted": accuracy,
        "reached": ours["accuracy"] >= accuracy,
        "recipes": dict(zip(runs, (ours, peer), strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = CONFIGS / "fashion_mnist.py"
    parser.add_argument("--config", type=Path, required=True)
    peers = parser.add_mutually_exclusive_group()
    peers.add_argument("--peer-config", type=Path, default=usual)
    peers.add_argument("--peer-python")
    parser.add_argument("--accuracy", type=float, default=0.93)
    parser.add_argument("--seeds", type=int, default=3)
    args, words = parser.parse_known_args()
    trains: dict[str, Train] = {
        args.config.stem: lambda seed: train(args.config, words, seed)
    }
    with tempfile.TemporaryDirectory() as folder:
        if args.peer_python is None:
            other = args.peer_config
            trains[other.stem] = lambda seed: train(other, [], seed)
        else:
            words = ["--config", str(args.config), *words]
            config = parse(TrainArguments, words, prog=Path(__file__).name).overrides
            recipe = TorchRecipe(args.peer_python, config, Path(folder))
            trains["plain PyTorch"] = recipe.train
        tell("time_to_accuracy", take_turns(trains, args.seeds, args.accuracy))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"{Path(__file__).name}: error: {error}") from None
