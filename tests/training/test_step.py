"""The train step as numbers: gradients, accumulation, guards, averages, precision."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxtrain import models
from jaxtrain.config import (
    AdamWConfig,
    LBFGSConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.evaluation.evaluate import compiler
from jaxtrain.evaluation.reducers import TaskMetrics
from jaxtrain.training.averages import Ema
from jaxtrain.training.create import CreateState
from jaxtrain.training.eval_step import make_apply
from jaxtrain.training.optimizers import make_optimizer
from jaxtrain.training.state import with_extra
from jaxtrain.training.step import make_train_step
from jaxtrain.training.transforms.average import WeightAverage
from jaxtrain.training.transforms.guard import Guard
from jaxtrain.training.update import apply_gradients, mean_grads
from tests.helpers.numerics import close, same
from tests.helpers.phases import make_phase
from tests.helpers.rows import each_row
from tests.helpers.tiers import thinned
from tests.helpers.trial import (
    BATCH,
    IMAGES,
    LABELS,
    LAYOUT,
    ROOT,
    Trial,
    as_given,
)


def test_step_is_the_hand_written_one():
    """One SGD step equals parameters - rate * gradient, written out with nnx alone."""
    trial = Trial(optimizer=SGDConfig(learning_rate=0.1, momentum=0.0))
    before = trial.state

    def loss_fn(params):
        model = nnx.merge(trial.graphdef, params, before.model_state, copy=True)
        model.train()
        logits = model(jnp.asarray(IMAGES[0]))
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), LABELS[0][:, None], 1)
        return -picked.mean()

    loss, grads = jax.jit(jax.value_and_grad(loss_fn))(before.params)
    expected = jax.tree.map(lambda p, g: p - 0.1 * g, before.params, grads)
    metrics = trial(IMAGES[:1], LABELS[:1])
    # The same float32 sums in another order.
    np.testing.assert_allclose(metrics["loss"][0], loss, rtol=1e-5)
    close(trial.state.params, expected, rtol=1e-4, atol=1e-6)
    assert int(trial.state.step) == 1


@pytest.mark.slow
def test_several_steps_a_call_are_the_single_steps():
    one, many = Trial(dropout=0.2, ema_decay=0.9), Trial(dropout=0.2, ema_decay=0.9)
    losses = [one(IMAGES[i : i + 1], LABELS[i : i + 1])["loss"][0] for i in range(4)]
    metrics = many(IMAGES[:4], LABELS[:4])
    np.testing.assert_allclose(metrics["loss"], losses, rtol=1e-5)
    close(many.state.params, one.state.params, rtol=1e-4, atol=1e-5)
    assert int(many.state.step) == 4


def test_clipping_scales_the_gradients_down_to_the_limit():
    """SGD without momentum moves by the rate times the clipped gradients."""
    sgd = SGDConfig(learning_rate=0.1, momentum=0.0)
    free = Trial(optimizer=sgd)
    before = free.state.params
    norm = float(free(IMAGES[:1], LABELS[:1])["grad_norm"][0])
    limit = dataclasses.replace(sgd, clip_norm=0.5 * norm)
    clipped = Trial(optimizer=limit)
    metrics = clipped(IMAGES[:1], LABELS[:1])
    np.testing.assert_allclose(metrics["grad_norm"][0], norm, rtol=1e-6)
    expected = jax.tree.map(lambda p, q: p + 0.5 * (q - p), before, free.state.params)
    close(clipped.state.params, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_accumulated_micro_batches_are_the_whole_batch():
    """Without batch norm and dropout the mean of means is the mean."""
    rate = SGDConfig(learning_rate=0.1)
    whole, parts = (
        Trial(name="cnn4", optimizer=rate, accumulate_steps=n) for n in (1, 4)
    )
    for trial in (whole, parts):
        trial(IMAGES[:2], LABELS[:2])
    close(parts.state.params, whole.state.params, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def averaging() -> dict[str, Any]:
    """The choices of a trial with an average, whose step is compiled."""
    choices: dict[str, Any] = {"ema_decay": 0.3}
    Trial(**choices)(IMAGES[:1], LABELS[:1])
    return choices


def test_non_finite_step_changes_nothing_but_the_counts(averaging: dict[str, Any]):
    trial = Trial(**averaging)
    trial(IMAGES[:1], LABELS[:1])
    before = trial.state
    bad = IMAGES[1:2].copy()
    bad[0, 3, 2, 2, 0] = np.nan  # One pixel, which poisons batch-norm statistics.
    metrics = trial(bad, LABELS[1:2])
    after = trial.state
    averages = ("eval_params", "eval_model_state")
    for name in ("params", "model_state", "opt_state", *averages):
        assert same(getattr(after, name), getattr(before, name)), name
    assert int(after.step) == 2
    assert (metrics["skipped"][0], metrics["bad_steps"][0]) == (1, 1)
    trial(bad, LABELS[1:2])
    assert trial.state.extras["guard"] == {"in_a_row": 2, "total": 2}
    trial(IMAGES[2:3], LABELS[2:3])
    assert trial.state.extras["guard"] == {"in_a_row": 0, "total": 2}
    assert not same(trial.state.params, before.params)


def test_average_of_the_weights_follows_its_formula(averaging: dict[str, Any]):
    trial = Trial(**averaging)
    params, statistics = jax.device_get((trial.state.params, trial.state.model_state))
    for i in range(6):
        before = jax.device_get(trial.state.model_state)
        trial(IMAGES[i : i + 1], LABELS[i : i + 1])
        after = jax.device_get((trial.state.params, trial.state.model_state))
        # Batch norm keeps 0.9 of its running statistics.
        of_batch = jax.tree.map(lambda n, o: (n - 0.9 * o) / 0.1, after[1], before)
        decay = min(0.3, (1 + i) / (10 + i))
        params, statistics = jax.tree.map(
            lambda a, x: decay * a + (1 - decay) * x,  # noqa: B023
            (params, statistics),
            (after[0], of_batch),
        )
    close(trial.state.eval_params, params, rtol=1e-5, atol=1e-6)
    close(trial.state.eval_model_state, statistics, rtol=1e-5, atol=1e-5)


def test_average_takes_the_statistics_of_each_layer_out_by_its_own_momentum(
    averaging: dict[str, Any],
):
    """One step from 0: of each running statistic a layer's own share is the batch's."""
    momenta = {"slow/mean": 0.75, "quick/mean": 0.5}
    optimizer = SGDConfig(learning_rate=1.0)
    train = TrainConfig(steps=9, ema_decay=0.9, accumulate_steps=2)
    schedule: Any = optax.constant_schedule(1.0)
    tx = make_optimizer(optimizer, schedule)
    transforms = (WeightAverage(Ema(0.9)), Guard())
    update = make_phase(optimizer, train, tx, None, momenta, transforms=transforms)
    zeros = {name: {"mean": jnp.zeros(3)} for name in ("slow", "quick")}
    state: Any = Trial(**averaging).state
    state = dataclasses.replace(state, model_state=zeros)
    average = {**state.extras["average"], "model_state": zeros}
    state = with_extra(state, "average", average)
    # Both micro-batches had a mean of 1.
    running = {
        name: {"mean": jnp.full(3, 1 - momenta[f"{name}/mean"] ** 2)} for name in zeros
    }
    one, grads = jnp.float32(1), jax.tree.map(jnp.zeros_like, state.params)
    after, _ = apply_gradients(
        update,
        state,
        jax.random.key(0),
        grads,
        one,
        running,
        {"loss": one},
        lambda _: one,
    )
    # The decay of the first step is 1/10.
    for name in zeros:
        np.testing.assert_allclose(after.eval_model_state[name]["mean"], 0.9, rtol=1e-6)


@pytest.mark.parametrize("policy", thinned(2, ["bf16", "pure_bf16", "fp16"]))
def test_every_precision_learns_with_the_dtypes_it_names(policy: str):
    trial = Trial(policy=policy, ema_decay=0.9)
    first = trial(IMAGES[:1], LABELS[:1])["loss"][0]
    metrics = [trial(IMAGES[:1], LABELS[:1]) for _ in range(20)][-1]
    assert metrics["loss"].dtype == np.float32
    assert metrics["loss"][0] < 0.5 * first
    params = jnp.bfloat16 if policy == "pure_bf16" else jnp.float32
    assert {x.dtype for x in jax.tree.leaves(trial.state.params)} == {jnp.dtype(params)}
    statistics = {x.dtype for x in jax.tree.leaves(trial.state.model_state)}
    assert statistics == {jnp.dtype(jnp.float32)}


@pytest.mark.slow
@each_row(
    ("policy", "x64"),
    [("pure_bf16", False), ("fp32", True), ("fp16", True), ("fp64", True)],
)
def test_state_keeps_its_types_from_step_to_step(policy: str, x64: bool):
    """Another dtype or shape would break donation, resuming and the compiled step.

    Nor are there other types because JAX may compute in float64.
    """
    optimizer = AdamWConfig(learning_rate=0.01, weight_decay=0.1)
    with jax.enable_x64(x64):
        trial = Trial(
            policy=policy,
            optimizer=optimizer,
            compute=False,
            ema_decay=0.9,
            spike_sigma=4.0,
        )
        images = jax.ShapeDtypeStruct(IMAGES[:1].shape, trial.policy.compute_dtype)
        labels = jax.ShapeDtypeStruct(LABELS[:1].shape, jnp.int32)
        batches = {"image": images, "target": labels, "index": labels}
        after, metrics = jax.eval_shape(trial.step, trial.state, ROOT, {}, batches)
    types = {
        x.dtype for x in jax.tree.leaves((trial.state.eval_params, metrics["loss"]))
    }
    assert types == {jnp.dtype(jnp.float64 if policy == "fp64" else jnp.float32)}
    before = jax.tree.map(lambda x: (x.shape, x.dtype), trial.state)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == before


def test_small_gradients_of_float16_parameters_count():
    """What the loss scale has saved is not rounded to float16 once it is taken off."""
    scale = {"scale": jnp.float32(2.0**15), "good_steps": jnp.int32(0)}
    params = {"a": jnp.ones(3, jnp.float16)}
    assert np.float16(2e-8) == 0
    total = {"a": jnp.full(3, 2 * 2e-8 * 2.0**15, jnp.float32)}
    state: Any = SimpleNamespace(params=params, extras={"guard": scale})
    update: Any = Trial(accumulate_steps=2, policy="fp16", compute=False).phase
    np.testing.assert_allclose(mean_grads(update, total, state)["a"], 2e-8, rtol=1e-6)


@pytest.mark.exhaustive
def test_bfloat16_parameters_move_as_far_as_float32_ones():
    """At this rate most updates are below half of a last bit: to the nearest, lost."""
    small = SGDConfig(learning_rate=1e-4, momentum=0.0)
    narrow, wide = (Trial(policy=p, optimizer=small) for p in ("pure_bf16", "bf16"))
    start = jax.tree.map(lambda x: x.astype(jnp.float32), narrow.state.params)
    wide.state = dataclasses.replace(wide.state, params=start)
    before = flat(start)
    for _ in range(40):
        narrow(IMAGES[:1], LABELS[:1])
        wide(IMAGES[:1], LABELS[:1])
    ours, theirs = (flat(trial.state.params) - before for trial in (narrow, wide))
    # Along the way of the float32 ones; across it there is the noise of rounding.
    assert ours @ theirs / (theirs @ theirs) == pytest.approx(1, abs=0.2)


def flat(params: Any) -> np.ndarray:
    return np.concatenate(
        [np.float64(np.float32(x)).ravel() for x in jax.tree.leaves(params)]
    )


@pytest.mark.slow
def test_fp16_overflow_lowers_the_scale_and_is_not_a_bad_step():
    trial = Trial(policy="fp16")
    before = trial.state
    scale = float(before.extras["guard"]["scale"])
    big = IMAGES[:1] * 1e6  # Beyond float16: the gradients overflow.
    metrics = trial(big, LABELS[:1])
    assert float(trial.state.extras["guard"]["scale"]) == scale / 2
    assert metrics["skipped"][0] == 1
    assert metrics["bad_steps"][0] == 0
    assert same(trial.state.params, before.params)
    for _ in range(20):
        metrics = trial(big, LABELS[:1])
    # At the smallest scale it is no longer the scale's fault.
    assert float(trial.state.extras["guard"]["scale"]) == 1
    assert metrics["bad_steps"][0] > 0


@pytest.mark.exhaustive
def test_lbfgs_lowers_the_loss_of_a_full_batch_every_step():
    trial = Trial(name="cnn4", optimizer=LBFGSConfig())
    losses = [float(trial(IMAGES[:1], LABELS[:1])["loss"][0]) for _ in range(20)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.5 * losses[0]


def test_learning_rate_of_the_log_is_the_optimizers():
    """Skipped steps do not move the schedule, nor the rate that is shown."""
    schedule: Any = optax.linear_schedule(1.0, 0.0, 10)
    trial = Trial()
    tx = make_optimizer(SGDConfig(learning_rate=1.0), schedule)
    create = CreateState(trial.blueprint, tx, trial.phase.transforms)
    trial.state = jax.jit(create)(ROOT)
    update = dataclasses.replace(trial.phase, tx=tx, schedule=schedule)
    trial.step = jax.jit(
        make_train_step(trial.task, trial.graphdef, update, as_given, LAYOUT)
    )
    images = IMAGES[:3].copy()
    images[1] = np.inf
    rates = trial(images, LABELS[:3])["learning_rate"]
    np.testing.assert_allclose(rates, [1.0, 0.9, 0.9], rtol=1e-6)
    counts = optax.tree_utils.tree_get_all_with_path(trial.state.opt_state, "count")
    assert {int(count) for _, count in counts} == {2}


def test_eval_step_ignores_dropout_and_padding():
    trial = Trial(dropout=0.9)
    apply = make_apply(trial.task, trial.graphdef, as_given, LAYOUT)
    step = compiler(apply, LAYOUT.mesh, "test")((TaskMetrics(trial.task),))
    batch = {"image": IMAGES[:1], "target": LABELS[:1], "index": LABELS[:1]}
    mask = (np.arange(BATCH) < 5).astype(np.int32)[None]
    args = (trial.state.params, trial.state.model_state), {}
    ((once, kept),), known = step(*args, {**batch, "mask": mask})
    assert kept == known == {}
    spoilt = IMAGES[:1].copy()
    spoilt[0, 5:] = 1e3
    ((again, _),), _ = step(*args, {**batch, "image": spoilt, "mask": mask})
    assert same(once, again)
    assert int(once["num_examples"]) == 5


@pytest.mark.slow
def test_run_begins_with_the_weights_it_is_given():
    """Averages start from them, not from those that were created."""
    blueprint = Trial(compute=False).blueprint
    create = CreateState(blueprint, optax.sgd(0.1), (WeightAverage(Ema(0.9)), Guard()))
    doubled = jax.tree.map(lambda x: 2 * x, create.weights(ROOT))
    state = create.begin(doubled)
    for params in (state.params, state.eval_params):
        assert same(params, doubled[0])
    assert same((state.model_state, state.eval_model_state), (doubled[1], doubled[1]))


def test_models_are_built_the_same_from_the_same_key():
    assert same(Trial().state, Trial(anew=True).state)
    assert models.MODELS
