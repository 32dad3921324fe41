"""Schedules as numbers: against closed formulas at every step, and known values."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.errors import UserError
from jaxtrain.training import SCHEDULES
from jaxtrain.training.schedules import make_schedule
from tests.helpers.parts import optimizer_config
from tests.helpers.rows import each_row

PEAK, TOTAL, WARMUP = 0.4, 40, 8
Formula = Callable[[float], float]

# Schedule, its options, and the factor on the peak as a function of the fraction of the
# run after the warm-up that is done, in [0, 1].
FORMULAS: dict[str, tuple[str, dict[str, Any], Formula]] = {
    "constant": ("constant", {}, lambda t: 1),
    "cosine": ("cosine", {}, lambda t: (1 + np.cos(np.pi * t)) / 2),
    # Evaluations reduce it (tests/training/test_averages.py).
    "plateau": ("plateau", {}, lambda t: 1),
    "linear": ("linear", {}, lambda t: 1 - t),
    "polynomial": ("polynomial", {}, lambda t: (1 - t) ** 2),
    "polynomial of 0.9 to 0.1": (
        "polynomial",
        {"power": 0.9, "end_factor": 0.1},
        lambda t: 0.1 + 0.9 * (1 - t) ** 0.9,
    ),
    "exponential": ("exponential", {}, lambda t: 0.01**t),
    "exponential to 0.5": ("exponential", {"end_factor": 0.5}, lambda t: 0.5**t),
}


def curve(
    total_steps: int = TOTAL, warmup_steps: int = 0, **options: Any
) -> tuple[np.ndarray, Callable[..., jax.Array]]:
    """Return the rate at steps 0 to total_steps + 5, compiled, and the schedule."""
    config = optimizer_config(**{"learning_rate": PEAK, **options})
    schedule = make_schedule(config, total_steps=total_steps, warmup_steps=warmup_steps)
    return np.array(jax.jit(jax.vmap(schedule))(jnp.arange(total_steps + 6))), schedule


def assert_close(actual: Any, expected: Any) -> None:
    # A few float32 roundings, relative to the value or, near a cosine's zero, the peak.
    np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=2e-7 * PEAK)


@each_row("warmup_steps", [0, WARMUP])
@each_row("case", FORMULAS)
def test_follows_formula_after_warm_up(case: str, warmup_steps: int) -> None:
    name, options, formula = FORMULAS[case]
    rates, _ = curve(warmup_steps=warmup_steps, schedule=name, **options)
    for step, rate in enumerate(rates):
        done = min(1, (step - warmup_steps) / (TOTAL - warmup_steps))
        factor = step / warmup_steps if step < warmup_steps else formula(done)
        assert_close(rate, PEAK * factor)


@each_row("name", SCHEDULES)
def test_takes_python_and_traced_steps_and_returns_float32(name: str) -> None:
    rates, schedule = curve(warmup_steps=WARMUP, schedule=name)
    for step in (0, 1, WARMUP - 1, WARMUP, WARMUP + 1, TOTAL // 2, TOTAL - 1, TOTAL):
        rate = schedule(step)
        assert (rate.shape, rate.dtype, rate.weak_type) == ((), jnp.float32, False)
        assert_close(rate, rates[step])
    assert len(set(rates[TOTAL:].tolist())) == 1, "stays where it ended"


def test_every_schedule_is_tested() -> None:
    others = {"step", "one_cycle", "cosine_restarts", "warmup_stable_decay"}
    assert {name for name, *_ in FORMULAS.values()} | others == set(SCHEDULES)


@each_row("name", [name for name in SCHEDULES if name != "one_cycle"])
def test_warm_up_rises_from_a_fraction_of_the_peak(name: str) -> None:
    options = {"schedule": name, "warmup_steps": WARMUP, "warmup_epochs": 1}
    rates, _ = curve(**options, warmup_factor=0.25)
    rise = [0.25 + 0.75 * step / WARMUP for step in range(WARMUP)]
    assert_close(rates[:WARMUP], PEAK * np.array(rise))
    assert_close(rates[WARMUP:], curve(**options)[0][WARMUP:])


@pytest.mark.parametrize(
    ("cycles", "starts"),
    [
        # 32 steps after the warm-up.
        (4, [8, 16, 24, 32, 40]),
        (3, [8, 19, 29, 40]),
        (2, [8, 24, 40]),
    ],
)
def test_cosine_restarts_at_the_peak(cycles: int, starts: list[int]) -> None:
    rates, _ = curve(
        warmup_steps=WARMUP,
        schedule="cosine_restarts",
        cycles=cycles,
        end_factor=0.1,
    )
    for start, end in itertools.pairwise(starts):
        for step in range(start, end):
            done = (step - start) / (end - start)
            factor = 0.1 + 0.9 * (1 + np.cos(np.pi * done)) / 2
            assert_close(rates[step], PEAK * factor)
    assert_close(rates[TOTAL:], [PEAK * 0.1] * 6)


def test_warmup_stable_decay_stays_and_then_falls_linearly() -> None:
    options = {"schedule": "warmup_stable_decay", "warmup_steps": WARMUP}
    rise, stable = [0.05 * step for step in range(WARMUP)], [0.4] * 24
    # 8 of 40 steps.
    fall = [0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05]
    assert_close(curve(**options)[0], rise + stable + fall + [0] * 6)
    rates, _ = curve(**options, decay_fraction=0.8, end_factor=0.5)
    assert_close(rates[WARMUP:], np.maximum(0.2, 0.4 - 0.2 / 32 * np.arange(38)))


def test_step_drops_at_equal_intervals_of_the_whole_run() -> None:
    options = {"schedule": "step", "every": 0.125, "factor": 0.5}
    # Every 5 steps; the drop at step 5 comes at the end of the warm-up.
    rates, _ = curve(warmup_steps=WARMUP, **options)
    rise = [0.05 * step for step in range(WARMUP)]
    falls = [0.4 * 0.5 ** (step // 5) for step in range(WARMUP, TOTAL)]
    assert_close(rates, rise + falls + [0.4 * 0.5**8] * 6)
    # To the nearest step: 0.13 * 40 = 5.2.
    assert_close(
        curve(**{**options, "every": 0.13})[0][[4, 5, 39]] / 0.4, [1, 0.5, 0.5**7]
    )
    # In a short run a step has several drops, here 4.
    short = curve(**{**options, "every": 1 / 160})[0]
    assert_close(short[:4] / 0.4, 0.5 ** (4 * np.arange(4)))


def test_step_drops_at_fractions_of_the_whole_run() -> None:
    rates, _ = curve(warmup_steps=WARMUP, schedule="step")
    warm_up = [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35]
    assert_close(rates, warm_up + [0.4] * 12 + [0.04] * 10 + [0.004] * 16)


def test_step_options_and_rounding() -> None:
    options = {"schedule": "step", "factor": 0.5}
    # round(0.37 * 10) = 4 and round(0.9 * 10) = 9.
    rates, _ = curve(10, milestones=(0.37, 0.9), **options)
    assert_close(rates, [0.4] * 4 + [0.2] * 5 + [0.1] * 7)
    # Milestones that round to the same step both count.
    rates, _ = curve(4, milestones=(0.5, 0.51), **options)
    assert_close(rates, [0.4] * 2 + [0.1] * 8)
    assert_close(curve(4, milestones=(), **options)[0], [0.4] * 10)
    # A run of one step, as in a smoke test.
    assert_close(curve(1, schedule="step")[0][1], 0.004)


@pytest.mark.parametrize(
    ("warmup_steps", "rise"), [(0, 12), (WARMUP, WARMUP)], ids=["30 %", "warm-up"]
)
def test_one_cycle_rises_and_falls_along_cosines(warmup_steps: int, rise: int) -> None:
    rates, _ = curve(warmup_steps=warmup_steps, schedule="one_cycle", end_factor=0.05)
    start, end = PEAK / 25, PEAK * 0.05
    for step, rate in enumerate(rates):
        if step < rise:
            low, done = start, 1 - step / rise
        else:
            low, done = end, min(1, (step - rise) / (TOTAL - rise))
        assert_close(rate, low + (PEAK - low) * (1 + np.cos(np.pi * done)) / 2)
    assert_close(rates[[0, rise, TOTAL]], [0.016, 0.4, 0.02])
    assert_close(curve(schedule="one_cycle")[0][TOTAL], 4e-5)


@each_row(
    ("options", "message"),
    [
        ({"schedule": "cosin"}, "'cosin'.*meant cosine.*constant, cosine, .*linear"),
        (
            {"schedule": "zzz"},
            "'zzz': expected constant, .*, plateau, or path/to/file.py:name",
        ),
        ({"learning_rate": None}, "learning_rate is not set"),
        ({"end_factor": 0.1}, "takes .*, not 'end_factor'"),
        (
            {"schedule": "step", "end_factor": 0.0},
            "takes .*, not 'end_factor'",
        ),
        ({"schedule": "cosine", "milestones": (0.5,)}, "takes .*, not 'milestones'"),
        ({"schedule": "cosine_restarts", "cycles": 1}, "cycles = 1: expected 2 to 100"),
        ({"schedule": "cosine_restarts", "cycles": 41}, "41: .* 40 steps .* fewer"),
        (
            {
                "schedule": "warmup_stable_decay",
                "decay_fraction": 0.9,
                "warmup_steps": 8,
            },
            "decay_fraction = 0.9: the decay starts at step 4, within the warm-up of 8",
        ),
        (
            {"schedule": "step", "every": 0.5, "milestones": (0.5,)},
            "give one of them",
        ),
        ({"warmup_factor": 0.1}, "warmup_factor = 0.1 .* without optimizer.warm"),
        (
            {"schedule": "one_cycle", "warmup_factor": 0.1, "warmup_epochs": 1},
            "takes .*, not 'warmup_factor'",
        ),
        ({"schedule": "exponential", "end_factor": 0.0}, "end_factor = 0.* above 0"),
        ({"warmup_steps": 40}, "40 steps must be shorter than the run of 40 steps"),
        (
            {"schedule": "step", "milestones": (0.1, 0.5), "warmup_steps": 8},
            r"\(0.1, 0.5\): the first is step 4, within the warm-up of 8 steps",
        ),
    ],
)
def test_user_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        curve(**options)
