"""Losses and metrics of predicted numbers against SciPy's and scikit-learn's."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats
from sklearn import metrics

from jaxtrain.config.regression import RegressionConfig
from jaxtrain.data.target_changes import Mixing
from jaxtrain.errors import UserError
from jaxtrain.tasks.number_losses import LEAST_VARIANCE
from jaxtrain.tasks.regression import Regression, make_loss
from jaxtrain.tasks.task_metrics import sums_of
from tests.helpers.facts import facts_of
from tests.helpers.rows import each_row

SHAPE, NAMES = (8, 8, 1), ("size", "age")
MEAN, STD = np.array([1e4, -3.0]), np.array([20.0, 0.5])
RNG = np.random.default_rng(0)
OUTPUTS, TARGET = RNG.normal(size=(64, 2, 3)), RNG.normal(size=(64, 2))


def task(targets: np.ndarray | None = None, **options: object) -> Regression:
    if targets is None:
        targets = MEAN + STD * TARGET
        options |= {"mean": tuple(MEAN), "std": tuple(STD)}
    facts = {"target_names": NAMES, "training_targets": lambda: targets}
    return Regression(SHAPE, facts, **options)


def losses(num_outputs: int, **options: object) -> np.ndarray:
    given = RegressionConfig(**options)  # pyright: ignore[reportArgumentType]
    loss = make_loss(given, (0.0, 0.0), (1.0, 1.0), given.levels)
    assert loss.num_outputs == num_outputs
    outputs, target = jnp.asarray(OUTPUTS[..., :num_outputs]), jnp.asarray(TARGET)
    return np.asarray(loss.losses(outputs, target))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(x))


def quantiles() -> np.ndarray:
    middle = OUTPUTS[..., 1]
    below, above = softplus(OUTPUTS[..., 0]), softplus(OUTPUTS[..., 2])
    return np.stack([middle - below, middle, middle + above], -1)


def test_losses_of_the_error_are_the_formulas():
    error = OUTPUTS[..., 0] - TARGET
    np.testing.assert_allclose(losses(1), error**2, rtol=1e-5)
    np.testing.assert_allclose(losses(1, loss="l1"), abs(error), rtol=1e-5, atol=1e-6)
    expected = special.huber(1, error)
    found = losses(1, loss="huber")
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_column_without_a_number_in_a_batch_is_no_part_of_the_mean_error():
    target = MEAN + STD * TARGET[:4]
    target[:, 1] = np.nan
    outputs = OUTPUTS[:4, :, 0]
    found = task().train_metrics(jnp.asarray(outputs), jnp.asarray(target))
    expected = abs(STD[0] * (outputs[:, 0] - TARGET[:4, 0])).mean()
    np.testing.assert_allclose(found["mae"], expected, rtol=1e-4)


def test_the_gaussian_loss_is_the_density():
    variance = softplus(OUTPUTS[..., 1]) + LEAST_VARIANCE
    density = stats.norm.logpdf(TARGET, OUTPUTS[..., 0], np.sqrt(variance))
    np.testing.assert_allclose(losses(2, loss="gaussian"), -density, rtol=1e-5)


def test_the_ordinal_loss_asks_for_each_level_that_comes_up():
    levels, expected = (-1.0, 0.0, 1.0, 2.0), np.zeros((64, 2))
    ranks = np.digitize(TARGET, (-0.5, 0.5, 1.5))
    for (row, column), rank in np.ndenumerate(ranks):
        for k, x in enumerate(OUTPUTS[row, column]):
            if k <= rank:  # Is it more than level k, of those that are at least that?
                above = special.expit(x)
                expected[row, column] -= np.log(above if rank > k else 1 - above) / 3
    found = losses(3, loss="ordinal", levels=levels)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_grade_is_the_level_that_half_of_the_probability_reaches():
    grades = np.array([1.0, 2.0, 4.0, 8.0])
    targets = np.stack([np.tile(grades, 4), np.repeat(grades, 4)], 1)
    model = task(targets, loss="ordinal")
    assert model.num_outputs == 6
    assert model.inferred["levels"] == "1.0,2.0,4.0,8.0"
    outputs = OUTPUTS.reshape(64, 6)
    reached = np.cumprod(special.expit(OUTPUTS), -1) >= 0.5
    expected = grades[reached.sum(-1)]
    options = {"loss": "ordinal", **model.inferred}
    decoder = Regression.decoder(facts_of(6, options=options, column_names=NAMES))
    assert tuple(decoder.columns()) == NAMES
    found = decoder.values(jnp.asarray(outputs))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    with pytest.raises(UserError, match="'age' is 3 for image 1: expected one of"):
        model.check_targets(np.array([[1, 2], [2, 3], [4, 8]]), "the test split")
    assert "data.augment.mixup" in model.refused
    assert "data.augment.mixup" not in Regression.refused
    with pytest.raises(UserError, match="has 128: choose another"):
        task(loss="ordinal")


def test_the_quantile_loss_is_the_mean_of_the_pinball_losses():
    parts, found = (0.1, 0.5, 0.8), quantiles()
    expected = np.mean(
        [
            metrics.mean_pinball_loss(TARGET.ravel(), found[..., i].ravel(), alpha=part)
            for i, part in enumerate(parts)
        ]
    )
    ours = losses(3, loss="quantiles", quantiles=parts)
    np.testing.assert_allclose(ours.mean(), expected, rtol=1e-5)


def test_quantiles_never_cross_and_five_have_the_median_in_their_middle():
    given = RegressionConfig(loss="quantiles", quantiles=(0.05, 0.2, 0.5, 0.8, 0.95))
    loss = make_loss(given, (0.0, 0.0), (1.0, 1.0), None)
    outputs = jnp.asarray(5 * RNG.normal(size=(32, 2, 5)))
    low, second, fourth, high = loss.extras(outputs)
    rising = [low, second, loss.prediction(outputs), fourth, high]
    assert (np.diff(np.stack(rising), axis=0) > 0).all()
    np.testing.assert_array_equal(loss.prediction(outputs), outputs[..., 2])
    assert loss.endings == ("_q5", "_q20", "_q80", "_q95")


def values_of(one: Regression, outputs: np.ndarray, target: np.ndarray) -> dict:
    """Return the metrics of an evaluation in two batches, the second with padding."""
    total = None
    for part, mask in ((slice(0, 40), np.ones(40)), (slice(24, 64), np.ones(40))):
        if part.start:
            mask[:16] = 0
        batch = {"target": jnp.asarray(target[part], jnp.float32)}
        rows = jnp.asarray(outputs[part].reshape(40, -1), jnp.float32)
        found = sums_of(one, rows, one.target(batch), jnp.asarray(mask))
        found = {name: np.asarray(x) for name, x in found.items()}
        total = found if total is None else {n: total[n] + found[n] for n in found}
    assert total is not None
    return one.values(total)


@each_row("missing", [False, True])
def test_metrics_are_those_of_scikit_learn_in_the_units_of_the_data(missing: bool):
    target = (MEAN + STD * TARGET).astype(np.float32).astype(np.float64)
    if missing:
        target[RNG.random(target.shape) < 0.3] = np.nan
    predicted = MEAN + STD * OUTPUTS[..., 0]
    found = values_of(task(), OUTPUTS[..., 0], target)
    expected = {"mae": [], "rmse": [], "r2": []}
    for true, ours in zip(target.T, predicted.T, strict=True):
        pair = true[~np.isnan(true)], ours[~np.isnan(true)]
        expected["mae"].append(metrics.mean_absolute_error(*pair))
        expected["rmse"].append(metrics.root_mean_squared_error(*pair))
        expected["r2"].append(metrics.r2_score(*pair))
    for name, values in expected.items():
        # Targets of 10,000 in float32 are off by 0.0005, 2e-5 of their deviation.
        np.testing.assert_allclose(found[name], np.mean(values), rtol=1e-4)
        np.testing.assert_allclose(found[f"{name}_of_columns"], values, rtol=1e-4)
    assert found["num_examples"] == (~np.isnan(target)).any(1).sum()
    if not missing:
        assert "coverage" not in found
        uniform = metrics.r2_score(target, predicted, multioutput="uniform_average")
        np.testing.assert_allclose(found["r2"], uniform, rtol=1e-4)


def test_coverage_counts_what_lies_in_the_interval():
    target = MEAN + STD * TARGET
    found = values_of(task(loss="quantiles"), OUTPUTS, target)
    low, _, high = np.moveaxis(quantiles(), -1, 0)
    expected = ((low <= TARGET) & (high >= TARGET)).mean(0)
    np.testing.assert_allclose(found["coverage_of_columns"], expected, atol=0.016)
    normal = OUTPUTS[..., :2]
    found = values_of(task(loss="gaussian", level=0.5), normal, target)
    variance = softplus(normal[..., 1]) + LEAST_VARIANCE
    low, high = stats.norm.interval(0.5, normal[..., 0], np.sqrt(variance))
    expected = ((low <= TARGET) & (high >= TARGET)).mean()
    np.testing.assert_allclose(found["coverage"], expected, atol=0.016)


def test_missing_numbers_are_left_out_of_loss_and_gradient():
    import jax

    one = task(loss="gaussian")
    target = (MEAN + STD * TARGET).astype(np.float32)
    holes = target.copy()
    holes[0, 1] = holes[1] = np.nan
    rows = jnp.asarray(OUTPUTS[..., :2].reshape(64, 4), jnp.float32)

    def loss(rows: jax.Array, target: np.ndarray) -> jax.Array:
        learnt = one.target({"target": jnp.asarray(target)})
        return one.loss(rows, learnt, training=True)

    whole, found = loss(rows, target), loss(rows, holes)
    of_first = one.loss(
        rows, jnp.asarray(target) * jnp.array([1, jnp.nan]), training=True
    )
    assert found[1] == 0 and found[0] == of_first[0] != whole[0]
    np.testing.assert_array_equal(found[2:], whole[2:])
    grads = np.asarray(jax.grad(lambda x: loss(x, holes).sum())(rows))
    assert np.isfinite(grads).all()
    assert not grads[1].any() and not grads[0, 2:].any() and grads[0, :2].all()


def test_what_people_get_has_the_units_of_the_data():
    rows = jnp.asarray(OUTPUTS.reshape(64, 6), jnp.float32)
    one = task(loss="quantiles")
    options = {"loss": "quantiles", "mean": "10000.0,-3.0", "std": "20.0,0.5"}
    decoder = Regression.decoder(facts_of(6, options=options, column_names=NAMES))
    assert decoder.exported(probabilities=True, nms=False).name == "values"
    assert tuple(decoder.columns()) == (
        *("size", "size_q5", "size_q95"),
        *("age", "age_q5", "age_q95"),
    )
    low, middle, high = np.moveaxis(quantiles(), -1, 0)
    ordered = np.stack([middle, low, high], -1)
    expected = MEAN[:, None] + STD[:, None] * ordered
    np.testing.assert_allclose(decoder.values(rows), expected.reshape(64, 6), rtol=1e-5)
    drawn = one.draw_example(np.zeros(SHAPE), MEAN, np.asarray(rows[0]))
    assert drawn["target"] == "size 10000, age -3"
    options = {**options, "loss": "gaussian"}
    gaussian = Regression.decoder(facts_of(4, options=options, column_names=NAMES))
    assert tuple(gaussian.columns())[1] == "size_std"
    deviation = np.sqrt(softplus(OUTPUTS[:, 0, 1]) + LEAST_VARIANCE)
    found = gaussian.values(jnp.asarray(OUTPUTS[..., :2].reshape(64, 4)))[:, 1]
    np.testing.assert_allclose(found, 20 * deviation, rtol=1e-5)


def test_mean_and_deviation_are_those_of_the_numbers_there_are():
    targets = MEAN + STD * TARGET
    targets[::3, 0] = np.nan
    one = task(targets)
    mean, std = (
        [float(x) for x in one.inferred[name].split(",")] for name in ("mean", "std")
    )
    np.testing.assert_allclose(mean, np.nanmean(targets, 0), rtol=1e-14)
    np.testing.assert_allclose(std, np.nanstd(targets, 0), rtol=1e-12)
    again = task(targets, mean=tuple(mean), std=tuple(std))
    assert not again.inferred and again.column_names == NAMES


@each_row("targets", [{"x": np.ones(4)}, np.ones((4, 2, 2)), np.array(["a", "b"])])
def test_targets_that_are_no_numbers(targets: Any):
    with pytest.raises(UserError, match=r"expected numbers .*; choose another task"):
        Regression(SHAPE, {"training_targets": lambda: targets})


def test_mixed_targets_are_means_by_their_shares():
    target = jnp.asarray([[1.0, jnp.nan], [3.0, 2.0]])
    pair = target, target[::-1]
    mixed = task().transform_target(pair, Mixing(jnp.array([0.25, 0.75])))
    np.testing.assert_allclose(mixed, [[2.5, np.nan], [2.5, np.nan]])
    # An example that is mixed with none of another keeps all its numbers.
    alone = task().transform_target(pair, Mixing(jnp.ones(2)))
    np.testing.assert_array_equal(alone, target)


@each_row(
    ("targets", "options", "message"),
    [
        (np.array([[1, 2.0], [1, 3]]), {}, "'size' is constant, 1 in all 2 training"),
        (np.array([[np.nan, 2.0], [np.nan, 3]]), {}, "column 'size' is empty"),
        (np.array([[0, np.inf], [1, 3]]), {}, "column 'age' is inf for 1 example"),
        (np.eye(2), {"level": 0.8}, "level = 0.8 has no effect with task.loss = 'mse'"),
        (np.eye(2), {"loss": "gaussian", "level": 1.0}, "level = 1.0: expected"),
        (np.eye(2), {"mean": (1.0, 2.0)}, "give both or neither"),
        (np.eye(2), {"mean": (1.0,), "std": (1.0,)}, "1 value, but the data set has 2"),
        (np.eye(2), {"loss": "quantiles", "quantiles": (0.1, 0.5)}, "three or more"),
        (
            np.eye(2),
            {"loss": "quantiles", "quantiles": (0.5, 0.1, 0.9)},
            "increasing values between 0 and 1, with 0.5 in the middle",
        ),
    ],
)
def test_what_cannot_be_learnt_is_refused(
    targets: np.ndarray, options: dict, message: str
):
    with pytest.raises(UserError, match=None) as error:
        task(targets, **options)
    assert message in str(error.value)


@each_row(
    ("facts", "message"),
    [
        ({"num_classes": 3}, "the targets of the data set are classes"),
        ({"target_names": ("a", "a_std")}, "'a_std' duplicates a column"),
        ({"target_names": ("a", "error")}, "'error' duplicates a column"),
    ],
)
def test_names_that_people_could_not_tell_apart_are_refused(facts: dict, message: str):
    facts = {**facts, "training_targets": lambda: np.eye(2)}
    with pytest.raises(UserError) as error:
        Regression(SHAPE, facts, loss="gaussian")
    assert message in str(error.value)
