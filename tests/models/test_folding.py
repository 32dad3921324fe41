"""Norms folded into convolutions, against the functions as they are written."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

from jaxtrain.config import (
    ConvNetConfig,
    DenseNetConfig,
    EfficientNetConfig,
    ModelConfig,
    ResNetConfig,
)
from jaxtrain.models.blueprint import initial_rngs
from jaxtrain.models.folding import fold_norms
from jaxtrain.training.state import split_model
from tests.helpers.blueprints import make_blueprint
from tests.helpers.rows import each_row
from tests.helpers.tiers import thinned

IN, OUT, SIDE, BATCH = 3, 8, 6, 4
Weights = dict[str, jax.Array]


def conv(w: Weights, x: jax.Array, **options: Any) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, w["kernel"], (1, 1), "SAME", dimension_numbers=numbers, **options
    )


def norm(w: Weights, y: jax.Array) -> jax.Array:
    return (y - w["mean"]) * (lax.rsqrt(w["var"] + 1e-5) * w["scale"]) + w["bias"]


def planes(w: Weights, x: jax.Array) -> jax.Array:
    """Convolve images whose channels are their second dim."""
    kernel = w["kernel"].transpose(3, 2, 0, 1)
    y = lax.conv(x.transpose(0, 3, 1, 2), kernel, (1, 1), "SAME")
    return y * w["scale"][:, None, None] + w["bias"][:, None, None]


FOLDED: dict[str, Callable[[Weights, jax.Array], Any]] = {
    "a norm": lambda w, x: norm(w, conv(w, x)),
    "a bias and a norm": lambda w, x: norm(w, conv(w, x) + w["mean"]),
    "a division": lambda w, x: (w["mean"] - conv(w, x)) / jnp.sqrt(w["var"]),
    "a number": lambda w, x: 0.5 * conv(w, x),
    "in a function that is jitted": lambda w, x: jax.jit(norm)(w, jax.jit(conv)(w, x)),
    "behind it a ReLU, and two that read": lambda w, x: (
        nnx.relu(norm(w, conv(w, x))),
        norm(w, conv(w, x)).sum(),
    ),
    "two, with a result that is read twice between": lambda w, x: norm(
        w, conv(w, (y := norm(w, conv(w, x)))[..., :IN] + y[..., -IN:])
    ),
    "channels in the second dim": planes,
    "a kernel that is rounded": lambda w, x: norm(
        w, conv({"kernel": w["kernel"].astype("bfloat16").astype(x.dtype)}, x)
    ),
    "groups": lambda w, x: norm(
        w,
        conv({**w, "kernel": w["kernel"][:, :, :1]}, x[..., :2], feature_group_count=2),
    ),
}
KEPT: dict[str, Callable[[Weights, jax.Array], Any]] = {
    "read by a shortcut, too": lambda w, x: (y := conv(w, x)) + norm(w, y),
    "in front": lambda w, x: conv(w, x * w["scale"][:IN] + w["bias"][:IN]),
    "behind a ReLU": lambda w, x: norm(w, nnx.relu(conv(w, x))),
    "a factor of the images": lambda w, x: (
        conv(w, x) * x.mean((1, 2, 3), keepdims=True)
    ),
    "a factor of each pixel": lambda w, x: conv(w, x) * w["pixels"],
    "a bias alone": lambda w, x: conv(w, x) + w["bias"],
    "a kernel of the images": lambda w, x: norm(
        w, conv({**w, "kernel": w["kernel"] * x.mean()}, x)
    ),
    "a kernel of eight bits": lambda w, x: norm(
        w,
        conv(
            {"kernel": w["kernel"].astype("float8_e4m3fn")},
            x.astype("float8_e4m3fn"),
            preferred_element_type=jnp.float32,
        ),
    ),
    "with a derivative of its own": lambda w, x: own_derivative(w, x),
}


@jax.custom_vjp
def own_derivative(w: Weights, x: jax.Array) -> jax.Array:
    return norm(w, conv(w, x))


own_derivative.defvjp(lambda w, x: (own_derivative(w, x), None), lambda _, dy: (dy, dy))


def draw(dtype: Any = np.float64) -> tuple[Weights, jax.Array]:
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=OUT) for name in ("mean", "scale", "bias")}
    weights["var"] = rng.uniform(0.1, 4, OUT)
    weights["kernel"] = rng.normal(size=(3, 3, IN, OUT))
    weights["pixels"] = rng.normal(size=(1, SIDE, SIDE, 1))
    images = rng.normal(size=(BATCH, SIDE, SIDE, IN))
    return {n: jnp.asarray(w) for n, w in weights.items()}, jnp.asarray(images, dtype)


def factors(function: Callable[..., Any], *args: Any) -> int:
    """Count the products and quotients of activations."""
    found, jaxprs = 0, [jax.make_jaxpr(function)(*args).jaxpr]
    while jaxprs:
        for eqn in jaxprs.pop().eqns:
            (shape, *_) = [v.aval.shape for v in eqn.outvars]
            products = eqn.primitive.name in ("mul", "div")
            found += products and shape[:1] == (BATCH,) and len(shape) == 4
            inner = [v for v in eqn.params.values() if hasattr(v, "jaxpr")]
            jaxprs += [closed.jaxpr for closed in inner]
    return found


@pytest.mark.slow
@each_row("name", FOLDED)
def test_is_folded(name: str):
    with jax.enable_x64():
        function, given = FOLDED[name], draw()

        def folded(w: Weights, x: jax.Array) -> Any:
            return fold_norms(function, w, x)

        assert factors(folded, *given) == 0 < factors(function, *given)
        compare(folded(*given), function(*given))


@each_row("name", KEPT)
def test_is_kept(name: str):
    with jax.enable_x64():
        function, given = KEPT[name], draw()

        def folded(w: Weights, x: jax.Array) -> Any:
            return fold_norms(function, w, x)

        assert factors(folded, *given) == factors(function, *given)
        compare(jax.jit(folded)(*given), jax.jit(function)(*given), 0)


def test_a_kernel_is_scaled_in_float32_and_rounded_once():
    weights, x = draw(jnp.bfloat16)
    weights = {name: w.astype(jnp.float32) for name, w in weights.items()}

    def rounded(w: Weights, x: jax.Array) -> jax.Array:
        kernel = w["kernel"].astype(jnp.bfloat16)
        return conv({"kernel": kernel}, x).astype(jnp.float32) * w["scale"]

    kernel = (weights["kernel"] * weights["scale"]).astype(jnp.bfloat16)
    expected = conv({"kernel": kernel}, x).astype(jnp.float32)
    found = fold_norms(rounded, weights, x)
    np.testing.assert_array_equal(found, expected)


def evaluated(graphdef: Any, params: Any, model_state: Any, x: jax.Array) -> jax.Array:
    """Apply a model as it is written."""
    model = nnx.merge(graphdef, params, model_state, copy=True)
    model.eval()
    return model(x)


# Models, and how many of their norms come behind a convolution. Of a DenseNet's these
# are the second norms of layers, and the first of all.
SMALL = (ConvNetConfig(name="convnet", width=0.125), 2)
LARGE = [
    (ResNetConfig(name="resnet18", width=0.125), 20),
    (EfficientNetConfig(name="efficientnet_b0"), 49),
    (DenseNetConfig(), 59),
]


@pytest.mark.parametrize(
    ("config", "num"),
    [SMALL, *thinned(3, LARGE)],
    ids=lambda given: getattr(given, "name", ""),
)
def test_models_put_out_the_same(config: ModelConfig, num: int):
    with jax.enable_x64():
        blueprint = make_blueprint(config, (32, 32, 3), 5, "fp64", norm_groups=2)
        graphdef, *weights = split_model(
            blueprint.build(initial_rngs(jax.random.key(0)))
        )
        rng = np.random.default_rng(0)
        # Means, variances, scales and biases that differ from 0 and 1.
        weights = jax.tree.map(lambda w: w + rng.uniform(0, 0.1, w.shape), weights)
        x = jnp.asarray(rng.normal(size=(BATCH, 32, 32, 3)))
        theirs = partial(evaluated, graphdef)

        def ours(params: Any, model_state: Any, x: jax.Array) -> jax.Array:
            weights = params, model_state
            return fold_norms(lambda w, x: theirs(w[0], w[1], x), weights, x)

        assert factors(theirs, *weights, x) - factors(ours, *weights, x) == num
        compare(jax.jit(ours)(*weights, x), jax.jit(theirs)(*weights, x), 1e-12)


def compare(ours: Any, theirs: Any, tolerance: float = 1e-13) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * float(abs(b).max()))
