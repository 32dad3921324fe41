"""What the persistent compilation cache saves: a second start against the first.

    python benchmarks/warm_start.py [--config FILE] [--section.field VALUE ...]

Each pair starts the command line twice, in processes of their own, with an empty cache
and then with what the first has left there. `compile_seconds` of the summary, tracing
and lowering included, is what counts.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from jaxtrain.run.summary import versions

ROOT = Path(__file__).resolve().parent.parent
REPEATS = 5


def compile_seconds(folder: Path, name: str, words: list[str]) -> float:
    workdir = folder / name
    command = [sys.executable, str(ROOT / "main.py"), *words]
    command += ["--workdir", str(workdir), "--train.steps", "2"]
    env = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder / "cache")}
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    return json.loads((workdir / "summary.json").read_text())["compile_seconds"]


def main() -> None:
    words = sys.argv[1:] or ["--config", str(ROOT / "configs" / "digits.py")]
    words += ["--optimizer.warmup-steps", "0"]
    pairs = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            cold = compile_seconds(folder, "cold", words)
            pairs.append((cold, compile_seconds(folder, "warm", words)))
    cold, warm = (statistics.median(values) for values in zip(*pairs, strict=True))
    ratios = sorted(c / w for c, w in pairs)
    result = {
        "name": "warm_start",
        "ratio": cold / warm,
        "ours": warm,
        "peer": cold,
        "unit": "s",
        "spread": [ratios[0], ratios[-1]],
        "device": "cpu",
        "versions": versions(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
