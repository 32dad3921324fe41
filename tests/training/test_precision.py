"""Precision: policies, and the loss scale against jmp's."""

import re
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import jmp
import numpy as np
import pytest

from jaxtrain.cli import main
from jaxtrain.config import Config, ConvNetConfig, DataConfig, MuonConfig
from jaxtrain.errors import UserError
from jaxtrain.trainer.setup import build_setup
from jaxtrain.training.precision import parse
from jaxtrain.training.state import GUARD, TrainState, with_extra
from jaxtrain.training.transforms import guard
from jaxtrain.training.transforms.base import StepContext
from jaxtrain.training.transforms.guard import Guard, adjust_scale
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_summary

LossScale = dict[str, jax.Array]
F32, BF16, F16 = jnp.float32, jnp.bfloat16, jnp.float16


@each_row(
    ("text", "params", "compute", "output"),
    [
        ("fp32", F32, F32, F32),
        ("tf32", F32, F32, F32),
        ("bf16", F32, BF16, F32),
        ("fp16", F32, F16, F32),
        ("pure_bf16", BF16, BF16, F32),
        ("params=bfloat16,compute=float32,output=float16", BF16, F32, F16),
        ("compute=bfloat16,output=float32", F32, BF16, F32),
    ],
)
def test_parse(text: str, params: object, compute: object, output: object) -> None:
    policy = parse(text)
    dtypes = policy.param_dtype, policy.compute_dtype, policy.output_dtype
    assert dtypes == (params, compute, output)
    if text == "tf32":
        assert policy.products == "tensorfloat32"
    else:
        assert policy.products == ("float32" if compute == F32 else "default")


@pytest.mark.parametrize(
    "text", ["fp64", "params=float32,compute=float64,output=float32"]
)
def test_float64_must_be_asked_for(text: str) -> None:
    with pytest.raises(UserError, match=f"{text}.*JAX_ENABLE_X64=1"):
        parse(text)
    with jax.enable_x64(True):
        assert parse(text).compute_dtype == jnp.float64


@each_row(
    ("text", "words"),
    [
        ("fp32", "parameters float32, products float32, logits float32"),
        ("tf32", "parameters float32, products tensorfloat32, logits float32"),
        ("bf16", "parameters float32, products bfloat16, logits float32"),
        (
            "pure_bf16",
            "parameters bfloat16, updates rounded stochastically, products bfloat16, "
            "logits float32",
        ),
    ],
)
def test_policies_in_words(text: str, words: str) -> None:
    assert parse(text).describe() == words


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("text", "highest"),
    [
        ("fp32", "highest"),
        pytest.param("tf32", "high", marks=pytest.mark.slow),
        pytest.param("bf16", None, marks=pytest.mark.slow),
    ],
)
def test_products_of_a_step_have_the_precision_named(
    text: str, highest: str | None
) -> None:
    """By default a GPU from Ampere on computes float32 products in TensorFloat-32."""
    from jaxtrain.plugins.plan.measure import compile_step

    config = Config(
        precision=text,
        data=DataConfig(source="synthetic:8x8x1/4", batch_size=8),
        model=ConvNetConfig(name="convnet", width=0.05),
        optimizer=MuonConfig(learning_rate=0.1),
    )
    program = compile_step(build_setup(config)).as_text() or ""
    lines = [x for x in program.splitlines() if " convolution(" in x or " dot(" in x]
    assert len(lines) > 10
    found = {m[1] for x in lines for m in re.finditer(r"precision={(.*?)}", x)}
    assert found == ({f"{highest},{highest}"} if highest else set()), lines
    assert all("precision=" in line for line in lines) or not highest


@each_row(
    "text",
    [
        "",
        "fp8",
        "params=float33",
        "weights=float32",
        "params=float32,compute",
        "params=float32=float32",
    ],
)
def test_parse_names_what_it_knows(text: str) -> None:
    with pytest.raises(UserError) as raised:
        parse(text)
    assert str(raised.value).startswith(f"precision = {text!r}: ")
    expected = "fp64 or params=DTYPE,compute=DTYPE,output=DTYPE"
    assert str(raised.value).endswith(f"pure_bf16, {expected}")


@each_row(
    ("text", "scaled"),
    [
        ("pure_bf16", False),
        ("fp16", True),
        ("params=float16,compute=float32,output=float32", True),
        ("params=float32,compute=float32,output=float16", True),
    ],
)
def test_float16_has_a_loss_scale(text: str, scaled: bool) -> None:
    extra = Guard(parse(text).scales_loss).init({}, {})
    counts = dict.fromkeys(("in_a_row", "total"), (jnp.int32, (), 0))
    scale = {"scale": (F32, (), 2**15), "good_steps": (jnp.int32, (), 0)}
    found = {k: (v.dtype, v.shape, int(v)) for k, v in extra.items()}
    assert found == (counts | scale if scaled else counts)


@pytest.fixture
def x64() -> Iterator[None]:
    """In all threads, as by the variable of the environment."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_a_run_where_jax_may_compute_in_float64(tmp_path: Path) -> None:
    """It trains, evaluates, saves and goes on, in the dtypes that the policy says."""
    config = write_recipe(tmp_path / "recipe.py", recipe())
    words = ["--config", str(config), "--workdir", str(tmp_path / "run")]
    words += ["--precision", "fp16", "--train.steps", "4"]
    assert main([*words, "--train.stop-after-steps", "2"]) == 0
    assert main(words) == 0
    assert read_summary(tmp_path / "run")["eval"]["num_examples"] == 360


def trajectory(finite: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scale and the good steps after each step, computed in one scan."""

    def body(state: LossScale, finite: jax.Array) -> tuple[LossScale, LossScale]:
        state = adjust_scale(**state, finite=finite)
        return state, state

    start = {"scale": jnp.float32(2**15), "good_steps": jnp.int32(0)}
    _, states = jax.lax.scan(body, start, jnp.asarray(finite))
    return np.array(states["scale"]), np.array(states["good_steps"])


@pytest.mark.parametrize(
    ("period", "num_steps", "bad_fraction"),
    # Fractions at which growth and shrinking are about even: as often one bad step as
    # one period without any. Of the last, more bad ones, to reach the minimum.
    [(2000, 60_000, 1 / 2900), (1, 2000, 0.5), (3, 2000, 0.2), (3, 2000, 0.5)],
)
def test_loss_scale_equals_jmp(
    period: int, num_steps: int, bad_fraction: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "GROWTH_PERIOD", period)
    # jmp has no maximum; here it must not come into play.
    monkeypatch.setattr(guard, "MAX_SCALE", jnp.inf)
    finite = np.random.default_rng(period).random(num_steps) >= bad_fraction
    scale, good_steps = trajectory(finite)

    def body(
        state: jmp.DynamicLossScale, finite: jax.Array
    ) -> tuple[jmp.DynamicLossScale, tuple[jax.Array, jax.Array]]:
        state = state.adjust(finite)
        return state, (state.loss_scale, state.counter)

    start = jmp.DynamicLossScale(
        jnp.float32(2**15), jnp.zeros((), jnp.int32), period=period
    )
    _, expected = jax.lax.scan(body, start, jnp.asarray(finite))
    np.testing.assert_array_equal(scale, expected[0])
    np.testing.assert_array_equal(good_steps, expected[1])
    ratios = set((scale[1:] / scale[:-1]).tolist())
    # Both ways were taken; with a period of 1 no step leaves it as it is.
    assert ratios - {1.0} == {0.5, 2.0}


def test_loss_scale_has_bounds() -> None:
    bad = np.zeros(20, bool)
    scale, _ = trajectory(bad)
    np.testing.assert_array_equal(scale, [max(1, 2 ** (14 - k)) for k in range(20)])
    scale, good_steps = trajectory(np.ones(2000 * 12, bool))
    ends = range(1999, 2000 * 12, 2000)
    assert scale[1998] == 2**15
    np.testing.assert_array_equal(
        scale[ends], [min(2**24, 2 ** (16 + k)) for k in range(12)]
    )
    np.testing.assert_array_equal(good_steps[ends], 0)


def test_an_overflow_is_in_a_row_at_the_smallest_scale_alone() -> None:
    one = Guard(scales=True)

    def after(scale: float) -> int:
        extra = {**one.init({}, {}), "scale": jnp.float32(scale)}
        state = TrainState(
            step=jnp.int32(0), params={}, model_state={}, opt_state={}, extras={}
        )
        state = with_extra(state, GUARD, extra)
        no, zero = jnp.array(False), jnp.int32(0)
        context = StepContext(
            loss=jnp.float32(1),
            finite=no,
            taken=no,
            steps_taken=zero,
            learning_rate=None,
        )
        return int(one.after(state, state, context)[1]["bad_steps"])

    assert (after(2), after(1)) == (0, 1)
