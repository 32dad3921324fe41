"""Sharding annotations of plain modules: what they split, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import AbstractMesh, PartitionSpec as P

import jaxtrain
from jaxtrain.config import MESH_AXES
from jaxtrain.errors import UserError
from jaxtrain.models.annotations import (
    annotated_specs,
    check_annotations,
    make_specs,
)
from jaxtrain.parallel.layout import Layout
from jaxtrain.trainer.model_checks import check_pieces
from jaxtrain.trainer.setup import make_blueprint
from jaxtrain.training import precision
from jaxtrain.training.state import TrainState, split_model
from tests.helpers.annotated import config_of
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import ROOT
from tests.helpers.rows import each_row

ADAMW = optax.adamw(1e-3)


def mesh_of(**sizes: int) -> Any:
    return AbstractMesh(tuple(sizes.get(axis, 1) for axis in MESH_AXES), MESH_AXES)


def model_of(name: str, **changes: Any) -> Any:
    config = config_of(name, **changes)
    return make_blueprint(config, precision.parse("fp32"), (8, 8, 1), 10).abstract()


@each_row(
    ("name", "expected"),
    [
        (
            "Annotated",
            {
                "conv/kernel": P(None, None, None, "fsdp"),
                "first/kernel": P("fsdp", "model"),
                "second/kernel": P("model"),
            },
        ),
        ("AnnotatedLinen", {"Dense_0/kernel": P("fsdp", None)}),
    ],
)
def test_annotations_of_nnx_and_linen_are_read(name: str, expected: dict[str, P]):
    assert annotated_specs(model_of(name)) == expected


class OneAnnotated(nnx.Module):
    """Two kernels, one of which is annotated."""

    def __init__(self) -> None:
        kernel, names = jnp.zeros((64, 128)), ("fsdp", "model")
        self.one = nnx.Param(kernel, out_sharding=names, eager_sharding=False)
        self.other = nnx.Param(kernel)


def test_the_fsdp_axis_shares_what_is_annotated_and_no_other_dim():
    mesh, model = mesh_of(fsdp=4, model=2), nnx.eval_shape(OneAnnotated)
    params, specs = split_model(model)[1], make_specs(model, mesh.shape)
    step: Any = jax.ShapeDtypeStruct((), "i4")
    state = TrainState(
        step=step,
        params=params,
        model_state={},
        opt_state=jax.eval_shape(ADAMW.init, params),
        extras={},
    )
    for shard_params in (True, False):
        layout = Layout(mesh, specs, shard_params, optimizer=ADAMW)
        found = jax.tree.map(lambda s: s.spec, layout.state(state))
        of_params = P("fsdp", "model") if shard_params else P(None, "model")
        assert found.params["one"] == of_params
        assert found.opt_state[0].mu["one"] == P("fsdp", "model")
        assert found.opt_state[0].mu["other"] == P(None, "fsdp")


def test_an_annotation_of_fewer_axes_is_of_the_first_dims():
    specs = make_specs(model_of("Annotated"), mesh_of(fsdp=4, model=2).shape)
    assert specs["second/kernel"] == P("model", None)
    # Large, but of the annotation alone; and too small for any axis.
    assert specs["first/kernel"] == P("fsdp", "model")
    assert specs["first/bias"] == P(None)


@each_row(
    ("axis", "sizes", "message"),
    [
        ("tensor", {}, "the mesh has no axis 'tensor', only data, fsdp, model"),
        ("data", {}, "expected each of fsdp, model at most once"),
        ("model", {}, "expected each of fsdp, model at most once"),
        ("fsdp", {"fsdp": 3}, "size 8 is not divisible by the 3 devices of axis fsdp"),
    ],
)
def test_annotations_that_do_not_fit_are_problems(
    axis: str, sizes: dict[str, int], message: str
):
    model = model_of("Annotated", model__options={"axis": axis})
    problems = [str(p) for p in check_annotations(model, mesh_of(**sizes))]
    assert any(message in problem for problem in problems), problems


def test_unknown_axes_are_refused_before_the_first_step():
    with pytest.raises(UserError, match=r"conv/kernel .* has no axis 'tensor'"):
        jaxtrain.Trainer(config_of("Annotated", model__options={"axis": "tensor"}))


def trained(
    folder: Path, name: str, preset: str, devices: int
) -> tuple[dict[str, Any], Any]:
    out = folder / f"{devices}.npz"
    words = [sys.executable, "-m", "tests.helpers.annotated", str(out), name, preset]
    env = {**os.environ, **FP64, "JAX_NUM_CPU_DEVICES": str(devices)}
    done = subprocess.run(
        words, cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), np.load(out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "preset", "layer", "spec"),
    [
        ("Annotated", "fsdp", "first", ["fsdp", "model"]),
        ("Annotated", "2d", "first", ["fsdp", "model"]),
        ("Annotated", "zero1", "first", [None, "model"]),
        ("AnnotatedLinen", "fsdp", "Dense_0", ["fsdp", None]),
    ],
)
def test_annotated_arrays_are_split_and_the_numbers_are_those_of_one_device(
    tmp_path: Path, name: str, preset: str, layer: str, spec: list[Any]
):
    specs, many = trained(tmp_path, name, preset, 4)
    assert specs[f"params/{layer}/kernel"] == spec
    moments = "fsdp", *spec[1:]
    assert specs[f"mu/{layer}/kernel"] == [*moments]
    _, one = trained(tmp_path, name, "data_parallel", 1)
    for path, x in one.items():
        np.testing.assert_allclose(many[path], x, TOLERANCE, TOLERANCE, err_msg=path)


@each_row(
    ("name", "is_refused"),
    [("Annotated", False), ("AnnotatedLinen", True)],
)
def test_the_model_axis_needs_annotations_of_nnx(name: str, is_refused: bool):
    config, mesh = config_of(name), mesh_of(model=2)
    problems = [*check_pieces(config, model_of(name), mesh)]
    assert ["parallel.model" in str(p) for p in problems] == [True] * is_refused
