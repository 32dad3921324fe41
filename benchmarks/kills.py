"""Kills a run again and again, and compares its end with that of one left alone.

    python benchmarks/kills.py --kills 100

Each kill is a SIGKILL to the trainer alone, at a random moment after one of its first
steps; the same command then goes on. Batch norm, dropout, an average of the weights,
streamed data with two workers, eight simulated devices.
"""

import argparse
import functools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxtrain.checkpoints.folder import COMMITTED

ROOT = Path(__file__).resolve().parent.parent
SAVE_EVERY = 10
RECIPE = f"""
from jaxtrain.config import *

def get_config():
    return Config(
        data=DataConfig(source="digits", batch_size=64, workers=2),
        model=ConvNetConfig(name="convnet", width=0.125, dropout=0.2),
        optimizer=AdamWConfig(learning_rate=1e-3),
        train=TrainConfig(steps=10**6, ema_decay=0.9, eval_every_steps=10**6),
        checkpoint=CheckpointConfig(every_steps={SAVE_EVERY}),
        logging=LoggingConfig(every_steps=1, tensorboard=False),
    )
"""
# Kills come after so many steps of a start at most, and so many seconds at most, which
# is about a step or a save. By the steps, a slow machine comes as far as a fast one.
LAST, LONGEST = 25, 0.1
Start = Callable[[list[Any], dict[str, Any]], "subprocess.Popen[str]"]


def start_anew(words: list[Any], env: dict[str, Any]) -> "subprocess.Popen[str]":
    """Start the command line with these variables added to the environment."""
    return subprocess.Popen(
        [sys.executable, ROOT / "main.py", *words],
        env={**os.environ, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_again_and_again(
    folder: Path, num_kills: int, seed: int = 0, start: Start = start_anew
) -> dict[str, Any]:
    """Kill a run `num_kills` times, then let it end, and one like it without kills.

    Args:
      folder: where it runs.
      num_kills: how often.
      seed: of the moments.
      start: takes words and variables of the environment, and starts the command line.

    Raises:
      AssertionError: something was lost, or outlived the run.
    """
    (folder / "recipe.py").write_text(RECIPE)
    moments, workdir = random.Random(seed), folder / "killed"
    segments, committed = set[str](), 0
    again, waits = [0], list[float]()
    for _ in range(num_kills):
        lines, began = _lines(workdir), time.time()
        process = _start(start, folder, workdir)
        under_way = functools.partial(_steps_done, process, workdir, began)
        wait_for(lambda: under_way() > 0, 300)  # noqa: B023 (called here)
        waits.append(time.time() - began)
        if committed:
            step = next(line["step"] for line in _lines(workdir, began))
            assert step == committed, "not the newest checkpoint"
            again.append(max(line["step"] for line in lines) - step)
        steps = moments.randint(1, LAST)
        wait_for(lambda: under_way() >= steps, 300)  # noqa: B023 (called here)
        time.sleep(moments.uniform(0, LONGEST))
        below = children(process.pid)
        segments |= shared_memory({process.pid, *below})
        process.kill()
        process.communicate()
        wait_for(functools.partial(_all_ended, below), 60)
        newest = max(_committed(workdir), default=0)
        assert newest >= committed, "a committed step is gone"
        committed = newest
    assert max(again) <= 2 * SAVE_EVERY, "more than an interval and a save"
    end = committed + 2 * SAVE_EVERY
    workdirs = workdir, folder / "undisturbed"
    digests = [_finish(start, folder, each, end) for each in workdirs]
    assert digests[0] == digests[1] and len(digests[0]) > 20, "not the same end"
    assert segments
    wait_for(lambda: not any(map(os.path.exists, segments)), 60)
    return {
        "kills": num_kills,
        "steps": end,
        "steps_done_again": {"mean": sum(again) / len(again), "max": max(again)},
        "seconds_to_first_step": {
            "median": statistics.median(waits),
            "max": max(waits),
        },
        "arrays_equal": len(digests[0]),
    }


def _start(
    start: Start, folder: Path, workdir: Path, *words: str
) -> "subprocess.Popen[str]":
    options = ["--config", folder / "recipe.py", "--workdir", workdir]
    env: dict[str, Any] = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}
    return start([*options, *words], env)


def _finish(start: Start, folder: Path, workdir: Path, steps: int) -> dict[str, Any]:
    """Let a run come to its end; return the digests of the arrays that it saved."""
    process = _start(start, folder, workdir, "--train.steps", str(steps))
    _, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stderr
    path = workdir / "checkpoints" / str(steps) / "_CHECKPOINT_METADATA"
    return json.loads(path.read_text())["custom_metadata"]["arrays"]


def _lines(workdir: Path, since: float = 0.0) -> list[dict[str, Any]]:
    """Read the lines of metrics, but not one that a kill cut off."""
    path = workdir / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    whole = text[: text.rfind("\n") + 1].splitlines()
    return [line for line in map(json.loads, whole) if line["time"] >= since]


def _steps_done(process: "subprocess.Popen[str]", workdir: Path, began: float) -> int:
    """Return how many steps this start has done."""
    assert process.poll() is None, process.communicate()[1]
    return sum(line["kind"] == "train" for line in _lines(workdir, began))


def _committed(workdir: Path) -> list[int]:
    steps = (workdir / "checkpoints").glob(f"*/{COMMITTED}")
    return [int(path.parent.name) for path in steps]


def wait_for(ready: Callable[[], bool], seconds: float) -> None:
    """Wait until `ready()`, for so long at most."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


def children(pid: int) -> set[int]:
    """Return the processes below one, of all generations."""
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        if _stat(path)[1:2] == [str(pid)]:
            child = int(path.parent.name)
            found |= {child} | children(child)
    return found


def alive(pid: int) -> bool:
    return _stat(Path(f"/proc/{pid}/stat"))[:1] not in ([], ["Z"])


def _all_ended(pids: set[int]) -> bool:
    return not any(map(alive, pids))


def _stat(path: Path) -> list[str]:
    """Return a process's state, its parent, and more; nothing once it has ended."""
    return _read(path).rpartition(")")[2].split()


def _read(path: Path) -> str:
    """Return a file's text; nothing if it is gone."""
    try:
        return path.read_text()
    except OSError:
        return ""


def shared_memory(pids: set[int]) -> set[str]:
    """Return the paths of the segments that processes have mapped."""
    words = [word for pid in pids for word in _read(Path(f"/proc/{pid}/maps")).split()]
    return {word for word in words if word.startswith("/dev/shm/")}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        result = kill_again_and_again(Path(folder), options.kills, options.seed)
        seconds = round(time.monotonic() - start)
    print(json.dumps({"name": "kills", **result, "seconds": seconds}))


if __name__ == "__main__":
    main()
