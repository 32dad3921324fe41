"""Models: sizes against published numbers, dtypes, training, and errors."""

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jmp
import numpy as np
import pytest
from flax import nnx

from jaxtrain.config import (
    ConvNetConfig,
    CustomModelConfig,
    LeNetConfig,
    MobileNetConfig,
    ModelConfig,
    ResNetConfig,
    WideResNetConfig,
)
from jaxtrain.errors import UserError
from jaxtrain.models import MODELS, batch_norm, layers
from jaxtrain.models.activations import Activation, hard_swish, silu
from jaxtrain.models.base import Model
from jaxtrain.models.blueprint import Blueprint, initial_rngs
from jaxtrain.models.head import Head
from tests.helpers.parts import model_config
from tests.helpers.rows import each_row
from tests.helpers.shallow import SHORT

FP32 = jmp.get_policy("params=float32,compute=float32,output=float32")
BF16 = jmp.get_policy("params=float32,compute=bfloat16,output=float32")
DIGITS, CIFAR, IMAGENET = (28, 28, 1), (32, 32, 3), (224, 224, 3)
RESNETS = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]
# Real computation, at a fraction of the size; lenet takes no options.
TINY = {name: model_config(name, width=0.125) for name in ("convnet", "cnn4")}
TINY |= {"lenet": LeNetConfig()}
TINY |= {
    name: model_config(name, width=0.125, stem="cifar")
    for name in [*RESNETS, "densenet121"]
}
# Every class of layer and block; the deeper ResNets repeat these. Other families are
# tested at a small depth (see `test_families.py`).
SHALLOW = ["lenet", "convnet", "cnn4", "resnet18"]

ABSTRACT: dict[str, Model] = {}

Shape = tuple[int, int, int]
Apply = Callable[[Any, Any, jax.Array], tuple[jax.Array, Any]]


def create(
    config: ModelConfig,
    shape: Shape = (16, 16, 3),
    num_outputs: int = 10,
    policy: jmp.Policy = FP32,
) -> Model:
    blueprint = Blueprint(
        config=config, image_shape=shape, num_outputs=num_outputs, policy=policy
    )
    return blueprint.build(nnx.Rngs(jax.random.key(0, impl="rbg")))  # quick to compile


def abstract(
    config: ModelConfig,
    shape: Shape,
    num_outputs: int = 10,
    policy: jmp.Policy = FP32,
) -> Model:
    """Create a model of shapes only, once for each choice of arguments."""
    key = repr((config, shape, num_outputs, policy))
    if key not in ABSTRACT:
        ABSTRACT[key] = nnx.eval_shape(
            lambda: create(config, shape, num_outputs, policy)
        )
    return ABSTRACT[key]


def split(model: Model) -> tuple[Apply, Any, Any]:
    """Return a pure function of parameters, other state and images, and its state."""
    graph, params, rest = nnx.split(model, nnx.Param, ...)

    def apply(params: Any, rest: Any, images: jax.Array) -> tuple[jax.Array, Any]:
        merged = nnx.merge(graph, params, rest, copy=True)
        logits = merged(images, key=jax.random.key(0))
        return logits, nnx.state(merged, nnx.BatchStat)

    return apply, params, rest


def num_params(model: Model) -> int:
    return sum(math.prod(x.shape) for x in jax.tree.leaves(nnx.state(model, nnx.Param)))


class Product(NamedTuple):
    """A convolution or a matrix product, as found in a traced call."""

    x: jax.ShapeDtypeStruct
    kernel: jax.ShapeDtypeStruct
    y: jax.ShapeDtypeStruct
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]


def trace(model: Model, shape: Shape) -> list[Product]:
    """List the products of a call on one image in order, computing none."""
    # In training one image may leave batch norm one value per channel.
    model.set_attributes(
        nnx.BatchNorm, use_running_average=True, raise_if_not_found=False
    )
    apply, params, rest = split(model)
    images = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
    todo: list[Any] = list(jax.make_jaxpr(apply)(params, rest, images).eqns)
    found = []
    while todo:
        equation = todo.pop(0)
        if equation.primitive.name in ("conv_general_dilated", "dot_general"):
            x, kernel = (v.aval for v in equation.invars)
            strides = equation.params.get("window_strides", ())
            padding = equation.params.get("padding", ())
            found.append(Product(x, kernel, equation.outvars[0].aval, strides, padding))
        if inner := equation.params.get("jaxpr"):
            todo = [*inner.eqns, *todo]
    return found


def random_images(*shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(1), shape)


# LeNet-5 with full connections: 156 + 2,416 + 48,120 + 10,164 + 850; convnet and cnn4
# by hand, layer by layer; ResNet-18 for CIFAR-10: 11.17M in kuangliu/pytorch-cifar;
# those of torchvision's model cards and of the paper of the wide ResNets. Of all others
# `test_zoo.py` compares every array with that of another library.
@pytest.mark.parametrize(
    ("config", "shape", "num_outputs", "count"),
    [
        (LeNetConfig(), DIGITS, 10, 61_706),
        (
            ConvNetConfig(name="convnet"),
            CIFAR,
            10,
            (27 * 64 + 128) + (9 * 64 * 64 + 128) + (8 * 8 * 64 * 10 + 10),
        ),
        (
            ConvNetConfig(name="cnn4"),
            CIFAR,
            10,
            896 + 18_496 + 73_856 + 147_584 + (2 * 2 * 128 + 1) * 64 + 65 * 10,
        ),
        (ResNetConfig(name="resnet18", stem="cifar"), CIFAR, 10, 11_173_962),
        (WideResNetConfig(), CIFAR, 100, 36_536_884),
    ],
    ids=lambda value: value.name if isinstance(value, ModelConfig) else None,
)
def test_parameter_count(
    config: ModelConfig, shape: Shape, num_outputs: int, count: int
) -> None:
    model = abstract(config, shape, num_outputs)
    assert num_params(model) == count
    # What no piece applies has parameters, too, and what two apply has them once.
    named = [name for piece in model.pieces for name in piece.names]
    held = {path[0] for path, _ in nnx.to_flat_state(nnx.state(model))}
    assert sorted(named) == sorted(held)


def flat(state: Any) -> dict[str, np.ndarray]:
    return {
        "/".join(map(str, path)): np.asarray(leaf.get_value())
        for path, leaf in nnx.to_flat_state(state)
    }


@pytest.mark.slow
def test_residual_blocks_start_as_their_shortcut() -> None:
    shapes: Any = abstract(TINY["resnet50"], (16, 16, 3))
    x = random_images(2, 8, 8, shapes.stage1_block2.conv1.in_features)

    @jax.jit
    def start(x: jax.Array) -> tuple[jax.Array, Any]:
        model: Any = create(TINY["resnet50"])
        y = model.stage1_block2(x)
        # Without the kernels, which are then not drawn.
        params = nnx.to_flat_state(nnx.state(model, nnx.Param))
        return y, nnx.from_flat_state(
            [(path, leaf) for path, leaf in params if path[-1] == "scale"]
        )

    y, scales = start(x)
    np.testing.assert_array_equal(y, nnx.relu(x))
    for path, scale in flat(scales).items():
        assert (scale == (0 if "norm3" in path else 1)).all(), path


def test_logits_are_not_rounded_to_the_compute_dtype() -> None:
    """They are the float32 sums of products of rounded features and kernels."""
    policy, narrow = BF16, "bfloat16"
    rngs = nnx.Rngs(0)
    head = Head(64, 10, 0.0, layers=layers.Layers(policy=policy, rngs=rngs))
    bias: Any = head.linear.bias
    bias[...] = random_images(10)
    features = 5 * random_images(32, 64)
    x, kernel = (
        np.asarray(a.astype(narrow), np.float64)
        for a in (features, head.linear.kernel[...])
    )
    expected = x @ kernel + np.asarray(bias[...], np.float64)
    logits = head(features)
    assert logits.dtype == jnp.float32
    # Sums of 64 products of up to 50: float32 is off by up to 64 * 50 * 2**-24, 2e-4.
    np.testing.assert_allclose(logits, expected, atol=2e-4)
    assert np.abs(logits - logits.astype(narrow)).max() > 2e-3


def test_batch_norm() -> None:
    """Training uses the batch's statistics, evaluation the running ones, unrounded."""
    policy = jmp.get_policy("params=float32,compute=float16,output=float32")
    norm = layers.Layers(policy=policy, rngs=nnx.Rngs(0)).batch_norm(3)
    x = np.random.default_rng(0).normal(30.0, 1000.0, (8, 4, 4, 3)).astype(np.float16)
    wide = x.astype(np.float64)
    mean, var = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
    assert (var > 65504).all()  # the largest float16
    y = norm(jnp.asarray(x))
    assert y.dtype == jnp.float16
    np.testing.assert_allclose(y, (wide - mean) / np.sqrt(var + 1e-5), atol=2e-3)
    mean, var = 0.1 * mean, 0.9 + 0.1 * var
    np.testing.assert_allclose(norm.mean[...], mean, rtol=1e-4)
    np.testing.assert_allclose(norm.var[...], var, rtol=1e-4)
    norm.eval()
    y = norm(jnp.asarray(x))
    np.testing.assert_allclose(y, (wide - mean) / np.sqrt(var + 1e-5), atol=5e-3)
    np.testing.assert_allclose(norm.var[...], var, rtol=1e-4)


def test_batch_norm_of_groups_is_that_of_each_group() -> None:
    norm = layers.Layers(policy=FP32, rngs=nnx.Rngs(0), norm_groups=3).batch_norm(5)
    rng = np.random.default_rng(0)
    scale, bias = rng.normal(size=(2, 5)).astype(np.float32)
    nnx.update(norm, {"scale": jnp.asarray(scale), "bias": jnp.asarray(bias)})
    x = rng.normal(2.0, 3.0, (12, 4, 4, 5)).astype(np.float32)
    y = norm(jnp.asarray(x))
    means, variances = [], []
    for i in range(3):
        alone = nnx.BatchNorm(5, momentum=0.9, epsilon=1e-5, rngs=nnx.Rngs(0))
        nnx.update(alone, {"scale": jnp.asarray(scale), "bias": jnp.asarray(bias)})
        part = slice(4 * i, 4 * i + 4)
        np.testing.assert_allclose(y[part], alone(jnp.asarray(x[part])), atol=1e-5)
        np.testing.assert_allclose(norm.mean[i], alone.mean[...], rtol=1e-5)
        np.testing.assert_allclose(norm.var[i], alone.var[...], rtol=1e-5)
        means.append(alone.mean[...])
        variances.append(alone.var[...])
    norm.eval()
    mean, var = np.mean(means, 0), np.mean(variances, 0)
    np.testing.assert_allclose(
        norm(jnp.asarray(x)), (x - mean) / np.sqrt(var + 1e-5) * scale + bias, atol=1e-5
    )


@pytest.mark.parametrize(
    ("groups", "activation"), [(1, nnx.relu), (3, None), (3, silu), (1, hard_swish)]
)
def test_gradients_of_batch_norm_are_those_of_its_formula(
    groups: int, activation: Activation | None
) -> None:
    """The formula's are JAX's own, in float64; float32 differs by its rounding."""
    rng = np.random.default_rng(0)
    x = rng.normal(2.0, 3.0, (12, 4, 4, 5))
    scale, bias = rng.normal(size=(2, 5))
    weights = rng.normal(size=x.shape)

    def formula(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
        dims = (0, 1, 2)
        normal = [
            (part - part.mean(dims)) / jnp.sqrt(part.var(dims) + 1e-5)
            for part in jnp.split(x, groups)
        ]
        y = jnp.concatenate(normal) * scale + bias
        return (weights * jnp.tanh(activation(y) if activation else y)).sum()

    def ours(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
        made = layers.Layers(policy=FP32, rngs=nnx.Rngs(0), norm_groups=groups)
        norm = made.batch_norm(5)
        nnx.update(norm, {"scale": scale, "bias": bias})
        y = norm(x, activation=activation)
        return (weights.astype(np.float32) * jnp.tanh(y)).sum()

    with jax.enable_x64(True):
        expected = jax.jit(jax.grad(formula, (0, 1, 2)))(x, scale, bias)
    narrow = [np.asarray(a, np.float32) for a in (x, scale, bias)]
    found = jax.jit(jax.grad(ours, (0, 1, 2)))(*narrow)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_statistics_as_a_gpu_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_cuda(*arrays: jax.Array, cuda: Any, **_: Any) -> Any:
        return cuda(*arrays)

    monkeypatch.setattr(jax.lax, "platform_dependent", of_cuda)
    x = np.random.default_rng(0).normal(2.0, 3.0, (2, 8, 4, 4, 5))
    mean, var = batch_norm.statistics(jnp.asarray(x, jnp.float32))
    dims = (1, 2, 3)
    np.testing.assert_allclose(mean, x.mean(dims, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(var, x.var(dims, keepdims=True), rtol=1e-5)


def test_batch_norm_of_a_large_mean_is_exact_in_float32() -> None:
    """From the mean of the squares the result was 0.3 off, of deviation 1."""
    mean = 1000.0
    norm = layers.Layers(policy=FP32, rngs=nnx.Rngs(0)).batch_norm(8)
    rng = np.random.default_rng(0)
    x = (mean + rng.standard_normal((64, 16, 16, 8))).astype(np.float32)
    dy = rng.standard_normal(x.shape)
    wide = x.astype(np.float64)
    std = np.sqrt(wide.var((0, 1, 2)) + 1e-5)
    normal = (wide - wide.mean((0, 1, 2))) / std
    centred = dy - dy.mean((0, 1, 2))
    expected = (centred - normal * (normal * dy).mean((0, 1, 2))) / std
    graphdef, state = nnx.split(norm)

    @jax.jit
    def both(x: jax.Array) -> Any:
        y, vjp = jax.vjp(lambda x: nnx.merge(graphdef, state, copy=True)(x), x)
        return y, *vjp(jnp.asarray(dy, jnp.float32))

    y, dx = both(jnp.asarray(x))
    # The mean itself is rounded to float32: 6e-5 of a mean of 1,000, and as much again
    # for the sum.
    np.testing.assert_allclose(y, normal, atol=2e-7 * mean)
    np.testing.assert_allclose(dx, expected, atol=1e-4)


def test_variance_that_overflows_shows_in_the_gradients() -> None:
    """It would be infinite, and what it normalises 0: all would look finite."""
    norm = layers.Layers(policy=FP32, rngs=nnx.Rngs(0)).batch_norm(2)
    x = np.random.default_rng(0).normal(size=(4, 3, 3, 2)) * [1e20, 1]
    graphdef, params, rest = nnx.split(norm, nnx.Param, ...)

    def total(params: Any) -> jax.Array:
        merged = nnx.merge(graphdef, params, rest, copy=True)
        return merged(jnp.asarray(x, jnp.float32)).sum()

    grads = nnx.to_pure_dict(jax.grad(total)(params))
    np.testing.assert_array_equal(np.isfinite(grads["scale"]), [False, True])


def test_dropout_is_keyed_by_the_call() -> None:
    config = ConvNetConfig(name="cnn4", width=0.125, dropout=0.5)
    state = jax.jit(lambda: nnx.state(create(config)))()
    model = abstract(config, (16, 16, 3))
    images = random_images(2, 16, 16, 3)

    @functools.partial(jax.jit, static_argnums=0)
    def call(training: bool, key: jax.Array | None) -> jax.Array:
        merged = nnx.merge(nnx.graphdef(model), state, copy=True)
        merged.train() if training else merged.eval()
        return merged(images, key=key)

    zero, one = map(jax.random.key, (0, 1))
    np.testing.assert_array_equal(call(True, zero), call(True, zero))
    assert (call(True, zero) != call(True, one)).any()
    with pytest.raises(ValueError, match="rngs"):
        call(True, None)
    np.testing.assert_array_equal(call(False, zero), call(False, one))
    np.testing.assert_array_equal(call(False, zero), call(False, None))


class Noisy(Model):
    """Three pieces that drop features, the second `draws` times in turn."""

    def __init__(self, draws: int = 1):
        self.add_piece(_drop, drop1=nnx.Dropout(0.5))
        self.add_piece(_drop, **{f"drop2_{i}": nnx.Dropout(0.5) for i in range(draws)})
        self.add_piece(_drop, drop3=nnx.Dropout(0.5))


def _drop(*layers_and_input: Any) -> tuple[jax.Array, ...]:
    """Put what each layer makes of ones behind what came before."""
    *dropouts, x, rngs = layers_and_input
    return (*x, *(drop(jnp.ones(1000), rngs=rngs) for drop in dropouts))


def test_each_piece_draws_by_its_place_alone() -> None:
    key = jax.random.key(5)
    first, second, third = map(np.asarray, Noisy()((), key=key))
    for one, other in (first, second), (first, third), (second, third):
        # Of 1,000 features half agree by chance, 50 more or less in one of 600 cases.
        assert 400 < (one == other).sum() < 600
    # However often another piece draws, and wherever the model is cut.
    first_, again, other, third_ = map(np.asarray, Noisy(2)((), key=key))
    for one, same in (first, first_), (second, again), (third, third_):
        np.testing.assert_array_equal(one, same)
    assert (other != again).any()
    alone = Noisy()((), key=key, part=slice(2, 3))
    np.testing.assert_array_equal(alone[0], third)


def test_unknown_name() -> None:
    with pytest.raises(UserError) as error:
        create(CustomModelConfig(name="resnet-50"))
    assert "'resnet-50'" in str(error.value)
    # What may be meant comes first, before the many there are.
    assert "= 'resnet-50' (perhaps you meant resnet50" in str(error.value)
    for name in MODELS:
        assert name in str(error.value)
    with pytest.raises(UserError, match=", or path/to"):
        create(CustomModelConfig(name="zzz"))


@each_row("name", SHALLOW)
def test_smallest_image(name: str) -> None:
    size = MODELS[name].min_size
    products = trace(abstract(TINY[name], (size, size, 1)), (size, size, 1))
    assert all(min(product.y.shape) > 0 for product in products)
    for shape in [(size - 1, size, 1), (size, size - 1, 3)]:
        with pytest.raises(UserError) as error:
            create(TINY[name], shape)
        for part in (str(shape), name, f"{size}x{size}"):
            assert part in str(error.value)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SHORT)
def test_smallest_image_of_a_family(name: str) -> None:
    """It leaves every layer something; one pixel less is refused."""
    config = SHORT[name]
    size = abstract(config, (224, 224, 3)).min_size
    products = trace(abstract(config, (size, size, 3)), (size, size, 3))
    assert all(min(product.y.shape) > 0 for product in products)
    with pytest.raises(UserError, match=f"at least {size}x{size} pixels"):
        create(config, (size, size - 1, 3))


def test_smallest_image_may_depend_on_options() -> None:
    """The stem of DenseNet for ImageNet leaves 28 pixels nothing."""
    for stem, size in ("cifar", 8), ("imagenet", 29):
        config = replace(SHORT["densenet"], options={"width": 0.125, "stem": stem})
        assert abstract(config, (size, size, 3)).min_size == size
        with pytest.raises(UserError, match=f"at least {size}x{size} pixels"):
            abstract(config, (size - 1, size, 3))


@pytest.mark.slow
def test_stems_of_inverted_nets() -> None:
    """That for small images leaves out two strides, and any size will do."""
    cases: Any = (("imagenet", 1), ("cifar", 4))
    for stem, rows in cases:
        config = MobileNetConfig(name="mobilenet_v3_small", width=0.01, stem=stem)
        model = abstract(config, CIFAR)
        *_, last = [p for p in trace(model, CIFAR) if len(p.y.shape) == 4]
        assert last.y.shape[1:3] == (rows, rows) and model.stride == 32 // rows
        assert trace(model, (1, 1, 3))


@each_row("shape", [(32, 32), (32, 32, 0), (8, 32, 32, 3)])
def test_image_shape_must_be_height_width_channels(shape: Any) -> None:
    with pytest.raises(UserError, match="height, width, channels"):
        create(ResNetConfig(name="resnet18"), shape)


def test_keys_of_initial_weights_are_those_of_flax():
    """Counted in Python, as Flax's counter makes deep models slow to trace."""
    ours, theirs = initial_rngs(jax.random.key(3)), nnx.Rngs(params=3)
    for _ in range(3):
        assert (
            jax.random.key_data(ours.params()) == jax.random.key_data(theirs.params())
        ).all()
