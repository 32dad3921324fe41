"""What checking checkpoints costs: CPU seconds of a save's, over those of an interval.

    python benchmarks/digests.py

Measured at the default interval, an epoch, on the smallest data set there is and on
CIFAR-10's shapes: digests and the search for values that are not finite, both beside
the training. A restart computes the digests once more, to compare them. Reading a save
back has its own limit (`READING_SHARE` in `jaxtrain/checkpoints/retention.py`); here is
what one reading takes.
"""

import contextlib
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import jax

from jaxtrain import config as config_lib
from jaxtrain.checkpoints import snapshot
from jaxtrain.checkpoints.digest import digests, not_finite
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import Config
from jaxtrain.config.recipe import load_config
from jaxtrain.json_files.run_id import RunId
from jaxtrain.parallel import devices
from jaxtrain.plugins.plan.measure import compile_step, create_inputs
from jaxtrain.trainer.records import versions
from jaxtrain.trainer.setup import build_setup
from jaxtrain.training.state import as_dict

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
STEPS, REPEATS = 3, 3


def measure(config: Config) -> dict[str, Any]:
    setup = build_setup(config)
    program = compile_step(setup)
    state, key, data, batches = create_inputs(setup)
    steps, checks = [], []
    for _ in range(REPEATS):
        start = time.process_time()
        for _ in range(STEPS):
            state, _metrics = program(state, key, data, batches)
        jax.block_until_ready(state)
        steps.append((time.process_time() - start) / STEPS)
        copied = snapshot.take(as_dict(state))
        start = time.process_time()
        not_finite(copied)
        digests(copied)
        checks.append(time.process_time() - start)
    with tempfile.TemporaryDirectory() as folder:
        run = RunId.new(Path(folder))
        saved = Checkpoints(Path(folder), config.checkpoint, run=run)
        with contextlib.closing(saved):
            saved.save(0, as_dict(state), {}, None)
            saved.wait()
            start = time.perf_counter()
            saved.read(0)
            reading = time.perf_counter() - start
    interval = setup.timetable.save_every_steps
    assert interval is not None
    seconds, step = statistics.median(checks), statistics.median(steps)
    return {
        "part_of_training_time": seconds / (interval * step),
        "seconds": seconds,
        "seconds_to_read_back": reading,
        "step_seconds": step,
        "steps_of_interval": interval,
        "state_bytes": sum(x.nbytes for x in jax.tree.leaves(as_dict(state))),
    }


def main() -> None:
    devices.start("auto")
    cifar = config_lib.replace(
        load_config(CONFIGS / "cifar10_resnet18.py"),
        "data.source",
        "synthetic:32x32x3/10/50000",
    )
    print(
        json.dumps(
            {
                "name": "digests",
                "digits": measure(load_config(CONFIGS / "digits.py")),
                "cifar10_resnet18": measure(cifar),
                "device": jax.devices()[0].device_kind,
                "versions": versions(),
            }
        )
    )


if __name__ == "__main__":
    main()
