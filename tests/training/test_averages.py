"""Averages of weights: schedule-free, SWA, Lookahead; optimizers of other packages."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.config import PlateauSchedule, TrainConfig
from jaxtrain.tasks.metrics import Goal
from jaxtrain.trainer import plateau
from jaxtrain.training.averages import Average, Lookahead, Swa, make_average
from jaxtrain.training.create import first_state
from jaxtrain.training.frozen import with_told_rate
from jaxtrain.training.optimizers import make_optimizer
from jaxtrain.training.schedules import Schedule, with_constant_end
from jaxtrain.training.state import TrainState
from jaxtrain.training.transforms.average import WeightAverage
from jaxtrain.training.transforms.guard import Guard
from jaxtrain.training.update import apply_gradients, gradient_params
from tests.helpers.numerics import same
from tests.helpers.parts import optimizer_config
from tests.helpers.phases import make_phase
from tests.helpers.processes import ROOT
from tests.helpers.rows import each_row
from tests.helpers.trial import IMAGES, LABELS, Trial

STORED: dict[str, Any] = json.loads(
    (ROOT / "tests" / "stored" / "optimizers.json").read_text()
)
ADAM = {"b1": 0.75, "b2": 0.875}
# The options with which tests/oracles/optimizers.py made what is stored.
OPTIONS: dict[str, dict[str, Any]] = {
    "schedule_free_sgd": {"learning_rate": 0.5, "momentum": 0.75},
    "schedule_free_adamw": {"learning_rate": 0.125, **ADAM, "eps": 0.125},
    "prodigy": {"learning_rate": 1.0, **ADAM},
    "dadapt_adamw": {"learning_rate": 1.0, **ADAM},
}


def of(state: TrainState, field: str) -> Any:
    """Return a field of a state, or the arrays of a transform."""
    return state.extras.get(field) or getattr(state, field)


class Steps:
    """Steps of an optimizer and its average on a few weights, without a model."""

    def __init__(
        self,
        params: Any,
        options: dict[str, Any],
        warmup: int = 0,
        average: Average | None = None,
        decay: float = 0.0,
        schedule: Schedule | None = None,
    ):
        config = optimizer_config(weight_decay=decay, **options)
        peak = config.learning_rate or 0.0

        def warmed_up(step: Any) -> jax.Array:
            part = (jnp.asarray(step, float) + 1) / max(warmup, 1)
            return peak * jnp.minimum(1, part)

        schedule = schedule or warmed_up
        tx = make_optimizer(config, schedule)
        train = TrainConfig(steps=99)
        average = average or make_average(config, train)
        transforms = (WeightAverage(average), Guard()) if average else (Guard(),)
        self.update = make_phase(config, train, tx, schedule, {}, transforms=transforms)
        self.state = first_state((params, {}), tx, transforms)
        self._step = jax.jit(self._take)

    def _take(self, state: TrainState, noise: Any, target: Any, loss: Any) -> Any:
        at = gradient_params(self.update, state)
        grads = jax.tree.map(lambda p, t, n: 0.3 * (p - t) + n, at, target, noise)
        one = jnp.float32(1)
        return apply_gradients(
            self.update,
            state,
            jax.random.key(0),
            grads,
            one,
            {},
            {"loss": loss},
            lambda _: one,
        )[0]

    def __call__(self, noise: Any, target: Any, loss: float = 1.0) -> TrainState:
        self.state = self._step(self.state, noise, target, jnp.float32(loss))
        return self.state


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(tree[name]) for name in ("kernel", "bias")])


def stored(name: str, step: int | None = None) -> Any:
    found = STORED[name]
    return {
        n: jnp.asarray(x if step is None else x[step], float) for n, x in found.items()
    }


@pytest.mark.parametrize("name", OPTIONS)
def test_steps_are_those_of_the_authors_package(name: str):
    """In float64, as theirs; what has moved by 1e-3 agrees to 1e-9 of that."""
    with jax.enable_x64(True):
        warmup = STORED["warmup"] if name.startswith("schedule_free") else 0
        first, target = stored("first"), stored("target")
        steps = Steps(first, {"name": name, **OPTIONS[name]}, warmup, None, 0.125)
        for step, expected in enumerate(STORED["steps"][name]):
            state = steps(stored("noise", step), target)
            found = flat(state.eval_params) - flat(first)
            moved = np.asarray(expected) - flat(first)
            np.testing.assert_allclose(
                found, moved, rtol=0, atol=1e-9 * abs(moved).max()
            )


@pytest.mark.parametrize("name", ["prodigy", "dadapt_adamw"])
def test_a_rate_of_0_changes_nothing_and_leaves_no_nan(name: str):
    """As in the first step of a warm-up, where optax divides 0 by 0."""
    options = optimizer_config(name, learning_rate=1.0, weight_decay=0.1)
    tx = make_optimizer(options, lambda step: jnp.minimum(jnp.asarray(step), 1.0))
    params, update = stored("first"), jax.jit(tx.update)
    opt_state = tx.init(params)
    updates, opt_state = update(stored("noise", 0), opt_state, params)
    assert all(not x.any() for x in jax.tree.leaves(updates))
    for step in range(1, 4):
        updates, opt_state = update(stored("noise", step), opt_state, params)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((updates, opt_state)))
    assert all(x.any() for x in jax.tree.leaves(updates))


# Steps that are skipped: none, some before the first cycle, within one, at its end.
BAD_STEPS: tuple[tuple[int, ...], ...] = ((), (1, 2), (5,), (11,), (2, 7, 11, 12, 14))


@each_row("bad", BAD_STEPS)
def test_swa_is_the_mean_of_the_weights_after_each_period(bad: tuple[int, ...]):
    """Both count the steps that are taken, here as loops over them in NumPy."""
    start, cycle = 3, 4
    first, target = stored("first"), flat(stored("target"))
    rate = with_constant_end(lambda step: jnp.float32(0.5), start, 0.4)
    sgd = {"name": "sgd", "learning_rate": 0.5, "momentum": 0.0}
    steps = Steps(first, sgd, average=Swa(start, cycle), schedule=rate)
    params, taken, ends = flat(first), 0, []
    for step in range(1, 17):
        noise, loss = stored("noise", step), np.nan if step in bad else 1.0
        state = steps(noise, stored("target"), loss)
        if step not in bad:
            now = 0.5 if taken < start else 0.4
            params = params - now * (0.3 * (params - target) + flat(noise))
            taken += 1
            if taken >= start and (taken - start) % cycle == 0:
                ends.append(params)
        expected = params if taken < start else np.mean(ends, 0)
        np.testing.assert_allclose(flat(state.params), params, atol=1e-5)
        np.testing.assert_allclose(flat(state.eval_params), expected, atol=1e-5)
    assert len(ends) == 1 + (16 - len(bad) - start) // cycle
    assert steps.state.extras["average"]["memory"]["models"] == len(ends)


def test_a_phase_with_rates_of_its_own_takes_none_from_before():
    """Of the schedule 1, 1/2, 1/3, ... the phase has what comes from step 3 on."""
    first, target = stored("first"), flat(stored("target"))
    sgd = {"name": "sgd", "learning_rate": 1.0, "momentum": 0.0}
    steps = Steps(first, sgd, schedule=lambda step: 1 / (1 + jnp.asarray(step, float)))
    make = partial(make_optimizer, optimizer_config(**sgd))
    tx = with_told_rate(steps.update.tx, make)
    steps.update = replace(steps.update, tx=tx, rate_from=3)
    params = flat(first)
    for step, count in enumerate([3, 3, 3, 3, None, 4, 5]):
        noise, loss = stored("noise", step), np.nan if count is None else 1.0
        state = steps(noise, stored("target"), loss)
        if count is not None:
            params = params - (0.3 * (params - target) + flat(noise)) / (1 + count)
        np.testing.assert_allclose(flat(state.params), params, atol=1e-5)


def test_slow_weights_of_lookahead_follow_the_two_loops_of_the_paper():
    """Of the inner optimizer the state stays; a skipped step is none of the k."""
    first, target = stored("first"), stored("target")
    options = {"name": "sgd", "learning_rate": 0.25, "momentum": 0.5}
    steps = Steps(first, options, average=Lookahead(3, 0.25))
    slow, fast, trace, taken = flat(first), flat(first), 0.0, 0
    for step in range(1, 14):
        bad, noise = step == 4, stored("noise", step)
        state = steps(noise, target, np.nan if bad else 1.0)
        if not bad:
            trace = 0.5 * trace + 0.3 * (fast - flat(target)) + flat(noise)
            fast, taken = fast - 0.25 * trace, taken + 1
            if taken % 3 == 0:
                slow = slow + 0.25 * (fast - slow)
                fast = slow
        np.testing.assert_allclose(flat(state.params), fast, atol=1e-5)
        np.testing.assert_allclose(flat(state.eval_params), slow, atol=1e-5)


def test_narrow_weights_have_an_average_that_is_wide():
    """z is rounded in bfloat16, x is a float32, which a run evaluates."""
    first = jax.tree.map(lambda x: x.astype(jnp.bfloat16), stored("first"))
    target = stored("target")
    steps = Steps(first, {"name": "schedule_free_sgd", "learning_rate": 0.5})
    for step in range(5):
        steps(stored("noise", step), target)
    state = steps.state
    assert {x.dtype for x in jax.tree.leaves(state.params)} == {jnp.dtype("bfloat16")}
    assert {x.dtype for x in jax.tree.leaves(state.eval_params)} == {
        jnp.dtype("float32")
    }


@each_row("higher", [False, True])
def test_a_plateau_reduces_the_rate_as_that_of_pytorch(higher: bool):
    sign, memory, found = -1 if higher else 1, {}, []
    schedule = PlateauSchedule(factor=0.5, patience=2)
    goal = Goal("loss", higher)
    follow = partial(plateau.after_evaluation, schedule)
    for loss in STORED["plateau"]["losses"]:
        memory = follow(memory, goal, sign * loss)
        memory = json.loads(json.dumps(memory))  # As a checkpoint keeps it.
        found.append(memory["factor"])
    assert found == STORED["plateau"]["factors"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("fp16", {"name": "schedule_free_adamw"}),
        ("pure_bf16", {"name": "adamw", "lookahead_steps": 2}),
    ],
)
def test_half_precision_and_a_step_that_is_skipped(policy: str, options: dict):
    """The state keeps its types, so nothing compiles again; fp16 halves its scale."""
    optimizer = optimizer_config(**{"learning_rate": 0.01, **options})
    trial = Trial(policy=policy, optimizer=optimizer, accumulate_steps=2)

    def types(state: Any) -> Any:
        return jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), state)

    expected = types(trial.state)
    for i in range(3):
        trial(IMAGES[i : i + 1], LABELS[i : i + 1])
    before = trial.state
    bad = IMAGES[3:4].copy()
    bad[0, 3, 2, 2, 0] = np.inf
    assert trial(bad, LABELS[3:4])["skipped"][0] == 1
    after = trial.state
    for field in ("params", "opt_state", "average"):
        assert same(of(after, field), of(before, field)), field
    if policy == "fp16":
        assert after.extras["guard"]["scale"] == before.extras["guard"]["scale"] / 2
    trial(IMAGES[4:5], LABELS[4:5])
    assert types(trial.state) == expected
    assert not same(trial.state.params, before.params)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(trial.state.eval_params))
