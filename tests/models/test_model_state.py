"""A model's own state is trained, averaged, saved and resumed like batch norm's."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxtrain import own
from jaxtrain.config import SGDConfig, TrainConfig
from jaxtrain.inference.load import load_model
from jaxtrain.training.averages import Ema
from jaxtrain.training.create import first_state
from jaxtrain.training.optimizers import make_optimizer
from jaxtrain.training.state import TrainState
from jaxtrain.training.transforms.average import WeightAverage
from jaxtrain.training.transforms.guard import Guard
from jaxtrain.training.update import apply_gradients
from tests.helpers.phases import make_phase
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines, read_summary

MODEL = "tests.helpers.plain_norm:PlainNorm"
own.allow([MODEL])
RUN = recipe(
    data='DataConfig(source="synthetic:8x8x1/4/96", batch_size=16)',
    model=f'CustomModelConfig(name="{MODEL}")',
    train="TrainConfig(steps=6, ema_decay=0.9, accumulate_steps=2, eval_every_steps=2)",
    checkpoint="CheckpointConfig(every_steps=2, keep=9)",
    logging="LoggingConfig(every_steps=1, tensorboard=False)",
)
# Flax's batch norm has its statistics in float32 always. Nothing in the model has a
# corner, at which rounding (1e-7) would grow: it comes to 1e-6 in six steps.
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-6}


def average(values: list[Any]) -> Any:
    """Return the moving average, from the initial value on."""
    result = values[0]
    for i, value in enumerate(values[1:]):
        decay = min(0.9, (1 + i) / (10 + i))
        result = decay * result + (1 - decay) * value
    return result


def update_of(params: Any, model_state: Any) -> tuple[Any, TrainState]:
    options = SGDConfig(learning_rate=0.1)
    train = TrainConfig(steps=9, ema_decay=0.9)
    schedule: Any = optax.constant_schedule(0.1)
    tx = make_optimizer(options, schedule)
    transforms = (WeightAverage(Ema(0.9)), Guard())
    state = first_state((params, model_state), tx, transforms)
    return make_phase(options, train, tx, None, {}, transforms=transforms), state


def step(update: Any, state: TrainState, model_state: Any) -> tuple[TrainState, Any]:
    one, grads = jnp.float32(1), jax.tree.map(jnp.zeros_like, state.params)
    key, metrics = jax.random.key(0), {"loss": one}
    return apply_gradients(
        update, state, key, grads, one, model_state, metrics, optax.tree.norm
    )


def test_averages_are_of_the_state_itself_and_counts_those_of_the_last_step():
    update, state = update_of({"w": jnp.ones(2)}, {"q": {"s": jnp.ones(3), "n": 0}})
    state = jax.tree.map(jnp.asarray, state)
    scales = [1.0]
    for i in range(4):
        scales.append(2.0 + i)
        new = {"q": {"s": jnp.full(3, scales[-1]), "n": jnp.asarray(i + 1)}}
        state, _ = step(update, state, new)
    found = state.eval_model_state["q"]
    np.testing.assert_allclose(found["s"], average(scales), rtol=1e-6)
    assert found["n"] == 4


@pytest.mark.slow
def test_a_run_goes_on_on_other_devices_and_is_evaluated(cli: Cli):
    write_recipe(cli.directory / "run.py", RUN)

    def run(name: str, devices: int, *words: object) -> Path:
        arguments = ["--config", "run.py", "--workdir", name, *words]
        cli.done(*arguments, JAX_NUM_CPU_DEVICES=str(devices))
        return cli.directory / name

    whole = run("whole", 1)
    run("parts", 4, "--train.stop-after-steps", 4, "--parallel.preset", "fsdp")
    parts = run("parts", 2)
    losses = [[line["loss"] for line in read_lines(w, "train")] for w in (whole, parts)]
    assert len(losses[0]) == 6
    np.testing.assert_allclose(losses[0], losses[1], **CLOSE)
    evals = [read_lines(w, "eval") for w in (whole, parts)]
    for one, other in zip(*evals, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=CLOSE["rtol"])
    states = [load_model(w, 6).model_state for w in (whole, parts)]
    assert states[0]["scale"]["count"] == 12
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **CLOSE), *states)
    cli.done("evaluate", "--workdir", "parts", "--trust")
    found = json.loads((parts / "evaluation.json").read_text())["metrics"]["loss"]
    assert found == pytest.approx(read_summary(parts)["eval"]["loss"], rel=1e-5)
