"""How long a recipe trains to an accuracy, beside how long another takes to its end.

    python benchmarks/time_to_accuracy.py --config configs/RECIPE.py
        [--peer-config configs/fashion_mnist.py] [--accuracy 0.93] [--seeds 3]
        [--section.field VALUE ...]

Both are trained through the command line, in processes of their own, in turn and once a
seed; options of the config are those of ours. What counts is the time of the whole
process, from its start to the test on all test images, without `compile_seconds` of its
summary, which are told beside it. An accuracy is reached if the mean over the seeds is
at least that, as in the public speed runs.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from pairs import quartiles, tell

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "configs"


class TrainedRun(NamedTuple):
    """A run, from its start to its test.

    Attributes:
      seconds: Seconds of the process, without those of compiling.
      compile_seconds: Seconds of compiling.
      train_seconds: Seconds of the training steps, evaluations and saves.
      accuracy: Test accuracy.
      device: Number and kind of the devices.
    """

    seconds: float
    compile_seconds: float
    train_seconds: float
    accuracy: float
    device: str


def train(config: Path, seed: int, words: list[str]) -> TrainedRun:
    """Train a recipe through the command line."""
    with tempfile.TemporaryDirectory() as folder:
        workdir = Path(folder) / "run"
        command = [sys.executable, str(ROOT / "main.py"), "--config", str(config)]
        command += ["--workdir", str(workdir), "--seed", str(seed), *words]
        start = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        seconds = time.perf_counter() - start
        if done.returncode:
            print(done.stdout, file=sys.stderr)
            raise SystemExit(done.returncode)
        told = json.loads((workdir / "summary.json").read_text())
    return TrainedRun(
        seconds - told["compile_seconds"],
        told["compile_seconds"],
        told["train_seconds"],
        told["eval"]["accuracy"],
        f"{told['num_devices']} x {told['device_kind']}",
    )


def summarize(runs: list[TrainedRun]) -> dict[str, Any]:
    """Return medians and spreads of some runs of a recipe, and the mean accuracy."""
    seconds = [run.seconds for run in runs]
    return {
        "seconds": statistics.median(seconds),
        "spread": quartiles(seconds),
        "compile_seconds": statistics.median(run.compile_seconds for run in runs),
        "train_seconds": statistics.median(run.train_seconds for run in runs),
        "accuracy": statistics.mean(run.accuracy for run in runs),
        "accuracies": [run.accuracy for run in runs],
        "devices": runs[0].device,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = CONFIGS / "fashion_mnist.py"
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--peer-config", type=Path, default=usual)
    parser.add_argument("--accuracy", type=float, default=0.93)
    parser.add_argument("--seeds", type=int, default=3)
    args, words = parser.parse_known_args()
    runs: tuple[list[TrainedRun], list[TrainedRun]] = [], []
    for seed in range(args.seeds):
        for config, own, found in zip(
            (args.config, args.peer_config), (words, []), runs, strict=True
        ):
            found.append(train(config, seed, own))
            line = f"{config.stem}, seed {seed}: {found[-1]}"
            print(line, file=sys.stderr, flush=True)
    ours, peer = map(summarize, runs)
    pairs = zip(*runs, strict=True)
    ratios = [theirs.seconds / own.seconds for own, theirs in pairs]
    result = {
        "ratio": statistics.median(ratios),
        "ours": ours["seconds"],
        "peer": peer["seconds"],
        "unit": "s",
        "spread": quartiles(ratios),
        "wanted": args.accuracy,
        "reached": ours["accuracy"] >= args.accuracy,
        "recipes": {args.config.stem: ours, args.peer_config.stem: peer},
    }
    tell("time_to_accuracy", result)


if __name__ == "__main__":
    main()
