"""Loss spikes: the limit as numbers, and what the step does above it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.config import SGDConfig, TrainConfig
from jaxtrain.errors import UserError
from jaxtrain.training.state import with_extra
from jaxtrain.training.transforms.spikes import SpikeDetector
from tests.helpers.numerics import same
from tests.helpers.rows import each_row
from tests.helpers.trial import IMAGES, LABELS, Trial

RNG = np.random.default_rng(0)


def limits(losses: np.ndarray, sigma: float = 4.0, window: int = 40) -> np.ndarray:
    """Return the limit before each loss."""
    detector = SpikeDetector(sigma=sigma, window=window)

    def body(stats, loss):
        return detector.follow(stats, loss), stats["limit"]

    found = jax.lax.scan(body, detector.create(), jnp.asarray(losses, jnp.float32))[1]
    return np.asarray(found)


def spikes(losses: np.ndarray, sigma: float = 4.0, window: int = 40) -> list[int]:
    return np.flatnonzero(losses > limits(losses, sigma, window)).tolist()


def test_limit_is_of_the_plain_mean_until_half_the_window_is_full():
    losses = RNG.normal(2.0, 0.1, 21).astype(np.float32)
    found = limits(losses)
    assert np.isinf(found[:20]).all()
    expected = losses[:20].mean() + 4 * losses[:20].std()
    np.testing.assert_allclose(found[20], expected, rtol=1e-5)


def test_then_the_weights_fall_by_the_window():
    losses = RNG.normal(2.0, 0.1, 300)
    ages = np.arange(300)[::-1]
    weights = (1 - 2 / 41) ** ages
    weights /= weights.sum()
    mean = weights @ losses
    deviation = np.sqrt(weights @ (losses - mean) ** 2)
    found = limits(np.append(losses, 0), sigma=10.0)[-1]
    np.testing.assert_allclose(found, mean + 10 * deviation, rtol=1e-3)
    # As old in the mean as a window of 40.
    np.testing.assert_allclose(weights @ ages, 39 / 2, rtol=1e-3)


def test_one_spike_is_found_and_hardly_moves_the_limit():
    losses = RNG.normal(2.0, 0.1, 200)
    assert spikes(losses) == []
    losses[150] = 10.0
    assert spikes(losses) == [150]
    before, after = limits(losses)[[150, 151]]
    assert before < after < before + 0.2


def test_falling_loss_is_no_spike_and_a_spike_after_the_fall_is_found():
    losses = 0.3 + 4 * np.exp(-np.arange(400) / 60) + RNG.normal(0, 0.05, 400)
    assert spikes(losses) == []
    losses[380] = 1.5
    assert spikes(losses) == [380]


def test_loss_that_stays_higher_is_accepted():
    losses = np.r_[RNG.normal(1.0, 0.05, 100), RNG.normal(2.0, 0.05, 100)]
    found = spikes(losses)
    assert found == list(range(100, 100 + len(found)))
    assert 2 < len(found) < 20


def test_loss_that_never_changes_has_room_for_rounding():
    losses = np.full(100, 2.0)
    losses[60:] += 1e-6
    assert spikes(losses) == []
    losses[80] = 2.1
    assert spikes(losses) == [80]


@pytest.mark.slow
def test_step_with_a_spike_is_skipped():
    trial = Trial(
        name="cnn4",  # Without batch norm, larger images give a larger loss.
        policy="fp16",
        optimizer=SGDConfig(learning_rate=1e-4),
        ema_decay=0.9,
        spike_sigma=6.0,
    )
    # A scale at which larger gradients do not overflow.
    scale = {"scale": jnp.float32(2), "good_steps": jnp.int32(0)}
    guard = {**trial.state.extras["guard"], **scale}
    trial.state = with_extra(trial.state, "guard", guard)
    for i in range(8):
        metrics = trial(IMAGES[i : i + 1], LABELS[i : i + 1])
        assert (metrics["spike"][0], metrics["skipped"][0]) == (0, 0)
        assert np.isinf(metrics["loss_limit"][0]) == (i < 5)
    before = trial.state
    metrics = trial(IMAGES[:1] * 10, LABELS[:1])
    after = trial.state
    assert metrics["loss"][0] > metrics["loss_limit"][0]
    assert (metrics["spike"][0], metrics["skipped"][0]) == (1, 1)
    assert metrics["bad_steps"][0] == after.skipped_steps == 1
    for name in ("params", "opt_state", "eval_params"):
        assert same(getattr(after, name), getattr(before, name)), name
    # The scale is not to blame.
    assert after.extras["guard"]["scale"] == before.extras["guard"]["scale"]


@pytest.mark.slow
def test_step_that_is_not_finite_is_no_spike_and_no_history():
    trial = Trial(spike_sigma=6.0)
    trial(IMAGES[:1], LABELS[:1])
    before = trial.state.extras["spikes"]
    metrics = trial(IMAGES[6:7] * np.inf, LABELS[6:7])
    assert (metrics["spike"][0], metrics["skipped"][0]) == (0, 1)
    assert same(trial.state.extras["spikes"], before)


def test_without_it_there_is_nothing_of_it():
    trial = Trial()
    assert "spikes" not in trial.state.extras
    assert not {"spike", "loss_limit"} & trial(IMAGES[:1], LABELS[:1]).keys()


@each_row(
    ("fields", "message"),
    [
        ({"spike_sigma": 0.0}, "spike_sigma = 0.0: expected a value above 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(fields: dict, message: str):
    with pytest.raises(UserError, match=message):
        TrainConfig(steps=1, **fields)
