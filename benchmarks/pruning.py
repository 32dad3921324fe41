"""What accuracy is left of Fashion-MNIST where nine weights in ten are 0.

    python benchmarks/pruning.py [--sparsity 0.9] [--pattern 2:4] [--width 2]
        [--epochs 6] [--seeds 1] [--without-scratch] [FURTHER OPTIONS OF main.py]

`configs/fashion_mnist_fast.py` (peer), of another width; the same recipe once more from
its weights, with pruning (ours); and with pruning from random weights (`scratch`). Each
number is the mean of the test accuracies, on 10,000 images, over the seeds. `lost` is
the peer's less ours, in points, and `spread` its least and its largest. Other models:

    python benchmarks/pruning.py --epochs 10 --model.name resnet18 --model.stem cifar
        --model.width 0.5 --train.freeze None

The data are those of Debian's dataset-fashion-mnist.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pairs import describe_device

from jaxtrain.trainer.records import versions

ROOT = Path(__file__).parents[1]
FASHION_MNIST = "idx:/usr/share/datasets/fashion-mnist"
RECIPE = ROOT / "configs" / "fashion_mnist_fast.py"


def train(workdir: Path, words: list[str]) -> dict[str, Any]:
    """Train by the command line; return the summary of the run."""
    command = [sys.executable, str(ROOT / "main.py"), "--config", str(RECIPE)]
    command += ["--workdir", str(workdir), *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return json.loads((workdir / "summary.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sparsity", type=float, default=0.9)
    parser.add_argument("--pattern", help="in the place of --sparsity")
    parser.add_argument("--width", type=float, default=2.0)
    parser.add_argument("--epochs", type=float, default=6.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--without-scratch", action="store_true")
    given, further = parser.parse_known_args()
    prune = ["--prune.sparsity", str(given.sparsity)]
    if given.pattern is not None:
        prune = ["--prune.pattern", given.pattern]
    common = ["--model.width", str(given.width), "--train.epochs", str(given.epochs)]
    common += ["--data.source", FASHION_MNIST, *further]
    found: dict[str, list[float]] = {}
    sparse: dict[str, Any] = {}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        for seed in range(given.seeds):
            dense = Path(name) / f"peer_{seed}"
            runs = {
                "peer": [],
                "ours": [*prune, "--model.pretrained", str(dense)],
                "scratch": prune,
            }
            if given.without_scratch:
                del runs["scratch"]
            for run, options in runs.items():
                words = [*common, "--seed", str(seed), *options]
                summary = train(Path(name) / f"{run}_{seed}", words)
                accuracy = summary["eval"]["accuracy"]
                found.setdefault(run, []).append(accuracy)
                sparse = summary.get("sparsity") or sparse
                print(f"{run} {seed}: {accuracy:.4f}", file=sys.stderr, flush=True)
    means = {run: statistics.mean(values) for run, values in found.items()}
    pairs = zip(found["peer"], found["ours"], strict=True)
    lost = [100 * (peer - ours) for peer, ours in pairs]
    result = {
        "name": "pruning",
        "ratio": means["ours"] / means["peer"],
        **means,
        "unit": "test accuracy",
        "lost": statistics.mean(lost),
        "spread": [min(lost), max(lost)],
        "pruned": given.pattern or given.sparsity,
        "sparsity": sparse["sparsity"],
        "weights": sparse["weights"],
        "nonzero": sparse["nonzero"],
        "seconds": time.perf_counter() - start,
        "options": " ".join(common),
        "device": describe_device(),
        "versions": versions(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
