"""A task says what is lowered, its objective; a method makes the gradients of it."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxtrain.config import (
    AugmentConfig,
    CustomConfig,
    Part,
    PlainConfig,
    SamConfig,
    SGDConfig,
)
from jaxtrain.config.part import METHODS, make_part
from jaxtrain.data.pixel_normalization import UNCHANGED, Normalization
from jaxtrain.plugins.adversarial.adversarial import Adversarial
from jaxtrain.plugins.adversarial.options import AdversarialConfig, TradesConfig
from jaxtrain.plugins.adversarial.trades import Trades
from jaxtrain.tasks.base import Task
from jaxtrain.training.methods.base import Objective
from jaxtrain.training.methods.build import build_method
from jaxtrain.training.methods.sam import Sam
from jaxtrain.training.step import make_train_step
from tests.helpers import own_methods
from tests.helpers.axes import assert_same_with
from tests.helpers.layered import Steps, layered, take_steps
from tests.helpers.numerics import close
from tests.helpers.own_methods import BY_HAND, CONSISTENT, Consistent
from tests.helpers.processes import ROOT
from tests.helpers.rows import each_row
from tests.helpers.tiers import thinned
from tests.helpers.trial import CLASSES, IMAGES, LABELS, LAYOUT, SHAPE, Trial, as_given

RATE = 0.1
SGD = SGDConfig(learning_rate=RATE, momentum=0.0)
INDEX = np.arange(LABELS.shape[1])


def cross_entropy(trial: Trial, params: Any, images: Any) -> tuple[Any, Any]:
    """Return the mean loss of the first batch, and the logits, with nnx alone."""
    model = nnx.merge(trial.graphdef, params, trial.state.model_state, copy=True)
    model.train()
    logits = model(jnp.asarray(images))
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), LABELS[0][:, None], 1)
    return -picked.mean(), logits


def one_step(trial: Trial, **choices: Any) -> tuple[Any, Any]:
    """Return the parameters and the metrics of one step of SGD."""
    choices = {"task": trial.task, **choices}
    task = choices.pop("task")
    step = make_train_step(
        task,
        trial.graphdef,
        trial.phase,
        as_given,
        LAYOUT,
        **choices,
    )
    batch = {"image": IMAGES[:1], "target": LABELS[:1], "index": INDEX[None]}
    state, metrics = jax.jit(step)(trial.state, jax.random.key(0), {}, batch)
    return state.params, jax.device_get(metrics)


@pytest.mark.slow
def test_an_objective_with_two_passes_is_the_hand_written_one():
    trial = Trial(optimizer=SGD)

    def loss_fn(params: Any) -> Any:
        loss, logits = cross_entropy(trial, params, IMAGES[0])
        noise = own_methods.noise(jnp.asarray(INDEX), IMAGES[0].shape)
        _, other = cross_entropy(trial, params, IMAGES[0] + noise)
        apart = jnp.square(logits - other).mean()
        return loss + apart, apart

    (loss, apart), grads = jax.jit(jax.value_and_grad(loss_fn, has_aux=True))(
        trial.state.params
    )
    task = Consistent(SHAPE, {"num_classes": CLASSES})
    params, metrics = one_step(trial, task=task)
    # The same float32 sums in another order.
    np.testing.assert_allclose(metrics["loss"][0], loss, rtol=1e-5)
    np.testing.assert_allclose(metrics["apart"][0], apart, rtol=1e-4)
    assert 0 < apart < loss
    expected = jax.tree.map(lambda p, g: p - RATE * g, trial.state.params, grads)
    close(params, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_method_sees_pixels_and_raises_the_loss_within_its_bound():
    """One step of PGD along the gradient of the loss by the pixels, by hand."""
    trial, mean, std, epsilon = Trial(optimizer=SGD), 0.4, 0.25, 0.02
    pixels = np.clip(IMAGES[0] * std + mean, 0, 1)
    method = Adversarial(epsilon=epsilon, norm="l2", step_size=2.5 * epsilon)
    _, plain = one_step(trial)
    _, metrics = one_step(
        trial, method=method, normalization=Normalization((mean,), (std,))
    )

    def loss_of(pixels: jax.Array) -> Any:
        return cross_entropy(trial, trial.state.params, (pixels - mean) / std)[0]

    slopes = jax.jit(jax.grad(loss_of))(jnp.asarray(pixels))
    steepest = jnp.sqrt(jnp.square(slopes).sum((1, 2, 3))).sum()
    rise = float(metrics["loss"][0] - plain["loss"][0])
    # Nowhere more than along the gradient, to first order; from a random start on.
    assert 0.3 * epsilon * steepest < rise < 1.2 * epsilon * steepest


@each_row("adaptive", [False, True])
def test_sam_takes_the_gradient_at_the_sharpest_weights_nearby(adaptive: bool):
    """Equations 2 of Foret et al. 2021, and 10 of Kwon et al. 2021, by hand."""
    trial, rho = Trial(optimizer=SGD), 0.3

    def loss_fn(params: Any) -> Any:
        return cross_entropy(trial, params, IMAGES[0])[0]

    loss_and_grads = jax.jit(jax.value_and_grad(loss_fn))
    weights = trial.state.params
    loss, grads = loss_and_grads(weights)
    sizes = jax.tree.map(
        lambda w: np.abs(w) + 0.01 if adaptive else np.ones_like(w), weights
    )
    scaled = jax.tree.map(np.multiply, sizes, grads)
    norm = np.sqrt(sum(np.square(g).sum() for g in jax.tree.leaves(scaled)))
    sharpest = jax.tree.map(
        lambda w, g, size: w + rho * size * g / norm, weights, scaled, sizes
    )
    there, grads = loss_and_grads(sharpest)
    params, metrics = one_step(trial, method=Sam(rho=rho, adaptive=adaptive))
    np.testing.assert_allclose(metrics["loss"][0], loss, rtol=1e-5)
    # A difference of two losses of float32.
    np.testing.assert_allclose(metrics["sharpness"][0], there - loss, rtol=1e-3)
    assert there > loss
    expected = jax.tree.map(lambda p, g: p - RATE * g, weights, grads)
    close(params, expected, rtol=1e-4, atol=1e-6)


def test_sam_leaves_weights_without_gradients_where_they_are():
    weights = {"a": jnp.ones(3), "b": jnp.zeros((2, 2), jnp.bfloat16)}

    def losses(params: Any, *_: Any) -> Any:
        return jnp.zeros(4) * params["a"].sum(), {}, {}

    def forward(*_: Any) -> Any:
        raise AssertionError

    objective = Objective(
        losses,
        jnp.float32(1),
        UNCHANGED,
        LAYOUT.all_reduce_grads,
        LAYOUT.all_reduced_norm,
        Task(),
        forward,
    )
    grads, _, metrics = Sam().gradients(objective, weights, {}, {}, jax.random.key(0))
    assert not any(np.asarray(g, float).any() for g in jax.tree.leaves(grads))
    assert metrics["sharpness"] == 0


def watch(method: Any) -> list[Any]:
    """Return a list that gets the pixels that a method attacks, and what comes of it.

    They are (images, first ones, last ones), (B, H, W, C) each.
    """
    seen: list[Any] = []
    attack = method.attack

    class Watched:
        ball = attack.ball

        def __call__(self, loss_of: Any, images: Any, start: Any) -> Any:
            changed = attack(loss_of, images, start)
            jax.debug.callback(lambda *x: seen.append(x), images, start, changed)
            return changed

    method.attack = Watched()
    return seen


def test_one_step_of_the_attack_is_1_25_epsilon_from_a_random_start():
    """FGSM of Wong et al. 2020: within epsilon, nearly all pixels at its border."""
    trial, epsilon = Trial(optimizer=SGD), 0.1
    images, method = Normalization((0.5,), (0.25,)), Adversarial(epsilon=epsilon)
    seen = watch(method)
    one_step(trial, method=method, normalization=images)
    jax.effects_barrier()
    ((pixels, _, changed),) = seen
    change = np.abs(np.asarray(changed) - np.asarray(pixels))
    inside = (np.asarray(changed) > 0) & (np.asarray(changed) < 1)
    assert change[inside].max() <= epsilon + 1e-6
    # From u, even in -1..1, a step of 1.25 passes 1 for u > -0.25: 5/8 of the pixels.
    at_border = (change[inside] > 0.999 * epsilon).mean()
    np.testing.assert_allclose(at_border, 5 / 8, atol=0.05)


def applied(trial: Trial, params: Any, images: Any, *, training: bool) -> Any:
    """Return the logits with nnx alone."""
    model = nnx.merge(trial.graphdef, params, trial.state.model_state, copy=True)
    model.train() if training else model.eval()
    return model(jnp.asarray(images))


def test_trades_takes_the_gradient_of_equation_5_of_its_paper():
    """The cross entropy and beta KL(clean || attacked), and its attack, by hand."""
    trial, beta, epsilon, size = Trial(optimizer=SGD), 3.0, 0.05, 0.02
    images = Normalization((0.5,), (0.25,))
    method = Trades(beta=beta, epsilon=epsilon, steps=2, step_size=size)
    seen = watch(method)
    params, metrics = one_step(trial, method=method, normalization=images)
    jax.effects_barrier()
    ((pixels, start, changed),) = (map(jnp.asarray, arrays) for arrays in seen)
    # Normal, of deviation 0.001: of 4,096 values 1.5 % off at most, in most draws.
    np.testing.assert_allclose(np.std(start - pixels), 0.001, rtol=0.05)

    def kl(logits: Any, other: Any) -> Any:
        p, q = jax.nn.softmax(logits), jax.nn.softmax(other)
        return (p * (jnp.log(p) - jnp.log(q))).sum(-1)

    def apart(at: jax.Array) -> Any:
        logits, other = (
            applied(trial, trial.state.params, (x - 0.5) / 0.25, training=False)
            for x in (pixels, at)
        )
        return kl(logits, other).sum()

    slope, at = jax.jit(jax.grad(apart)), start
    for _ in range(2):
        at = at + size * jnp.sign(slope(at))
        at = jnp.clip(jnp.clip(at, pixels - epsilon, pixels + epsilon), 0, 1)
    # A slope of about 0 has the sign of rounding; of 4,096 pixels next to none.
    assert (np.abs(at - changed) > 1e-6).mean() < 1e-3

    def lowered(params: Any) -> Any:
        loss, logits = cross_entropy(trial, params, (pixels - 0.5) / 0.25)
        other = applied(trial, params, (changed - 0.5) / 0.25, training=True)
        return loss + beta * kl(logits, other).mean()

    loss, grads = jax.jit(jax.value_and_grad(lowered))(trial.state.params)
    np.testing.assert_allclose(metrics["loss"][0], loss, rtol=1e-4)
    np.testing.assert_allclose(
        metrics["loss"], metrics["clean_loss"] + beta * metrics["divergence"], rtol=1e-5
    )
    expected = jax.tree.map(lambda p, g: p - RATE * g, trial.state.params, grads)
    close(params, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_batch_norms_keep_the_statistics_of_the_images_that_the_method_learns():
    """Those of clean images, which trades keeps, are those of the plain method."""

    def kept(method: Part) -> list[Any]:
        config = layered({"steps": 1}, method=method)
        after = take_steps(config).states[-1]["model_state"]
        return jax.tree.leaves(after)

    clean, changed = (
        kept(make_part(METHODS, name, {"epsilon": 0.3, "steps": 2}))
        for name in ("trades", "adversarial")
    )
    for ours, theirs, other in zip(kept(PlainConfig()), clean, changed, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
        assert np.abs(np.asarray(ours) - other).max() > 1e-4


MIXING = AugmentConfig(mixup=0.4, cutmix=1.0)
# Options -> the fields of `train`, and what else of a config has them.
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "averages, a loss scale": ({"ema_decay": 0.9}, {"precision": "fp16"}),
    "mixed examples": ({}, {"augment": MIXING}),
    "layers frozen at first": ({"freeze": ("backbone",), "freeze_epochs": 1}, {}),
    "two cycles": ({"fine_tune": True}, {}),
    "micro-batches": ({"accumulate_steps": 2}, {}),
    "less stored": ({"remat": "full"}, {}),
}
MANY = (
    {"ema_decay": 0.9, "steps_per_call": 2, "freeze": ("stem*",), "freeze_epochs": 1},
    {"augment": MIXING, "precision": "fp16"},
)


def steps_by(method: str, option: tuple[dict[str, Any], dict[str, Any]]) -> Steps:
    """Take the steps of a tiny run that has an option, by a method."""
    train, others = option
    config = layered(
        train,
        method=make_part(METHODS, method),
        precision=others.get("precision", "fp64"),
    )
    augment = others.get("augment", AugmentConfig())
    data = dataclasses.replace(config.data, augment=augment)
    return take_steps(dataclasses.replace(config, data=data))


@pytest.mark.parametrize(
    "option",
    thinned(
        3,
        [
            pytest.param(option, id=name, marks=[pytest.mark.slow] * bool(index))
            for index, (name, option) in enumerate({**OPTIONS, "many": MANY}.items())
        ],
    ),
)
def test_by_hand_the_plain_method_is_itself_with_other_options(option: Any):
    ours, theirs = steps_by(BY_HAND, option), steps_by("plain", option)
    assert len(set(theirs.metrics["loss"])) == len(theirs.metrics["loss"]) > 4
    for found, expected in zip(ours[:2], theirs[:2], strict=True):
        jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.slow
def test_a_method_goes_with_many_options():
    ours, theirs = (steps_by(name, MANY).metrics for name in ("adversarial", "plain"))
    assert not ours["skipped"].any()
    assert ours["loss"][0] > theirs["loss"][0]
    assert ours["loss"][-1] != theirs["loss"][-1]


@pytest.mark.parametrize(
    "method",
    thinned(
        2,
        [
            TradesConfig(norm="l2", steps=2),
            AdversarialConfig(norm="l2", steps=2),
            SamConfig(adaptive=True),
            SamConfig(),
        ],
    ),
    ids=["trades", "adversarial", "asam", "sam"],
)
def test_on_any_devices_a_method_computes_what_it_does_on_one(method: Part):
    """In float64, by the l2 norm: the sign of a gradient of 0 is that of rounding."""
    assert_same_with({}, method)


@each_row(
    ("words", "told"),
    [
        (
            "--method fgsm",
            "method = 'fgsm': expected plain, sam, ",
        ),
        ("--method.epsilon 1", "--method.epsilon"),
        (f"--method {BY_HAND} --method.options size 1", "'size'"),
        (
            "--method trades --method.epsilon 0.001",
            "epsilon = 0.001: expected at least 1/510 = 0.00196, half a level of grey",
        ),
        (
            f"--method trades --task {CONSISTENT}",
            "requires class probabilities of images",
        ),
        (
            "--method adversarial --optimizer.name lbfgs",
            "the line search of lbfgs supports",
        ),
        (
            "--method trades --parallel.pipeline-stages 2",
            "runs the full model",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    words: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], cli: Any
):
    config = ROOT / "configs" / "digits.py"
    result = cli("--config", config, *words.split(), JAX_NUM_CPU_DEVICES="2")
    assert result.code == 2
    assert told in " ".join(result.stderr.replace("│", " ").split())


def test_what_is_no_method_is_refused():
    part = CustomConfig(name="tests.helpers.own_methods:Consistent")
    with pytest.raises(Exception, match="does not accept its arguments"):
        build_method(part)
