"""Optimizers, and what is done to gradients before them, on one device and on eight."""

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines
from tests.helpers.tiers import thinned

# Name -> how eight devices share the work.
MESHES = {
    "adan": "--parallel.preset fsdp",
    "ademamix": "--parallel.preset zero1",
    "adopt": "--parallel.pipeline-stages 2",
}


@pytest.mark.parametrize("name", thinned(2, MESHES))
def test_eight_devices_take_the_steps_of_one(name: str, tmp_path: Path):
    text = recipe(
        data='DataConfig(source="synthetic:8x8x1/4/96", batch_size=16)',
        model='ModelConfig(name="convnet", width=0.25)',
        optimizer=f'OptimizerConfig(name="{name}", learning_rate=0.01, '
        "weight_decay=0.1, clip_ratio=0.02)",
        train="TrainConfig(steps=8)",
        checkpoint="CheckpointConfig(every_steps=100)",
        logging="LoggingConfig(every_steps=1, tensorboard=False)",
    )
    write_recipe(tmp_path / "recipe.py", text)
    losses = []
    for devices, words in (("1", ""), ("8", MESHES[name])):
        words = f"--config recipe.py --workdir run{devices} --precision fp64 {words}"
        env = {**FP64, "JAX_NUM_CPU_DEVICES": devices}
        result = Cli(tmp_path)(*words.split(), **env)
        assert result.code == 0, result.stderr
        lines = read_lines(tmp_path / f"run{devices}", "train")
        losses.append([line["loss"] for line in lines])
    assert len(losses[0]) == 8 and losses[0][-1] != losses[0][0]
    np.testing.assert_allclose(*losses, rtol=TOLERANCE)
