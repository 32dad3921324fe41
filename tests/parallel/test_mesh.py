"""Sizes of the mesh's axes, where arrays lie on it, and what does not fit."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx
from jax.sharding import AbstractMesh, PartitionSpec as P

from jaxtrain import keys
from jaxtrain.config import (
    MESH_AXES,
    Config,
    LBFGSConfig,
    ParallelConfig,
    ResNetConfig,
)
from jaxtrain.errors import UserError
from jaxtrain.models.annotations import make_specs
from jaxtrain.models.batch_norm import GroupStat
from jaxtrain.parallel.layout import Layout
from jaxtrain.parallel.mesh import axis_sizes
from jaxtrain.trainer.setup import make_blueprint
from jaxtrain.trainer.state_sharding import whole_layers
from jaxtrain.training import precision
from jaxtrain.training.create import CreateState
from jaxtrain.training.optimizers import make_optimizer
from jaxtrain.training.state import TrainState
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe
from tests.helpers.rows import each_row


@each_row(
    ("fields", "devices", "sizes"),
    [
        ({}, 8, (8, 1, 1, 1, 1)),
        ({"preset": "fsdp"}, 8, (1, 8, 1, 1, 1)),
        ({"preset": "zero1"}, 1, (1, 1, 1, 1, 1)),
        ({"preset": "tensor"}, 2, (1, 1, 2, 1, 1)),
        ({"preset": "spatial"}, 4, (1, 1, 1, 4, 1)),
        ({"preset": "2d"}, 8, (1, 4, 2, 1, 1)),
        ({"preset": "2d"}, 1, (1, 1, 1, 1, 1)),
        ({"preset": "fsdp", "data": 2}, 8, (2, 4, 1, 1, 1)),
        ({"preset": "tensor", "data": -1, "model": 2}, 8, (4, 1, 2, 1, 1)),
        ({"spatial": 2, "spatial_width": 2}, 8, (2, 1, 1, 2, 2)),
        # The rest goes to the axis that asks for it, not to the preset's.
        ({"preset": "tensor", "data": -1}, 8, (8, 1, 1, 1, 1)),
    ],
)
def test_axis_sizes(fields: dict[str, Any], devices: int, sizes: tuple[int, ...]):
    expected = dict(zip(MESH_AXES, sizes, strict=True))
    assert axis_sizes(ParallelConfig(**fields), devices) == expected


@each_row(
    ("fields", "named"),
    [
        ({"data": 3}, ["parallel.data = 3", "8 devices"]),
        ({"fsdp": 4, "data": 4}, ["parallel.data = 4 x parallel.fsdp = 4", "8"]),
        ({"model": 3}, ["parallel.model = 3", "product is 8"]),
        ({"data": 1}, ["a mesh of one device", "8 devices"]),
    ],
)
def test_sizes_that_do_not_fit(fields: dict[str, Any], named: list[str]):
    with pytest.raises(UserError) as error:
        axis_sizes(ParallelConfig(**fields), 8)
    assert all(text in str(error.value) for text in named), error.value


def test_one_axis_takes_the_rest():
    with pytest.raises(UserError, match=r"parallel\.model = -1: only one axis"):
        ParallelConfig(data=-1, model=-1)


# For ImageNet, with batch norm over groups of 8.
RESNET50 = make_blueprint(
    Config(model=ResNetConfig(name="resnet50"), parallel=ParallelConfig(batch_norm=8)),
    precision.parse("fp32"),
    (224, 224, 3),
    1000,
)


ADAMW, SGD = optax.adamw(1e-3), optax.sgd(0.1)


@functools.cache
def abstract_state(optimizer: optax.GradientTransformation) -> Any:
    """Return the state of the ResNet-50, without allocating it."""
    create = CreateState(RESNET50, optimizer)
    return jax.eval_shape(create, keys.root_key(0))


@functools.cache
def resnet50() -> Any:
    return RESNET50.abstract()


def mesh_of(**sizes: int) -> Any:
    return AbstractMesh(tuple(sizes.get(axis, 1) for axis in MESH_AXES), MESH_AXES)


def layout(shard_params: bool = True, tx: Any = ADAMW, **sizes: int) -> Layout:
    mesh = mesh_of(**sizes)
    return Layout(mesh, make_specs(resnet50(), mesh.shape), shard_params, optimizer=tx)


def bytes_per_device(state: Any, layout: Layout) -> int:
    return sum(
        jax.tree.leaves(
            jax.tree.map(
                lambda x, s: math.prod(s.shard_shape(x.shape)) * x.dtype.itemsize,
                state,
                layout.state(state),
            )
        )
    )


@pytest.mark.slow
def test_fully_sharded_state_is_shared_by_all_devices():
    state = abstract_state(ADAMW)
    whole = bytes_per_device(state, layout())
    # Three copies of 25,557,032 float32 numbers, and the statistics.
    assert whole > 12 * 25_557_032
    assert bytes_per_device(state, layout(fsdp=8)) <= 0.15 * whole
    # Of the three copies one stays whole.
    zero1 = bytes_per_device(state, layout(shard_params=False, fsdp=8))
    assert zero1 / whole == pytest.approx((1 + 2 / 8) / 3, abs=0.01)
    assert bytes_per_device(state, layout(data=8)) > 0.99 * whole


@pytest.mark.slow
def test_rules_catch_kernels_moments_and_statistics():
    state = abstract_state(ADAMW)
    specs = jax.tree.map(lambda s: s.spec, layout(fsdp=4, model=2).state(state))
    block = specs.params["stage2_block2"]
    assert block["conv1"]["kernel"] == P(None, None, "fsdp", "model")
    assert block["conv2"]["kernel"] == P(None, None, "model", "fsdp")
    assert block["conv3"]["kernel"] == P(None, None, None, "fsdp")
    assert block["norm1"]["scale"] == P("model")
    assert block["norm2"]["scale"] == block["norm3"]["scale"] == P(None)
    assert specs.params["head"]["linear"]["kernel"] == P("fsdp", "model")
    moments = specs.opt_state[0].mu["stage2_block2"]
    assert moments == block
    statistics = specs.model_state["stage2_block2"]
    assert statistics["norm1"]["mean"] == P(("data", "fsdp"), "model")
    assert statistics["norm2"]["mean"] == P(("data", "fsdp"), None)


def state_of(params: Any, tx: Any, **fields: Any) -> TrainState:
    opt_state = jax.eval_shape(tx.init, params)
    given = {
        "step": jax.ShapeDtypeStruct((), "i4"),
        "model_state": {},
        "extras": {},
        "opt_state": opt_state,
    }
    return TrainState(**given | {"params": params} | fields)


class Stats(nnx.Module):
    """Has statistics of groups, and other state of two dims."""

    def __init__(self) -> None:
        self.mean = GroupStat(jnp.zeros((4, 8)))
        self.largest = nnx.BatchStat(jnp.zeros((64, 64)))


def test_other_state_of_two_dims_is_whole():
    mesh = mesh_of(data=4)
    kinds = {"average": {"model_state": "model_state"}}
    rules = Layout(mesh, make_specs(Stats(), mesh.shape), sharded_as=kinds)
    tree = nnx.to_pure_dict(nnx.state(Stats()))
    extras = {"average": {"model_state": tree}}
    found = rules.state(state_of({}, optax.identity(), model_state=tree, extras=extras))
    for state in (found.model_state, found.extras["average"]["model_state"]):
        assert state["mean"].spec == P(("data", "fsdp"), None)
        assert state["largest"].spec == P(None, None)


def test_moments_are_split_as_the_parameter_of_the_whole_path():
    """A layer in a block is not the layer of its name at the top of the model."""
    specs = {"conv1/kernel": P(None, "model"), "block/conv1/kernel": P("model", None)}
    kernel = {"kernel": jax.ShapeDtypeStruct((4, 4), "f4")}
    params = {"conv1": kernel, "block": {"conv1": kernel, "conv2": kernel}}
    state = state_of(params, ADAMW, extras={"other": {"conv1": kernel}})
    found = Layout(mesh_of(model=2), specs, optimizer=ADAMW).state(state)
    moments = found.opt_state[0].mu
    assert moments["conv1"]["kernel"].spec == P(None, "model")
    assert moments["block"]["conv1"]["kernel"].spec == P("model", None)
    assert moments["block"]["conv2"]["kernel"].spec == P(None, None)
    # What no transform declares is replicated, whatever its path.
    assert found.extras["other"]["conv1"]["kernel"].spec == P(None, None)


def test_state_of_an_optimizer_may_have_other_shapes_than_the_parameters():
    kernel, bias = (jax.ShapeDtypeStruct(shape, "f4") for shape in ((64, 64), (64,)))
    params = {"kernel": kernel, "bias": bias}
    specs = {"kernel": P("fsdp", "model"), "bias": P("model")}

    def placed(tx: Any) -> Any:
        layout = Layout(mesh_of(fsdp=2, model=2), specs, optimizer=tx)
        state = state_of(params, tx)
        found = layout.state(state).opt_state
        jax.tree.map(lambda x, s: s.shard_shape(x.shape), state.opt_state, found)
        return jax.tree.map(lambda s: s.spec, found)

    memory = placed(make_optimizer(LBFGSConfig(), None))[0]
    assert memory.diff_params_memory["kernel"] == P(None, "fsdp", "model")
    assert memory.diff_params_memory["bias"] == P(None, "model")
    factored = placed(optax.adafactor(0.1, min_dim_size_to_factor=8))[0]
    assert factored.v_row == {"kernel": P(None), "bias": P(None)}
    assert factored.v["bias"] == P("model")


@pytest.mark.slow
@each_row(
    ("size", "names"),
    [
        (2, ["stem_conv", "stage*_block*/conv3", "stage*_block*/shortcut_conv"]),
        # Does not divide the 1,000 outputs.
        (16, ["stem_conv", "stage*_block*/conv3", "stage*_block*/shortcut_conv"]),
        (3, []),
    ],
)
def test_layers_left_whole_are_named(size: int, names: list[str]):
    state = abstract_state(SGD)
    placed = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        state.params,
        layout(tx=SGD, model=size).state(state).params,
    )
    assert sorted(whole_layers(placed)) == sorted(names)


TINY = recipe(
    model='ConvNetConfig(name="convnet", width=0.125)', train="TrainConfig(steps=2)"
)
BAD_INPUT = {
    "batch": (
        "--data.batch-size 60",
        ["data.batch_size = 60", "divisible by 8", "use 56 or 64"],
    ),
    "groups over devices": (
        "--parallel.batch-norm 16",
        [
            "parallel.batch_norm = 16",
            "64 examples into 4 groups",
            "8 devices",
            "set parallel.batch_norm to 8, to a divisor of 8",
        ],
    ),
    "group": ("--parallel.batch-norm 7", ["parallel.batch_norm = 7", "64 examples"]),
    "rows of an image": (
        "--parallel.data 1 --parallel.spatial 8",
        ["image height = 8", "divisible by 32", "stride of 4", "use 32"],
    ),
    "one row a device": (
        "--model.name resnet18 --model.stem cifar --data.image-size 16 "
        "--parallel.data -1 --parallel.spatial 2",
        ["image height = 16", "parallel.spatial = 2", "at least 2 rows", "32 pixels"],
    ),
    "channels": (
        "--parallel.data 1 --parallel.model 8 --model.width 0.11",
        ["parallel.model = 8", "no layer of convnet"],
    ),
    "channels and rows": (
        "--parallel.data -1 --parallel.model 2 --parallel.spatial 2",
        ["parallel.model = 2", "parallel.spatial = 2", "one of the two axes to 1"],
    ),
    "sums of parts": (
        "--precision bf16 --parallel.data 4 --parallel.spatial 2 "
        "--parallel.reduce-dtype float32",
        ["parallel.reduce_dtype", "float32", "parallel.spatial = 2", "bfloat16"],
    ),
    "product": (
        "--parallel.model 2 --parallel.data 2",
        ["parallel.data = 2 x parallel.model = 2", "8 devices"],
    ),
}


@pytest.mark.slow
@each_row("name", BAD_INPUT)
def test_bad_input(cli: Cli, write_config, name: str):
    words, named = BAD_INPUT[name]
    config = write_config(TINY)
    result = cli("--config", config, *words.split(), JAX_NUM_CPU_DEVICES="8")
    assert result.code == 2, result.stderr
    assert all(text in result.stderr for text in named), result.stderr
    assert "Traceback" not in result.stderr
