"""Embeddings: the same run on any devices, though examples are compared over all."""

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines, read_summary

pytestmark = pytest.mark.slow

LOSSES = {
    "arcface": '{"size": 8, "scale": 16.0}',
    "contrastive": '{"loss": "contrastive", "size": 8}',
}


def run(folder: Path, options: str, devices: int, *words: str) -> Path:
    """Train with two views of an image in a batch."""
    folder.mkdir(exist_ok=True)
    expression = recipe(
        task='"embedding"',
        task_options=options,
        precision='"fp64"',
        data='DataConfig(source="digits", batch_size=32, eval_batch_size=16, repeats=2,'
        " augment=AugmentConfig(crop_padding=1))",
        optimizer='OptimizerConfig(name="sgd", learning_rate=0.05, momentum=0.9)',
        train="TrainConfig(steps=8, eval_every_steps=4)",
        checkpoint="CheckpointConfig(every_steps=4)",
        logging="LoggingConfig(every_steps=1)",
    )
    config = write_recipe(folder / "recipe.py", expression)
    result = Cli(folder)(
        *("--config", config, "--workdir", folder / "run"),
        *[f"--{word}" for word in words],
        JAX_NUM_CPU_DEVICES=str(devices),
        **FP64,
    )
    assert result.code == 0, result.stderr
    return folder / "run"


def assert_same(one: Path, other: Path) -> None:
    losses = [
        [line["loss"] for line in read_lines(workdir, "train")]
        for workdir in (one, other)
    ]
    assert len(losses[0]) == 8
    np.testing.assert_allclose(*losses, rtol=TOLERANCE)
    tests = [read_summary(workdir)["eval"] for workdir in (one, other)]
    for name, value in tests[0].items():
        np.testing.assert_allclose(value, tests[1][name], TOLERANCE)


@pytest.mark.parametrize(
    ("loss", "preset"), [("arcface", "fsdp"), ("contrastive", "2d")]
)
def test_a_run_that_goes_on_elsewhere(tmp_path: Path, loss: str, preset: str):
    alone = run(tmp_path / "one", LOSSES[loss], 1)
    words = f"parallel.preset={preset}", "train.stop-after-steps=5"
    run(tmp_path / "many", LOSSES[loss], 8, *words)
    assert_same(alone, run(tmp_path / "many", LOSSES[loss], 1))


def test_arcface_in_pipeline_stages(tmp_path: Path):
    words = ("parallel.pipeline-stages=2", "train.accumulate-steps=2")
    options = LOSSES["arcface"]
    alone = run(tmp_path / "one", options, 1, words[1])
    assert_same(alone, run(tmp_path / "many", options, 2, *words))
