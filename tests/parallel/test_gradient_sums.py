"""What the devices send of weights and gradients, in which dtype, and what comes of it.

The collectives are read from the program that JAX hands to XLA: XLA:CPU widens those of
bfloat16, and what it joins differs from a GPU's.
"""

import math
import re
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P

from jaxtrain import config as config_lib, keys
from jaxtrain.config import (
    Config,
    DataConfig,
    LeNetConfig,
    ParallelConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.models.copied import copied_paths, use_copies
from jaxtrain.models.layers import Layers
from jaxtrain.parallel import data_sharding
from jaxtrain.parallel.copies import Copies
from jaxtrain.parallel.layout import Layout
from jaxtrain.parallel.mesh import make_mesh
from jaxtrain.trainer.programs import make_programs
from jaxtrain.trainer.run_data import load_data
from jaxtrain.trainer.setup import Setup, build_setup
from jaxtrain.training import precision
from jaxtrain.training.compiled import Compiled
from tests.helpers.axes import difference
from tests.helpers.command import float64, with_devices
from tests.helpers.elsewhere import ElsewhereLayout
from tests.helpers.rows import each_row
from tests.helpers.shallow import SHORT

NUM_DEVICES = 8
LENET = LeNetConfig()

Case = dict[str, Any]

# Kind, devices that exchange, operand and result. The devices are listed, one group a
# row, or since JAX 0.12 they are axes of the mesh.
COLLECTIVE = re.compile(
    r'"stablehlo\.(all_reduce|reduce_scatter|all_gather)".*?'
    r"replica_groups = (?:dense<[^>]*> : tensor<\d+x(?P<size>\d+)xi64>"
    r"|#stablehlo\.replica_group_mesh_axes<(?P<axes>[^\]]*)\]>).*?"
    r"\(tensor<(?P<operand>[^>]*)>\) -> tensor<(?P<result>[^>]*)>",
    re.DOTALL,
)


def make_config(case: Case) -> Config:
    train = {"steps": 1} | case.get("train", {})
    return Config(
        precision=case["precision"],
        data=DataConfig(
            source="synthetic:32x32x3/8/64",
            batch_size=16,
            mean=(0.5,) * 3,
            std=(0.5,) * 3,
            cache="stream",
        ),
        model=case.get("model", LENET),
        optimizer=SGDConfig(learning_rate=0.1),
        parallel=ParallelConfig(batch_norm=1, **case.get("parallel", {})),
        train=TrainConfig(**train),
    )


class Sent(NamedTuple):
    """Elements by dtype, and what there is to send: weights but those of norms."""

    gathered: dict[str, int]
    summed: dict[str, int]
    num_shared: int
    num_trained: int


def look(case: Case) -> Sent:
    setup = build_setup(make_config(case))
    params = setup.abstract_state.params
    trained, _ = setup.phases[-1].frozen.partition(params)
    gathered, summed = Counter[str](), Counter[str]()
    for kind, dtype, number in collectives(setup):
        (gathered if kind == "all_gather" else summed)[dtype] += number
    return Sent(
        dict(gathered),
        dict(summed),
        sum(x.size for x in jax.tree.leaves(params) if "fsdp" in x.sharding.spec),
        sum(
            x.size
            for path, x in jax.tree_util.tree_leaves_with_path(trained)
            if "norm" not in jax.tree_util.keystr(path)
        ),
    )


def collectives(setup: Setup) -> list[tuple[str, str, int]]:
    """Return kind, dtype and elements of each, before XLA places its own.

    As on GPUs: CPUs sum the gradients of convolutions of each device by themselves.
    """
    from jaxtrain.plugins.plan.measure import abstract_inputs

    setup = replace(setup, layout=ElsewhereLayout(**vars(setup.layout)))
    *_, (_, train) = make_programs(setup, load_data(setup)).train
    assert isinstance(train, Compiled)
    key = jax.eval_shape(lambda: keys.root_key(0))
    where = data_sharding.replicated(setup.mesh)
    key = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=where)
    arguments = setup.abstract_state, key, *abstract_inputs(setup)
    found = []
    for match in COLLECTIVE.finditer(train._jitted.lower(*arguments).as_text()):
        kind, axes = match[1], re.findall(r'name = "(\w+)"', match["axes"] or "")
        *dims, dtype = match["result" if kind == "all_gather" else "operand"].split("x")
        sizes = [setup.mesh.shape[axis] for axis in axes]
        if int(match["size"] or math.prod(sizes)) > 1:
            found.append((kind, dtype, math.prod(map(int, dims))))
    return found


FSDP = {"preset": "fsdp"}
NARROW = {"reduce_dtype": "bfloat16"}
# A case -> the dtypes of what is gathered and of what is summed.
SENT: dict[str, tuple[Case, str | None, str | None]] = {
    # What XLA does by itself is as asked.
    "fp32": ({"precision": "fp32", "parallel": FSDP}, None, None),
    "bf16": ({"precision": "bf16"}, None, "f32"),
    "pure_bf16": ({"precision": "pure_bf16", "parallel": FSDP}, "bf16", "f32"),
    "fp32, narrow": ({"precision": "fp32", "parallel": NARROW}, None, "bf16"),
    "fsdp, narrow": (
        {"precision": "bf16", "parallel": FSDP | NARROW},
        "bf16",
        "bf16",
    ),
    # The new parameters are gathered by XLA.
    "zero1": ({"precision": "bf16", "parallel": {"preset": "zero1"}}, None, "f32"),
    "both axes": (
        {"precision": "bf16", "parallel": {"data": 2, "fsdp": 4}},
        "bf16",
        "f32",
    ),
    "micro-batches": (
        {"precision": "bf16", "parallel": FSDP, "train": {"accumulate_steps": 2}},
        "bf16",
        "f32",
    ),
    "frozen": (
        {"precision": "bf16", "parallel": FSDP, "train": {"freeze": ("conv*",)}},
        "bf16",
        "f32",
    ),
    # Of groups are its depthwise convolutions; it scales layers, too.
    "convnext": ({"precision": "bf16", "model": SHORT["convnext"]}, None, "f32"),
}


def look_at_all() -> dict[str, Sent]:
    return {name: look(case) for name, (case, _, _) in SENT.items()}


@pytest.fixture(scope="module")
def sent() -> dict[str, Sent]:
    return with_devices(NUM_DEVICES, look_at_all)


@pytest.mark.slow
@pytest.mark.plugins
@each_row("name", SENT)
def test_every_weight_is_sent_once(sent: dict[str, Sent], name: str):
    _, gathered, summed = SENT[name]
    found = sent[name]
    assert found.gathered == ({gathered: found.num_shared} if gathered else {})
    # What `fsdp` has left of a gradient is summed over `data`: a fourth, here.
    rest = found.num_shared // 4 if name == "both axes" else 0
    assert found.summed == ({summed: found.num_trained + rest} if summed else {})


class Tiny(nnx.Module):
    """A convolution of groups and a dense layer, each large enough to be shared."""

    def __init__(self) -> None:
        layers = Layers(policy=precision.parse("fp64"), rngs=nnx.Rngs(0))
        self.conv = layers.conv(4, 64, 3, groups=2, stride=2)
        self.dense = layers.linear(64, 64)

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.square(self.dense(jnp.tanh(self.conv(x)))).mean()


def compare_gradients() -> list[float]:
    """Return the largest differences from the gradients of a single device."""
    with float64(True):
        sizes = ParallelConfig(data=2, fsdp=2, model=2)
        mesh, model = make_mesh(sizes), nnx.jit(Tiny)()
        graphdef, state = nnx.split(model)
        params = nnx.to_pure_dict(state)
        x = jnp.asarray(np.random.default_rng(0).standard_normal((8, 4, 4, 4)))
        copies = Copies(
            mesh, copied_paths(model), jnp.dtype("float64"), jnp.dtype("float64")
        )
        specs = {
            "conv/kernel": P(None, None, None, "model"),
            "conv/bias": P(None),
            "dense/kernel": P("model", "fsdp"),
            "dense/bias": P(None),
        }
        layout = Layout(mesh, specs, copies=copies)
        where = jax.tree.map(lambda x: x.sharding, layout.weights(params))

        def loss(params: Any, copied: bool) -> jax.Array:
            model = nnx.merge(graphdef, params)
            if copied:
                use_copies(model, mesh)
            return model(x)

        def on_devices(params: Any) -> tuple[Any, Any]:
            grads = jax.grad(loss)(layout.trained_params(params), True)
            summed = layout.reduce_grads(layout.shard_grads(grads))
            # As a line search takes them: through the making of the copies.
            through = jax.grad(lambda p: loss(layout.trained_params(p), True))(params)
            return summed, through

        alone = jax.jit(lambda params: jax.grad(loss)(params, False))(params)
        found = jax.jit(on_devices)(jax.device_put(params, where))
        for grad, place in zip(*map(jax.tree.leaves, (found[0], where)), strict=True):
            assert grad.sharding.is_equivalent_to(place, grad.ndim)
        return [difference(*jax.device_get((grads, alone)), floor=0) for grads in found]


@pytest.mark.slow
def test_gradients_of_copies_are_those_of_one_device():
    # About 1e-15; a part that is missing, or counted twice, gives 0.5.
    assert max(with_devices(NUM_DEVICES, compare_gradients)) < 1e-12


def sum_in(dtype: str) -> float:
    mesh = make_mesh(ParallelConfig())
    paths = frozenset({"conv/bias"})
    copies = Copies(mesh, paths, jnp.dtype("bfloat16"), jnp.dtype(dtype))
    grads = {"conv": {"bias": jnp.array([[256.0]] + [[1.0]] * 7)}}
    layout = Layout(mesh, {"conv/bias": P(None)}, copies=copies)
    summed = jax.jit(layout.reduce_grads)(grads)
    assert summed["conv"]["bias"].dtype == jnp.float32
    return summed["conv"]["bias"].item()


@pytest.mark.slow
def test_sums_round_as_their_dtype_does():
    assert with_devices(NUM_DEVICES, sum_in, "float32") == 263
    # It keeps 8 bits: above 256 even numbers alone.
    assert with_devices(NUM_DEVICES, sum_in, "bfloat16") != 263


def test_runs_do_not_go_on_with_other_sums():
    other = config_lib.replace(Config(), "parallel.reduce_dtype", "bfloat16")
    (told,) = config_lib.differences(Config(), other)
    assert "parallel.reduce_dtype: None -> 'bfloat16'" in told
