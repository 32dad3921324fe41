"""Every family of models trains, in every precision, on any devices."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import optax
import pytest
from flax import nnx
from jax.sharding import AbstractMesh

from jaxtrain.models.blueprint import Blueprint
from jaxtrain.models.layers import Layers
from jaxtrain.trainer import model_checks
from jaxtrain.training import precision
from jaxtrain.training.forward import apply_model, predict
from jaxtrain.training.state import split_model
from jaxtrain.trees import by_path
from tests.helpers.axes import COVER, assert_same, disturb
from tests.helpers.blueprints import make_blueprint
from tests.helpers.shallow import SHIFTS, SHORT, SIZES
from tests.helpers.tiers import thinned

NUM_CLASSES = 4


def blueprint(name: str, policy: str, num_groups: int = 1) -> Blueprint:
    size = SIZES.get(name, 32)
    return make_blueprint(
        SHORT[name], (size, size, 3), NUM_CLASSES, policy, norm_groups=num_groups
    )


@pytest.mark.parametrize("name", thinned(5, SHORT))
def test_every_array_is_trained(name: str) -> None:
    """Three steps lower the loss, and change every parameter and statistic."""
    made = blueprint(name, "fp32")
    graphdef = nnx.graphdef(made.abstract())
    init = jax.jit(lambda key: split_model(made.build(nnx.Rngs(key)))[1:])
    params, state = init(jax.random.key(0, impl="rbg"))
    # On a device, as what the first step puts out: the second is the same program.
    start = disturb(params), jax.device_put(state, jax.devices()[0])
    images = jax.random.normal(jax.random.key(1), (8, *made.image_shape))
    labels = jnp.arange(8) % NUM_CLASSES

    @jax.jit
    def step(params: Any, state: Any, key: jax.Array) -> tuple[jax.Array, Any, Any]:
        def loss(params: Any) -> tuple[jax.Array, Any]:
            outputs, new = apply_model(graphdef, params, state, images, key)
            losses = [
                optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
                for logits in jax.tree.leaves(outputs)
            ]
            return sum(losses, jnp.float32(0)), new

        (value, new), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return value, jax.tree.map(lambda p, g: p - 0.005 * g, params, grads), new

    params, state = start
    losses = []
    # With another key others of the blocks would be left out: another loss.
    key = jax.random.key(2)
    for _ in range(3):
        value, params, state = step(params, state, key)
        losses.append(float(value))
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    before, after = map(by_path, jax.device_get((start, (params, state))))
    unmoved = SHIFTS.get(name, set())
    assert unmoved <= after.keys()
    for path, new in after.items():
        assert np.isfinite(new).all(), path
        assert (new != before[path]).any() or path in unmoved, path


# What a family's own code may keep from its layers' casts shows in bfloat16, and where
# the parameters have it, too; the other precisions are the layers' own.
EVERY = ["bf16", "pure_bf16"]
VARIED = ["resnet_d", "googlenet", "convnext"]
PRECISIONS = [
    pytest.param(
        name,
        policy,
        marks=[] if policy == "bf16" and name in VARIED else pytest.mark.exhaustive,
    )
    for name in SHORT
    for policy in [*EVERY, *["fp32", "fp16", "fp64"] * (name in VARIED)]
]


@pytest.mark.parametrize(("name", "policy"), PRECISIONS)
def test_dtypes(name: str, policy: str) -> None:
    """Activations have the compute dtype, outputs theirs, gradients the parameters'."""
    with jax.enable_x64(policy == "fp64"):
        made = blueprint(name, policy)
        graphdef, params, state = split_model(made.abstract())
        images = jax.ShapeDtypeStruct((2, *made.image_shape), jnp.float32)
        key = jax.eval_shape(lambda: jax.random.key(0))

        def loss(params: Any, state: Any, images: Any, key: Any) -> Any:
            outputs, new = apply_model(graphdef, params, state, images, key)
            return sum(x.astype(float).sum() for x in jax.tree.leaves(outputs)), new

        graded = jax.value_and_grad(loss, has_aux=True)
        (_, new), grads = jax.eval_shape(graded, params, state, images, key)
        logits = jax.eval_shape(
            lambda *args: predict(graphdef, *args), params, state, images
        )
        assert logits.dtype == made.policy.output_dtype
        assert logits.shape == (2, NUM_CLASSES)
        before, after = (
            jax.tree.map(lambda x: x.dtype, tree)
            for tree in ((params, state), (grads, new))
        )
        assert before == after
        traced = jax.make_jaxpr(lambda *args: predict(graphdef, *args))(
            params, state, images
        )
        for inputs in products(traced.jaxpr):
            assert set(inputs) == {jnp.dtype(made.policy.compute_dtype)}


def products(jaxpr: Any) -> list[list[Any]]:
    """Return the dtypes of the inputs of every convolution and matrix product."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("conv_general_dilated", "dot_general"):
            found.append([v.aval.dtype for v in equation.invars])
        for inner in jax.tree.leaves(equation.params, is_leaf=is_jaxpr):
            if is_jaxpr(inner):
                found += products(getattr(inner, "jaxpr", inner))
    return found


def is_jaxpr(value: Any) -> bool:
    return hasattr(getattr(value, "jaxpr", value), "eqns")


def test_groups_that_no_axis_splits_are_refused() -> None:
    """XLA would compute their gradients wrongly."""
    model = blueprint("regnet", "fp32").abstract()
    for size, fits in (1, True), (2, True), (3, False), (4, True):
        mesh: Any = AbstractMesh((size,), ("model",))
        found = [problem.text for problem in model_checks.check_groups(model, mesh)]
        assert len(found) == (not fits)
        told = r"= 3: it does not divide the 16 channels of .*stage2_block1/conv2"
        assert fits or re.search(told, found[0])
    layers = Layers(policy=precision.parse("fp32"), rngs=nnx.Rngs(0))
    whole: Any = nnx.Sequential(layers.conv(4, 4, 3, groups=4))
    mesh = AbstractMesh((2,), ("model",))
    (problem,) = model_checks.check_groups(whole, mesh)
    assert "is not sharded" in problem.text and "does not divide" not in problem.text
    assert "set parallel.model = 1" in problem.text


@pytest.mark.plugins
@pytest.mark.parametrize("name", thinned(3, SHORT))
def test_onnx_computes_the_same(name: str) -> None:
    from jaxtrain.plugins.onnx.onnx_file import emit

    made = blueprint(name, "fp32")
    graphdef, *abstract = split_model(made.abstract())
    rng = np.random.default_rng(0)

    def draw(path: Any, x: Any) -> np.ndarray:
        leaf = jax.tree_util.keystr(path[-1:], simple=True)
        if leaf in ("var", "scale"):
            return rng.uniform(0.5, 1.5, x.shape).astype(np.float32)
        values = rng.normal(size=x.shape) / np.sqrt(np.prod(x.shape[:-1]))
        return values.astype(np.float32)

    params, state = jax.tree_util.tree_map_with_path(draw, abstract)

    def run(images: jax.Array) -> jax.Array:
        return predict(graphdef, params, state, images)

    model = emit(run, made.image_shape, dtype=np.float32)
    images = rng.normal(size=(2, *made.image_shape)).astype(np.float32)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = np.asarray(session.run(None, {"images": images})[0])
    expected = np.asarray(jax.jit(run)(images))
    # Float32 of some twenty layers, in another order.
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.plugins
@pytest.mark.exhaustive
def test_stages_hand_on_what_auxiliary_heads_put_out() -> None:
    """Two pipeline stages of a GoogLeNet, which is cut between its heads, as one."""
    cases = {"meshes": [{}], "micro": 2, "stages": 2}
    assert_same("short googlenet", [cases])


# Those whose layers are no others': `test_axes.py` has a ResNet, bottlenecks are in
# ResNeXt, wide blocks are preactivated ones, and RegNets and MobileNets squeeze.
OF_THEIR_OWN = sorted(SHORT.keys() - {"resnet", "se_resnet", "wide_resnet"})


@pytest.mark.parametrize("name", thinned(6, OF_THEIR_OWN))
def test_any_devices_compute_what_one_does(name: str) -> None:
    """Over the batch, parameters, channels, rows and columns, in float64."""
    meshes = COVER[:2]
    if name in ("mobilenet", "convnext"):
        # What enters their depthwise convolutions are whole channels.
        meshes = [*meshes, {"fsdp": 2, "model": 4}]
    assert_same(f"short {name}", [{"meshes": meshes}])
