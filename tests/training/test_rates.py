"""Learning rates by layer and the two cycles of `fine_tune`, by their formulas."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.config import (
    Config,
    ResNetConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.errors import UserError
from jaxtrain.trainer.setup import make_blueprint
from jaxtrain.training import OPTIMIZERS, precision
from jaxtrain.training.create import first_state
from jaxtrain.training.frozen import Frozen, two_phases
from jaxtrain.training.optimizers import make_optimizer
from jaxtrain.training.rates import make_rates
from jaxtrain.training.schedules import make_two_cycles
from jaxtrain.training.update import optimize
from tests.helpers.layered import by_path
from tests.helpers.parts import optimizer_config
from tests.helpers.phases import make_phase
from tests.helpers.rows import each_row
from tests.helpers.tiers import thinned


def rates_of(layer_decay: float | dict[str, float] | None) -> dict[str, float]:
    config = Config(model=ResNetConfig(name="resnet18", width=0.125))
    policy = precision.parse("fp32")
    model = make_blueprint(config, policy, (32, 32, 3), 5).abstract()
    return make_rates(model, layer_decay)


def test_layer_decay_is_timms():
    """What `timm.optim.param_groups_layer_decay` of timm 1.0.31 says of its resnet18.

    Its groups: `conv1` and `bn1` (0), the blocks `layer1.0` to `layer4.1` (1 to 8) and
    `fc` (9), each with 0.7**(9 - group).
    """
    rates = rates_of(0.7)
    groups = ["stem", *(f"stage{s}_block{b}" for s in (1, 2, 3, 4) for b in (1, 2))]
    theirs = (0.04035360699999998, 0.05764800999999997, 0.08235429999999996)
    theirs += (0.11764899999999996, 0.16806999999999994, 0.24009999999999995)
    theirs += (0.3429999999999999, 0.48999999999999994, 0.7, 1.0)
    for path, rate in rates.items():
        (group,) = [i for i, g in enumerate([*groups, "head"]) if path.startswith(g)]
        assert rate == pytest.approx(theirs[group], rel=1e-12), path
    assert len(rates) == 62
    assert rates_of(None) == {}


def test_factors_are_given_by_patterns_of_paths():
    rates = rates_of({"backbone": 0.1, "stage4*": 0.5, "*/bias": 2.0})

    def expected(path: str) -> float:
        if path.endswith("/bias"):
            return 2.0
        return 0.5 if "stage4" in path else 1.0 if "head" in path else 0.1

    assert rates == {path: expected(path) for path in rates_of(1.0)}
    with pytest.raises(UserError, match=r"layer_decay: 'conv9' matches no .*stem_conv"):
        rates_of({"head": 1.0, "conv9": 0.5})


@each_row("factors", [{}, {"head": 0.0}, {"head": -1.0}])
def test_factors_are_above_0(factors: dict[str, float]):
    with pytest.raises(UserError, match=r"factors above 0; train\.freeze freezes"):
        SGDConfig(layer_decay=factors)


def test_two_cycles_are_those_of_fastai():
    """Computed anew from what `fine_tune`, `fit_one_cycle` and `combined_cos` do."""

    def cosine(start: float, end: float, part: float) -> float:
        return start + (1 + np.cos(np.pi * (1 - part))) * (end - start) / 2

    def cycle(part: float, peak: float, div: float, rise: float) -> float:
        if part < rise:
            return cosine(peak / div, peak, part / rise)
        return cosine(peak, peak / 1e5, (part - rise) / (1 - rise))

    peak, first, total = 2e-3, 40, 160
    expected = [cycle(i / 40, peak, 25.0, 0.99) for i in range(first)]
    expected += [cycle(i / 120, peak / 2, 5.0, 0.3) for i in range(total - first)]
    rates = make_two_cycles(peak, first, total)(jnp.arange(total))
    np.testing.assert_allclose(rates, expected, rtol=1e-5, atol=peak * 1e-7)
    assert rates.dtype == jnp.float32
    assert make_two_cycles(peak, first, total)(total) == pytest.approx(1e-8, rel=1e-3)


SHAPES = {"head": {"kernel": (6, 4), "bias": (4,)}, "stem": {"kernel": (3, 3, 2, 6)}}


def is_shape(x: Any) -> bool:
    return isinstance(x, tuple)


@pytest.mark.parametrize("name", thinned(4, sorted(OPTIMIZERS.keys() - {"lbfgs"})))
def test_a_factor_is_one_on_the_learning_rate(name: str):
    """As much for every optimizer, its momentum and its weight decay, decoupled or not.

    timm's `lr_scale` multiplies the learning rate of a group in the same way.
    """
    rng = np.random.default_rng(0)

    def draw() -> Any:
        return jax.tree.map(lambda s: rng.normal(size=s), SHAPES, is_leaf=is_shape)

    with jax.enable_x64(True):
        first, grads = draw(), [draw() for _ in range(4)]
        rates = {"head/kernel": 0.5, "head/bias": 2.0, "stem/kernel": 0.1}
        scaled = take(name, 1e-2, rates, first, grads)
        for path, rate in rates.items():
            alone = take(name, 1e-2 * rate, {}, first, grads)
            one, other = by_path(scaled)[path], by_path(alone)[path]
            assert (one != by_path(first)[path]).any()
            # The schedule computes rates in float32.
            np.testing.assert_allclose(one, other, rtol=1e-6)


def take(name: str, rate: float, rates: Any, params: Any, grads: list[Any]) -> Any:
    """Take some steps with given gradients; return the parameters."""
    optimizer = optimizer_config(name, learning_rate=rate, weight_decay=0.3)
    schedule: Any = lambda step: jnp.float32(rate)  # noqa: E731
    tx = make_optimizer(optimizer, schedule)
    train = TrainConfig(steps=9)
    update = make_phase(optimizer, train, tx, schedule, {}, rates=rates)

    @jax.jit
    def step(params: Any, opt_state: Any, grads: Any) -> Any:
        state = first_state((params, {}), tx, update.transforms)
        state = dataclasses.replace(state, opt_state=opt_state)
        key = jax.random.key(0)
        return optimize(update, state, key, grads, jnp.float64(1))

    params = jax.tree.map(jnp.asarray, params)
    opt_state = tx.init(params)
    for one in grads:
        params, opt_state = step(params, opt_state, one)
    return params


@pytest.mark.parametrize("name", thinned(4, sorted(OPTIMIZERS.keys() - {"lbfgs"})))
def test_layers_that_begin_later_have_an_optimizer_of_their_own(name: str):
    """As if an optimizer trained each part of the layers, from its beginning on."""
    rng, rate = np.random.default_rng(0), 1e-2
    optimizer = optimizer_config(name, learning_rate=rate, weight_decay=0.3)
    schedule: Any = lambda step: jnp.float32(rate)  # noqa: E731
    tx, later = make_optimizer(optimizer, schedule), Frozen(frozenset({"stem"}))
    before, after = two_phases(tx, later, partial(make_optimizer, optimizer))
    params = jax.tree.map(
        lambda s: jnp.asarray(rng.normal(size=s), jnp.float32), SHAPES, is_leaf=is_shape
    )
    grads = [jax.tree.map(lambda p, i=i: jnp.sin(i + p), params) for i in range(3)]
    (head, stem), state = later.partition(params), after.init(params)
    assert jax.tree.structure(before.init(params)) == jax.tree.structure(state)
    alone = tx.init(head), tx.init(stem)
    update = jax.jit(tx.update)
    for step, grad in enumerate(grads):
        one, other = later.partition(grad)
        expected, first = update(one, alone[0], head)
        if step == 0:
            found, state = jax.jit(before.update)(one, state, head)
            alone = first, alone[1]
        else:
            found, state = jax.jit(after.update)(
                grad, state, params, learning_rate=jnp.float32(rate)
            )
            more, rest = update(other, alone[1], stem)
            expected, alone = {**expected, **more}, (first, rest)
        for path, x in by_path(expected).items():
            np.testing.assert_allclose(by_path(found)[path], x, rtol=1e-5, atol=1e-7)
