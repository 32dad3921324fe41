"""A run goes on with other devices, processes and layouts, as if nothing had happened.

Every restore compares the digest of each array with that of the saved one, whatever the
layout: that a run goes on shows that its state came back to the last bit.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import CheckpointConfig
from jaxtrain.json_files.run_id import RunId
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli, run_two
from tests.helpers.recipes import recipe
from tests.helpers.runs import read_lines

# The order in which one run is carried on: processes, devices of each, flags.
STAGES = [
    (1, 8, "--parallel.preset 2d"),
    (2, 2, "--parallel.preset fsdp --data.cache stream --data.workers 1"),
    (1, 2, "--parallel.preset spatial --data.cache stream"),
]
STEPS_A_STAGE = 3
STEPS = STEPS_A_STAGE * len(STAGES)

CONFIG = recipe(
    precision='"fp64"',
    data='DataConfig(source="digits", batch_size=64, '
    "augment=AugmentConfig(crop_padding=1))",
    model='ModelConfig(name="convnet", width=0.5, dropout=0.1)',
    optimizer='OptimizerConfig(name="adamw", learning_rate=0.001)',
    parallel="ParallelConfig(batch_norm=8)",
    train=f"TrainConfig(steps={STEPS}, ema_decay=0.9)",
    checkpoint="CheckpointConfig(every_steps=100, keep=20)",
    logging="LoggingConfig(every_steps=1)",
)


def go_on(workdir: Path, processes: int, devices: int, *words: object) -> None:
    words = ("--config", workdir.parent / "recipe.py", "--workdir", workdir, *words)
    env = {"JAX_NUM_CPU_DEVICES": str(devices), **FP64}
    start = Cli(workdir.parent) if processes == 1 else partial(run_two, workdir.parent)
    result = start(*words, **env)
    assert result.code == 0, result.stderr


def losses(workdir: Path) -> np.ndarray:
    return np.array([line["loss"] for line in read_lines(workdir, "train")])


@pytest.mark.slow
def test_run_goes_on_across_devices_processes_and_presets(
    tmp_path: Path, write_config: Callable[..., Path]
):
    write_config(CONFIG)
    reference, workdir = tmp_path / "reference", tmp_path / "run"
    go_on(reference, 1, 1)
    for number, (processes, devices, words) in enumerate(STAGES, start=1):
        stop = ["--train.stop-after-steps", number * STEPS_A_STAGE]
        go_on(workdir, processes, devices, *words.split(), *stop)
        ours = losses(workdir)
        assert len(ours) == number * STEPS_A_STAGE
        # The next losses, after each change.
        expected = losses(reference)[: len(ours)]
        np.testing.assert_allclose(ours, expected, rtol=TOLERANCE)
    # Read back by one device, what 8, 4 and 2 wrote is what they had.
    folder, run = workdir / "checkpoints", RunId.read(workdir)
    saved = Checkpoints(folder, CheckpointConfig(), run=run, read_only=True)
    with contextlib.closing(saved):
        for number in range(1, len(STAGES) + 1):
            saved.verify(number * STEPS_A_STAGE)
