"""Rematerialisation: the same training, from less memory and more computation."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from jaxtrain import own
from jaxtrain.config import (
    Config,
    CustomModelConfig,
    DataConfig,
    ModelConfig,
    ParallelConfig,
    TrainConfig,
    differences,
)
from jaxtrain.config.train import Remat
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.models.remat import compiler_options
from jaxtrain.training import precision
from jaxtrain.training.forward import apply_model
from jaxtrain.training.frozen import NOTHING, Frozen, merge
from jaxtrain.training.state import split_model
from tests.helpers.layered import by_path, layered, take_steps
from tests.helpers.numerics import TOLERANCE

POLICIES: tuple[Remat, ...] = ("block", "conv_outputs", "full")
SHAPE, OUTPUTS = (8, 8, 1), 3
VARIED = CustomModelConfig(name="tests.helpers.varied:Varied")
DEEP = CustomModelConfig(name="tests.helpers.varied:Deep")
own.allow([VARIED.name, DEEP.name])
# One rounding of float64 is 1e-16; XLA fuses some of the sums otherwise.
ROUNDING = 1e-12

# Sections of the config beside the model.
CASES: dict[str, dict[str, Any]] = {
    "accumulate": {
        "train": {"steps": 6, "accumulate_steps": 2, "steps_per_call": 2},
        "parallel": ParallelConfig(batch_norm=4),
    },
    "lbfgs": {
        "train": {"steps": 2},
        "optimizer": {"name": "lbfgs", "learning_rate": None},
        "data": DataConfig(
            source="synthetic:4x4x1/3/8", batch_size=8, validation_fraction=0.0
        ),
    },
}


def gradients(
    model: ModelConfig, remat: Remat, frozen: Frozen = NOTHING, policy: str = "fp32"
) -> Any:
    """Return `(params, state, images, key) -> ((loss, new state), gradients)`.

    And abstract arguments of it. There are two groups for batch norms.
    """
    made = Blueprint(
        config=model,
        policy=precision.parse(policy),
        image_shape=SHAPE,
        num_outputs=OUTPUTS,
        norm_groups=2,
    )
    graphdef, params, state = split_model(made.abstract())

    def loss(params: Any, rest: Any, *args: Any) -> Any:
        whole = merge(params, rest)
        outputs, new = apply_model(graphdef, whole, *args, frozen=frozen, remat=remat)
        return sum(jnp.sin(x).sum() for x in jax.tree.leaves(outputs)), new

    def graded(params: Any, *args: Any) -> Any:
        trained, rest = frozen.partition(params)
        return jax.value_and_grad(loss, has_aux=True)(trained, rest, *args)

    images = jax.ShapeDtypeStruct((4, *SHAPE), made.policy.compute_dtype)
    key = jax.eval_shape(lambda: jax.random.key(0, impl="rbg"))
    return graded, (params, state, images, key)


@functools.cache
def computed(remat: Remat, frozen: Frozen) -> dict[str, np.ndarray]:
    """Return loss, state and gradients for some weights and images."""
    with jax.enable_x64(True):
        graded, (*abstract, _) = gradients(VARIED, remat, frozen, "fp64")
        rng = np.random.default_rng(0)
        arrays = jax.tree.map(lambda x: rng.uniform(0.5, 1, x.shape), abstract)
        compiled = jax.jit(
            graded, compiler_options={"xla_backend_optimization_level": "0"}
        )
        # Of this kind keys are quicker to compile.
        return by_path(compiled(*arrays, jax.random.key(0, impl="rbg")))


@pytest.mark.parametrize(
    "remat",
    [
        POLICIES[0],
        *(pytest.param(name, marks=pytest.mark.slow) for name in POLICIES[1:]),
    ],
)
def test_loss_gradients_and_statistics_are_those_without(remat: Remat):
    """Other random masks, or statistics moved twice, would be other numbers."""
    frozen = Frozen(frozenset({"stem_norm"}))
    expected, found = (computed(name, frozen) for name in ("none", remat))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        atol = ROUNDING * np.abs(value).max()
        np.testing.assert_allclose(found[name], value, rtol=0, atol=atol)


def num_convs(jaxpr: Any) -> int:
    """Count the convolutions of a program and of those within it."""
    return sum(
        (equation.primitive is jax.lax.conv_general_dilated_p)
        + sum(map(num_convs, jaxprs_in_params(equation.params)))
        for equation in jaxpr.eqns
    )


@pytest.mark.parametrize(
    ("remat", "frozen", "expected"),
    [
        # A forward pass and two backward for each, but the gradient of the images.
        ("none", (), 8),
        ("conv_outputs", (), 8),
        ("block", (), 8 + 3),
        # The sections end behind the second convolution and the auxiliary head: to
        # begin its backward pass, one needs the input of its last block, no output.
        ("full", (), 8 + 3 + 2),
        # What is frozen in front is not computed again: nothing goes back through it.
        ("block", ("stem", "stem_norm"), 6 + 2),
    ],
)
def test_convolutions_are_computed_again(
    remat: Remat, frozen: tuple[str, ...], expected: int
):
    graded, arguments = gradients(VARIED, remat, Frozen(frozenset(frozen)))
    assert num_convs(jax.make_jaxpr(graded)(*arguments).jaxpr) == expected


def compiled(remat: Remat) -> tuple[int, int]:
    """Return the convolutions in XLA:CPU's program of a deep model, and its bytes."""
    graded, arguments = gradients(DEEP, remat)
    options: Any = {"xla_backend_optimization_level": "0"}
    options |= compiler_options(remat, "cpu") or {}
    program = jax.jit(graded).lower(*arguments).compile(options)
    plan: Any = program.memory_analysis()
    text = program.as_text()
    assert text is not None
    return text.count(" convolution("), plan.temp_size_in_bytes


@pytest.mark.slow
def test_the_compiled_program_computes_more_and_stores_less():
    """Of twelve blocks, in four sections; XLA:CPU merges nothing again."""
    plain, block, full = map(compiled, ("none", "block", "full"))
    assert (plain[0], block[0], full[0]) == (35, 35 + 12, 35 + 12 + 8)
    assert block[1] < 0.6 * plain[1] and full[1] < 0.8 * block[1]


def test_a_run_may_go_on_with_another_policy():
    one, other = (
        Config(train=TrainConfig(steps=9, remat=remat)) for remat in ("none", "full")
    )
    assert differences(one, other) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES)
def test_runs_are_those_without(case: str):
    """Accumulation, several steps a call, batch-norm groups, a line search."""
    expected, found = (
        take_steps(
            layered(
                **{
                    "model": VARIED,
                    **CASES[case],
                    "train": {**CASES[case]["train"], "remat": remat},
                }
            )
        )
        for remat in ("none", "full")
    )
    ours, theirs = by_path(found.states[-1]), by_path(expected.states[-1])
    assert ours.keys() == theirs.keys() and len(found.states) > 2
    for name, value in theirs.items():
        atol = TOLERANCE * np.abs(value).max(initial=1e-9)
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=atol, err_msg=name)
