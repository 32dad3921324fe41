"""Kernels lie in memory as cuDNN takes them, here in programs of the CPU."""

import shutil

import pytest

from jaxtrain.config import (
    Config,
    ConvNetConfig,
    DataConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.parallel.layout import KERNEL_ORDERS
from jaxtrain.trainer.setup import build_setup
from jaxtrain.trees import by_path
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import assert_same_run, read_summary

ORDER = (3, 0, 1, 2)
CHANGES = {
    "data": 'DataConfig(source="digits", batch_size=64)',
    "train": "TrainConfig(steps=7, ema_decay=0.9, eval_every_steps=3)",
}


@pytest.fixture
def as_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KERNEL_ORDERS, "cpu", ORDER)


def test_kernels_alone_are_laid_out(as_on_gpus: None):
    setup = build_setup(
        Config(
            data=DataConfig(source="digits", batch_size=64),
            model=ConvNetConfig(name="convnet"),
            optimizer=SGDConfig(learning_rate=0.1, momentum=0.9),
            train=TrainConfig(steps=1, ema_decay=0.9),
        )
    )
    found = {path: x.format.layout for path, x in by_path(setup.abstract_state).items()}
    kernels = {path for path, layout in found.items() if layout is not None}
    shapes = {path: x.ndim for path, x in by_path(setup.abstract_state).items()}
    assert kernels == {path for path, ndim in shapes.items() if ndim == 4}
    # Parameters, moments and averages of at least one convolution.
    assert {path.split("/")[0] for path in kernels} == {
        *("params", "opt_state", "extras"),
    }
    assert {found[path].major_to_minor for path in kernels} == {ORDER}


@pytest.mark.slow
def test_a_run_is_resumed_in_the_same_and_in_another_order(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    """As on a GPU, and then on a CPU: arrays are saved, whatever their memory is."""
    words = ["--config", write_recipe(cli.directory / "recipe.py", recipe(**CHANGES))]
    whole, parts, mixed = (cli.directory / name for name in ("whole", "parts", "mixed"))
    with monkeypatch.context() as patch:
        patch.setitem(KERNEL_ORDERS, "cpu", ORDER)
        cli.done(*words, "--workdir", whole)
        cli.done(*words, "--workdir", parts, "--train.stop-after-steps", 4)
        shutil.copytree(parts, mixed)
        cli.done(*words, "--workdir", parts)
    cli.done(*words, "--workdir", mixed)
    assert_same_run(whole, parts, 7)
    losses = [read_summary(end)["eval"]["loss"] for end in (whole, mixed)]
    # The order of sums may differ, by rounding alone.
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
