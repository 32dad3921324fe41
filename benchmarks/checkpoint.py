"""What checkpoints cost: the stall of the loop, slower steps meanwhile, the way back.

    python benchmarks/checkpoint.py [--case resnet50-64]

Each round takes steps, copies the state to new memory of the host, saves it while steps
go on, restores it, and reads the bytes of its files. Rows:

- `stall`: seconds until `save` returns and training goes on, against those of the
  copy. The state is ready before both.
- `steps`: seconds of a step while the save is under way, against those of one alone.
- `restore`: seconds of the way back onto the devices, digests compared, against those
  of reading the bytes, which the page cache holds.
"""

import argparse
import contextlib
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from cases import CASES, default_case, make_config
from pairs import relate, tell_each, timed
from roofline import in_a_row, make_step

from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import Config
from jaxtrain.json_files.run_id import RunId
from jaxtrain.parallel import devices
from jaxtrain.trainer.setup import Setup, build_setup
from jaxtrain.training.state import TrainState, as_dict
from jaxtrain.trees import num_bytes

# Rounds that count, and steps alone in each.
ROUNDS, STEPS = 7, 3
TINY_ROUNDS = 3


def copy_to_host(state: TrainState) -> list[np.ndarray]:
    """Copy all arrays of a state to new memory of the host."""
    there = jax.device_get(jax.tree.leaves(state))
    # On a CPU those are views of the arrays themselves.
    if jax.default_backend() == "cpu":
        return [np.array(x) for x in there]
    return there


def read_files(folder: Path) -> int:
    """Read the bytes of all files of a checkpoint; return their number."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return sum(len(path.read_bytes()) for path in paths)


def measure_round(
    number: int, setup: Setup, step: Callable[[], TrainState], saved: Checkpoints
) -> dict[str, float]:
    """Return the seconds of each part of a round."""

    def take() -> TrainState:
        return jax.block_until_ready(step())

    alone, state = in_a_row(take, STEPS)()[0], take()
    copying, _ = timed(lambda: copy_to_host(state))
    # New arrays: of those that were copied JAX keeps the copies.
    kept = as_dict(take())
    stall, _ = timed(lambda: saved.save(number, kept, {}, None))
    meanwhile = [timed(take)[0]]
    while not saved.committed():
        meanwhile.append(timed(take)[0])
    abstract = as_dict(setup.abstract_state)

    def restore() -> None:
        jax.block_until_ready(saved.restore(number, abstract)[0])

    return {
        "alone": alone,
        "copying": copying,
        "stall": stall,
        "meanwhile": statistics.mean(meanwhile),
        "restoring": timed(restore)[0],
        "reading": timed(lambda: read_files(saved.directory / str(number)))[0],
    }


def measure(config: Config, rounds: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure rounds, the first of which does not count; yield the rows."""
    setup = build_setup(config)
    step = make_step(setup)
    found: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        run = RunId.new(Path(folder))
        saved = Checkpoints(Path(folder), config.checkpoint, run=run)
        with contextlib.closing(saved):
            for number in range(rounds + 1):
                times = measure_round(number, setup, step, saved)
                for part, seconds in times.items() if number else ():
                    found[part].append(seconds)
    counts = {"state_bytes": num_bytes(setup.abstract_state)}
    yield "stall", relate(found["stall"], found["copying"], "s") | counts
    yield "steps", relate(found["meanwhile"], found["alone"], "s") | counts
    yield "restore", relate(found["restoring"], found["reading"], "s") | counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--tiny", action="store_true", help="only try the script")
    arguments = parser.parse_args()
    devices.start("auto")
    on_gpu = jax.default_backend() == "gpu"
    case = arguments.case or default_case(on_gpu, arguments.tiny)
    config = make_config(case, "bf16" if on_gpu else "fp32")
    rounds = TINY_ROUNDS if arguments.tiny else ROUNDS
    rows = measure(config, rounds)
    tell_each("checkpoint", ((f"{case}, {question}", row) for question, row in rows))


if __name__ == "__main__":
    main()
