"""Bad steps are told with their data, and no state that is not finite is saved."""

import contextlib
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

from jaxtrain.checkpoints.digest import not_finite
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import AdagradConfig, CheckpointConfig, SGDConfig, TrainConfig
from jaxtrain.config.recipe import load_config
from jaxtrain.data.order import DataOrder
from jaxtrain.errors import BadNumbersError
from jaxtrain.json_files.run_id import RunId
from jaxtrain.trainer.bad_steps import MAX_TOLD
from jaxtrain.trainer.setup import build_setup
from jaxtrain.training.create import first_state
from jaxtrain.training.kernels import global_norm
from jaxtrain.training.optimizers import make_optimizer
from jaxtrain.training.state import TrainState, as_dict
from jaxtrain.training.transforms.base import Metrics
from jaxtrain.training.transforms.guard import Guard
from jaxtrain.training.update import apply_gradients
from tests.helpers.phases import make_phase
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.saved import RUN
from tests.helpers.trial import LAYOUT

# Two good steps; then the statistics of the last batch norm overflow.
CHANGES = {
    "optimizer": "SGDConfig(learning_rate=1e3)",
    "train": "TrainConfig(steps=30, ema_decay=0.9, max_bad_steps=100)",
    "checkpoint": "CheckpointConfig(every_steps=1, keep=100)",
}


@pytest.mark.slow
def test_bad_steps_are_told_with_their_examples_and_never_saved(cli: Cli, write_config):
    """A run that stops in between tells no more of them; all checkpoints are finite."""
    config, run = write_config(recipe(**CHANGES)), cli.directory / "run"
    words = ["--config", config, "--workdir", run]
    cli.done(*words, "--train.stop-after-steps", 11)
    cli.done(*words)
    lines = [e for e in read_lines(run, "event") if e["event"] == "bad step"]
    skipped = read_summary(run)["skipped_steps"]
    assert len(lines) == min(MAX_TOLD, skipped)
    assert skipped > MAX_TOLD, skipped
    steps = [line["step"] for line in lines]
    assert steps == sorted(set(steps))
    setup = build_setup(load_config(config))
    for line in lines:
        order = DataOrder(0, setup.timetable.num_examples, 64)
        expected = order.indices(line["step"] - 1)
        assert line["examples"] == expected.tolist()
        assert isinstance(line["loss"], float | str)
        assert isinstance(line["grad_norm"], float | str)
    assert ["note" in line for line in lines] == [False] * (MAX_TOLD - 1) + [True]
    abstract = as_dict(setup.abstract_state)
    checkpoint = setup.config.checkpoint
    saved = Checkpoints(run / "checkpoints", checkpoint, run=RunId.read(run))
    with contextlib.closing(saved):
        assert len(saved.steps()) == 30
        for step in saved.steps():
            state, _ = saved.restore(step, abstract)
            assert not_finite(state) == []


def test_state_of_the_optimizer_that_overflows_is_not_saved(tmp_path: Path):
    """Adagrad's sum of squares comes to infinity, and the weights stay as they are."""
    tx: Any = make_optimizer(
        AdagradConfig(learning_rate=0.1),
        optax.constant_schedule(0.1),  # pyright: ignore[reportArgumentType]
    )
    update = make_phase(
        SGDConfig(), TrainConfig(steps=1), tx, None, {}, transforms=(Guard(),)
    )
    params = {"weights": jnp.ones(1)}
    state = first_state((params, {}), tx, update.transforms)
    root = jax.random.key(0)
    norm_of = functools.partial(global_norm, layout=LAYOUT)
    norm = jnp.float32(1.2e19)  # Squared, less than half the largest.

    def take_step(state: TrainState) -> tuple[TrainState, Metrics]:
        grads, metrics = {"weights": norm[None]}, {"loss": norm}
        return apply_gradients(update, state, root, grads, norm, {}, metrics, norm_of)

    folder = tmp_path / "checkpoints"
    folder.mkdir()
    saved = Checkpoints(folder, CheckpointConfig(), run=RUN)
    with contextlib.closing(saved):
        for step in (1, 2):
            state, metrics = take_step(state)
            assert metrics["skipped"] == 0
            saved.save(step, as_dict(state), {}, None)
        state, metrics = take_step(state)
        assert metrics["skipped"] == 0
        saved.save(3, as_dict(state), {}, None)
        with pytest.raises(BadNumbersError, match=r"opt_state/.*/2$"):
            saved.wait()
        assert saved.steps() == [1, 2]
