"""What the cache of compiled programs saves: a second start against the first.

    python benchmarks/compile.py [--only digits resnet50] [--pairs 3]

Each pair starts the command line twice, in processes of their own: with an empty cache,
and with what the first has left there. What counts are the `compile_seconds` of the
summary: tracing, lowering and compiling, or reading, all programs of a run. `ours` is
the second start. The data are noise, but for digits; --tiny takes a small model, once.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pairs import relate, tell_each

from jaxtrain.parallel.devices import nvidia_gpus

ROOT = Path(__file__).resolve().parent.parent
PAIRS = 3
# Name -> recipe, source, batch, and options of the model.
RUNS = {
    "digits": ("digits", "digits", 128, {}),
    "resnet18": ("cifar10_resnet18", "synthetic:32x32x3/10/512", 128, {}),
    "resnet50": (
        "cifar10_resnet18",
        "synthetic:224x224x3/1000/512",
        128,
        {"model.name": "resnet50", "model.stem": "None"},
    ),
}
# Of images of 224 pixels, on a CPU.
CPU_SIZE, CPU_BATCH = "64", "32"
TINY = ["--model.width", "0.125", "--data.batch-size", "64"]


def words(name: str, on_gpu: bool) -> list[str]:
    """Return the command of a run of two steps."""
    recipe, source, batch_size, model = RUNS[name]
    options = {
        "config": str(ROOT / "configs" / f"{recipe}.py"),
        "data.source": source,
        "data.batch-size": str(batch_size),
        "train.epochs": "None",
        "train.steps": "2",
        "optimizer.warmup-steps": "0",
        "logging.report": "False",
        **model,
    }
    if "224" in source and not on_gpu:
        options |= {"data.image-size": CPU_SIZE, "data.batch-size": CPU_BATCH}
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def compile_seconds(folder: Path, name: str, words: list[str]) -> float:
    """Run the command line, with the cache of this folder."""
    workdir = folder / name
    command = [sys.executable, str(ROOT / "main.py"), *words, "--workdir", str(workdir)]
    env = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder / "cache")}
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    return json.loads((workdir / "summary.json").read_text())["compile_seconds"]


def measure(words: list[str], pairs: int) -> dict[str, Any]:
    """Start the pairs; return how they compare."""
    cold, warm = [], []
    for _ in range(pairs):
        with tempfile.TemporaryDirectory() as name:
            cold.append(compile_seconds(Path(name), "cold", words))
            warm.append(compile_seconds(Path(name), "warm", words))
    return relate(warm, cold, "s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=[*RUNS])
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--tiny", action="store_true", help="only try the script")
    arguments = parser.parse_args()
    on_gpu = bool(nvidia_gpus()) and os.environ.get("JAX_PLATFORMS") != "cpu"
    runs: Iterator[tuple[str, dict[str, Any]]] = (
        (name, measure(words(name, on_gpu), arguments.pairs)) for name in arguments.only
    )
    if arguments.tiny:
        command = words("digits", on_gpu) + TINY
        runs = iter([("tiny", measure(command, 1))])
    tell_each("compile", runs)


if __name__ == "__main__":
    main()
