"""Optimizers: updates against formulas in numpy, masks, errors, dtypes."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxtrain.config.optimizer import DISTANCE_NAMES, SCHEDULE_FREE_NAMES
from jaxtrain.errors import UserError
from jaxtrain.training import OPTIMIZERS
from jaxtrain.training.clipping import clip, clip_by_ratio
from jaxtrain.training.optimizers import (
    make_optimizer,
)
from jaxtrain.training.schedules import make_schedule
from tests.helpers.parts import optimizer_config
from tests.helpers.rows import each_row

Array = np.ndarray
Tx = optax.GradientTransformationExtraArgs
RATE, DECAY = 0.05, 0.1
SHAPES = {
    "conv": {"kernel": (3, 3, 2, 4), "bias": (4,)},
    "norm": {"scale": (4,), "bias": (4,)},
    "dense": {"kernel": (3, 5)},
}


@dataclasses.dataclass
class Leaf:
    """One array, and what its optimizer knows: `t` is the step, counted from 1.

    `wd` is the weight decay, 0 for vectors; `memory` is kept from step to step.
    """

    p: Array
    wd: float
    lr: float = 0.0
    t: int = 0
    memory: dict[str, Any] = dataclasses.field(default_factory=dict)

    def average(self, name: str, x: Array, decay: float) -> Array:
        self.memory[name] = decay * self.memory.get(name, 0) + (1 - decay) * x
        return self.memory[name]

    def trace(self, u: Array, momentum: float = 0.0, nesterov: bool = False) -> Array:
        self.memory["trace"] = momentum * self.memory.get("trace", 0) + u
        return u + momentum * self.memory["trace"] if nesterov else self.memory["trace"]


def sgd(leaf: Leaf, g: Array, momentum: float = 0.9, nesterov: bool = False) -> Array:
    return -leaf.lr * leaf.trace(g + leaf.wd * leaf.p, momentum, nesterov)


def mean(leaf: Leaf, g: Array, b1: float, nesterov: bool) -> Array:
    mean, t = leaf.average("mu", g, b1), leaf.t
    if nesterov:
        return b1 * mean / (1 - b1 ** (t + 1)) + (1 - b1) * g / (1 - b1**t)
    return mean / (1 - b1**t)


def direction(
    leaf: Leaf,
    g: Array,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    nesterov: bool = False,
) -> Array:
    square = leaf.average("nu", g**2, b2) / (1 - b2**leaf.t)
    return mean(leaf, g, b1, nesterov) / (np.sqrt(square) + eps)


def adam(leaf: Leaf, g: Array, **options: Any) -> Array:
    return -leaf.lr * direction(leaf, g + leaf.wd * leaf.p, **options)


def adamw(leaf: Leaf, g: Array, **options: Any) -> Array:
    return -leaf.lr * (direction(leaf, g, **options) + leaf.wd * leaf.p)


def sgdw(leaf: Leaf, g: Array, momentum: float = 0.9, nesterov: bool = False) -> Array:
    """Algorithm 1 of Loshchilov and Hutter; the decay has the rate and its schedule."""
    return -leaf.lr * (leaf.trace(g, momentum, nesterov) + leaf.wd * leaf.p)


def schedule_free_sgd(leaf: Leaf, g: Array, momentum: float = 0.9) -> Array:
    """What moves z; its average has the momentum (tests/training/test_averages.py)."""
    return sgd(leaf, g, momentum=0.0)


def schedule_free_adamw(
    leaf: Leaf, g: Array, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> Array:
    return adamw(leaf, g, b1=0.0, b2=b2, eps=eps)


def lamb(leaf: Leaf, g: Array, eps: float = 1e-6, **options: Any) -> Array:
    u = direction(leaf, g, eps=eps, **options) + leaf.wd * leaf.p
    return -leaf.lr * np.linalg.norm(leaf.p) / np.linalg.norm(u) * u


def lars(leaf: Leaf, g: Array, momentum: float = 0.9, nesterov: bool = False) -> Array:
    u = g + leaf.wd * leaf.p
    ratio = np.linalg.norm(leaf.p) / np.linalg.norm(u)
    trust_ratio = 0.001 * ratio if u.ndim > 1 else 1.0
    return leaf.trace(-leaf.lr * trust_ratio * u, momentum, nesterov)


def lion(leaf: Leaf, g: Array, b1: float = 0.9, b2: float = 0.99) -> Array:
    sign = np.sign(b1 * leaf.memory.get("mu", 0) + (1 - b1) * g)
    leaf.average("mu", g, b2)
    return -leaf.lr * (sign + leaf.wd * leaf.p)


def rmsprop(
    leaf: Leaf, g: Array, b2: float = 0.9, eps: float = 1e-8, **trace: Any
) -> Array:
    g = g + leaf.wd * leaf.p
    u = g / np.sqrt(leaf.average("nu", g**2, b2) + eps)
    return leaf.trace(-leaf.lr * u, **trace)


def adagrad(leaf: Leaf, g: Array, eps: float = 1e-7) -> Array:
    g = g + leaf.wd * leaf.p
    leaf.memory["sum"] = leaf.memory.get("sum", 0.1) + g**2
    return -leaf.lr * g / np.sqrt(leaf.memory["sum"] + eps)


def newton_schulz(x: Array) -> Array:
    """Push all singular values towards 1 (Jordan's coefficients)."""
    x = x / np.linalg.norm(x)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def muon(leaf: Leaf, g: Array, momentum: float = 0.95, nesterov: bool = True) -> Array:
    if g.ndim == 1:
        return adam(leaf, g, nesterov=nesterov)
    matrix = mean(leaf, g, momentum, nesterov).reshape(-1, g.shape[-1])
    num_in, num_out = matrix.shape
    u = newton_schulz(matrix) * max(1, num_out / num_in) ** 0.5
    return -leaf.lr * (u.reshape(g.shape) + leaf.wd * leaf.p)


def adan(
    leaf: Leaf,
    g: Array,
    b1: float = 0.98,
    b2: float = 0.92,
    b3: float = 0.99,
    eps: float = 1e-8,
) -> Array:
    """Algorithm 1 of the paper, whose betas are 1 - these, with corrected biases."""
    difference = g - leaf.memory.get("last", g)
    leaf.memory["last"], t = g, leaf.t
    m = leaf.average("m", g, b1) / (1 - b1**t)
    v = leaf.average("v", difference, b2) / (1 - b2**t)
    ahead = (g + (1 - b2) * difference) ** 2
    # optax adds another 1e-8 within the root.
    n = np.sqrt(leaf.average("n", ahead, b3) / (1 - b3**t) + 1e-8) + eps
    return -leaf.lr * ((m + (1 - b2) * v) / n + leaf.wd * leaf.p)


def ademamix(
    leaf: Leaf,
    g: Array,
    b1: float = 0.9,
    b2: float = 0.999,
    b3: float = 0.9999,
    eps: float = 1e-8,
) -> Array:
    fast = leaf.average("m1", g, b1) / (1 - b1**leaf.t)
    slow = leaf.average("m2", g, b3)
    n = np.sqrt(leaf.average("n", g**2, b2) / (1 - b2**leaf.t)) + eps
    return -leaf.lr * ((fast + 5 * slow) / n + leaf.wd * leaf.p)


def adopt(
    leaf: Leaf, g: Array, b1: float = 0.9, b2: float = 0.9999, eps: float = 1e-6
) -> Array:
    """Algorithm 2 of the paper: the first gradient is looked at alone, no update."""
    before, m = leaf.memory.get("v"), np.zeros_like(g)
    if before is None:
        leaf.memory["v"] = g**2
    else:
        limit = (leaf.t - 1) ** 0.25
        scaled = np.clip(g / np.maximum(np.sqrt(before), eps), -limit, limit)
        m = leaf.average("m", scaled, b1)
        leaf.average("v", g**2, b2)
    return -leaf.lr * (m + leaf.wd * leaf.p)


ADAM = {"b1": 0.8, "b2": 0.9, "eps": 0.1}
NESTEROV = {"momentum": 0.7, "nesterov": True}
# The formula, and options, each unlike its default, that are set together.
CASES: dict[str, tuple[Callable[..., Array], list[dict[str, Any]]]] = {
    "sgd": (sgd, [{"momentum": 0.0}, NESTEROV]),
    "sgdw": (sgdw, [{"momentum": 0.0}, NESTEROV]),
    "schedule_free_sgd": (schedule_free_sgd, [{"momentum": 0.5}]),
    "schedule_free_adamw": (schedule_free_adamw, [ADAM]),
    "adam": (adam, [ADAM, {"nesterov": True}]),
    "adamw": (adamw, [ADAM, {"nesterov": True}]),
    "lamb": (lamb, [ADAM]),
    "lars": (lars, [NESTEROV]),
    "lion": (lion, [{"b1": 0.5, "b2": 0.6}]),
    "rmsprop": (rmsprop, [{"b2": 0.8, "eps": 0.1}, {"momentum": 0.7}, NESTEROV]),
    "adagrad": (adagrad, [{"eps": 0.1}]),
    "adan": (adan, [ADAM]),
    "ademamix": (ademamix, [ADAM]),
    "adopt": (adopt, [ADAM]),
    "muon": (muon, [{"momentum": 0.7}, {"nesterov": False}]),
}


def make(**options: Any) -> Tx:
    rate = {} if options["name"] == "lbfgs" else {"learning_rate": RATE}
    config = optimizer_config(**{**rate, **options})
    if config.learning_rate is None:
        return make_optimizer(config, None)
    steps = {"total_steps": 8, "warmup_steps": config.warmup_steps or 0}
    return make_optimizer(config, make_schedule(config, **steps))


def random_tree(seed: int, dtype: Any = jnp.float32) -> Any:
    """Return random arrays, the same in every dtype: they are exact in bfloat16."""
    rng = np.random.default_rng(seed)
    draw = lambda shape: jnp.asarray(rng.integers(-128, 128, shape) / 64, dtype)  # noqa: E731
    return jax.tree.map(draw, SHAPES, is_leaf=lambda x: isinstance(x, tuple))


def loss_fn(params: Any) -> jax.Array:
    leaves = [x.astype(jnp.float32).ravel() for x in jax.tree.leaves(params)]
    return jnp.sum((jnp.concatenate(leaves) - 1) ** 2)


def update_fn(tx: Tx, loss_fn: Callable[[Any], jax.Array] = loss_fn) -> Any:
    """Return `(grads, opt_state, params) -> (updates, opt_state)`."""

    def update(grads: Any, opt_state: Any, params: Any) -> Any:
        extra = {"value": loss_fn(params), "grad": grads, "value_fn": loss_fn}
        return tx.update(grads, opt_state, params, **extra)

    return update


def assert_close(actual: Any, expected: Any) -> None:
    """Compare trees, to 1e-4 of the largest element of each array.

    A rounding of float32, 6e-8, grows to 3e-5 in the square root of 1 - 0.999, and at
    most by 3.4445 ** 5 = 485 in Newton-Schulz. Every option changes far more.
    """
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * np.abs(b).max())


@pytest.mark.parametrize("name", CASES)
def test_updates_follow_formula(name: str) -> None:
    for options in [{}, *CASES[name][1]]:
        check_updates(name, options)


def check_updates(name: str, options: dict[str, Any]) -> None:
    falls = name not in SCHEDULE_FREE_NAMES
    rate = {"schedule": "linear" if falls else "constant", "warmup_steps": 2}
    tx = make(name=name, weight_decay=DECAY, **rate, **options)
    params = random_tree(0)
    opt_state, update = tx.init(params), jax.jit(update_fn(tx))
    arrays = [np.asarray(p, np.float64) for p in jax.tree.leaves(params)]
    leaves = [Leaf(p, DECAY if p.ndim > 1 else 0) for p in arrays]
    for step in range(5):
        grads = random_tree(step + 1)
        updates, opt_state = update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        expected = []
        for leaf, g in zip(leaves, jax.tree.leaves(grads), strict=True):
            end = (8 - step) / 6 if falls else 1
            leaf.t, leaf.lr = step + 1, RATE * min(step / 2, end)
            expected.append(CASES[name][0](leaf, np.asarray(g, np.float64), **options))
            leaf.p = leaf.p + expected[-1]
        assert_close(updates, expected)
    assert_close(params, [leaf.p for leaf in leaves])


def test_every_optimizer_and_option_is_tested() -> None:
    assert {*CASES, *DISTANCE_NAMES, "lbfgs"} == set(OPTIMIZERS)
    for name, (_, cases) in CASES.items():
        assert {key for case in cases for key in case} == set(
            optimizer_config(name).arguments()
        )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_clipped_gradients_are_those_of_optax(dtype: Any) -> None:
    grads = random_tree(1, dtype)
    wide = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
    norm = optax.tree.norm(wide)
    for max_norm in (float(norm) / 4, float(norm) * 2):
        tx = optax.clip_by_global_norm(max_norm)
        expected, _ = tx.update(wide, tx.init(wide))
        jax.tree.map(
            np.testing.assert_array_equal, clip(grads, norm, max_norm), expected
        )
        shrunk = optax.tree.norm(expected)
        np.testing.assert_allclose(shrunk, min(max_norm, norm), rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_gradients_are_clipped_by_the_weights_of_each_output(dtype: Any) -> None:
    grads, params = random_tree(1, dtype), random_tree(0, dtype)
    params["conv"]["kernel"] = params["conv"]["kernel"].at[..., 1].set(0)
    for found, g, p in zip(
        *map(jax.tree.leaves, (clip_by_ratio(grads, params, 0.3), grads, params)),
        strict=True,
    ):
        g, p = (np.asarray(x, np.float64) for x in (g, p))
        dims = tuple(range(max(1, g.ndim - 1)))
        g_norm, p_norm = (np.sqrt(np.sum(x**2, dims, keepdims=True)) for x in (g, p))
        largest = 0.3 * np.maximum(p_norm, 1e-3)
        expected = g * np.minimum(1, largest / g_norm)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        assert (largest < g_norm).any()


@pytest.mark.slow
@each_row("name", OPTIMIZERS)
def test_state_is_float32_and_keeps_its_types(name: str) -> None:
    def types(tree: Any) -> Any:
        return jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), tree)

    tx, all_updates = make(name=name), []
    for dtype in (jnp.float32, jnp.bfloat16):
        params, grads = random_tree(0, dtype), random_tree(1, dtype)
        opt_state = tx.init(params)
        expected = types(opt_state)
        assert types(jax.eval_shape(tx.init, params)) == expected
        leaves = jax.tree.leaves(opt_state)
        assert {x.dtype for x in leaves} <= {jnp.dtype("float32"), jnp.dtype("int32")}
        assert not any(x.weak_type for x in leaves), "a second step compiles again"
        # A donated buffer that cannot be used again is a warning, hence an error.
        update = jax.jit(update_fn(tx), donate_argnums=1)
        updates, opt_state = update(grads, opt_state, params)
        _, opt_state = update(grads, opt_state, params)
        assert types(opt_state) == expected
        all_updates.append(updates)
        new = optax.apply_updates(params, updates)
        assert {x.dtype for x in jax.tree.leaves(new)} == {jnp.dtype(dtype)}
    # The parameters' dtype does not change the arithmetic.
    assert_close(*all_updates)


@pytest.mark.slow
@each_row("name", OPTIMIZERS)
@each_row("dtype", ["bfloat16", "float32", "float64"])
def test_types_where_jax_computes_in_float64(name: str, dtype: str) -> None:
    """Only float64 parameters have updates of float64; a state keeps its types."""
    with jax.enable_x64(True):
        tx, params = make(name=name), random_tree(0, dtype)
        opt_state = jax.eval_shape(tx.init, params)
        updates, after = jax.eval_shape(update_fn(tx), params, opt_state, params)
    wide = jnp.dtype("float64" if dtype == "float64" else "float32")
    assert {x.dtype for x in jax.tree.leaves(updates)} == {wide}
    types = [
        [(x.shape, x.dtype) for x in jax.tree.leaves(s)] for s in (opt_state, after)
    ]
    assert types[0] == types[1]


def test_lbfgs_finds_known_optimum() -> None:
    """Minimise Rosenbrock's function, whose curved valley no fixed rate follows."""

    def rosenbrock(params: Any) -> jax.Array:
        return (1 - params["x"]) ** 2 + 100 * (params["y"] - params["x"] ** 2) ** 2

    tx = make(name="lbfgs")

    def step(_: int, carry: Any) -> Any:
        params, opt_state = carry
        grads = jax.grad(rosenbrock)(params)
        updates, opt_state = update_fn(tx, rosenbrock)(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    params = {"x": jnp.float32(-1.2), "y": jnp.float32(1.0)}
    carry = params, tx.init(params)
    solved, _ = jax.jit(lambda carry: jax.lax.fori_loop(0, 50, step, carry))(carry)
    # The square root of float32's rounding of the loss, 6e-8, is 2.5e-4.
    np.testing.assert_allclose([solved["x"], solved["y"]], 1.0, atol=5e-4)


VALUES = {"momentum": 0.5, "nesterov": True, "b1": 0.5, "b2": 0.5, "eps": 0.1}


@each_row("name", CASES)
def test_an_option_that_is_not_taken_is_an_error(name: str) -> None:
    taken = {key for case in CASES[name][1] for key in case}
    for option in VALUES.keys() - taken:
        with pytest.raises(UserError) as raised:
            make(name=name, **{option: VALUES[option]})
        takes, _, refused = str(raised.value).partition(", not ")
        assert takes == f"{name} takes {', '.join(optimizer_config(name).arguments())}"
        assert refused.startswith(repr(option))


@each_row(
    ("options", "message"),
    [
        ({"name": "sdg"}, r"'sdg' \(perhaps you meant sgd.*\): expected sgd, adam, "),
        ({"name": "adam", "learning_rate": None}, "learning_rate is not set: adam"),
        ({"name": "sgd", "momentum": 0.0, "nesterov": True}, "without momentum"),
        ({"name": "lars", "momentum": 0.0, "nesterov": True}, "without momentum"),
        ({"name": "rmsprop", "nesterov": True}, "without momentum"),
        ({"name": "lbfgs", "learning_rate": 0.1}, "learning_rate = 0.1: lbfgs takes"),
        ({"name": "lbfgs", "weight_decay": 0.1}, "weight_decay = 0.1: lbfgs takes"),
        ({"name": "lbfgs", "clip_norm": 1.0}, "clip_norm = 1.0: lbfgs takes"),
        ({"name": "lbfgs", "schedule": "step"}, "schedule = 'step': lbfgs takes"),
        ({"name": "lbfgs", "warmup_epochs": 1.0}, "warmup_epochs = 1.0: lbfgs takes"),
        ({"name": "lbfgs", "momentum": 0.9}, "lbfgs takes no options, not 'momentum'"),
    ],
)
def test_user_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(**options)
