"""Calibration and temperature against NumPy, SciPy and scikit-learn."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import sklearn.metrics

from jaxtrain.errors import UserError
from jaxtrain.evaluation import calibration
from jaxtrain.inference import temperature
from jaxtrain.json_files.write import write_digested
from jaxtrain.tasks import TASKS
from tests.helpers.facts import facts_of

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 5, 400)
# More sure than right: the true class is ahead by noise of the same size.
LOGITS = (6 * RNG.normal(size=(400, 5)) + 5 * np.eye(5)[LABELS]).astype(np.float32)
PROBABILITIES = scipy.special.softmax(LOGITS.astype(np.float64), axis=-1)


def of_examples(divided_by: float = 1.0) -> dict[str, np.ndarray]:
    return jax.device_get(jax.jit(calibration.scores)(LOGITS, LABELS, divided_by))


def test_scores_are_those_of_scikit_learn():
    found = of_examples()
    confidence = PROBABILITIES.max(-1)
    np.testing.assert_allclose(found["confidence"], confidence, rtol=1e-5)
    accuracy = sklearn.metrics.accuracy_score(LABELS, LOGITS.argmax(-1))
    assert found["correct"].mean(dtype=np.float64) == pytest.approx(accuracy)
    result = calibration.calibration(found)
    nll = sklearn.metrics.log_loss(LABELS, PROBABILITIES)
    assert result["negative_log_likelihood"] == pytest.approx(nll, rel=1e-5)
    brier = sklearn.metrics.brier_score_loss(
        LABELS,
        PROBABILITIES,
        scale_by_half=False,  # pyright: ignore[reportArgumentType]
        labels=range(5),
    )
    assert result["brier_score"] == pytest.approx(brier, rel=1e-5)


def test_errors_of_calibration_are_those_of_their_formula():
    """Example by example, in the words of Guo et al.: bins ((m - 1) / M, m / M]."""
    sure, right = PROBABILITIES.max(-1), LOGITS.argmax(-1) == LABELS
    gaps, weights = [], []
    for m in range(1, 16):
        some = [i for i, p in enumerate(sure) if (m - 1) / 15 < p <= m / 15]
        if some:
            gaps.append(abs(right[some].mean() - sure[some].mean()))
            weights.append(len(some) / len(sure))
    result = calibration.calibration(of_examples())
    expected = float(np.dot(gaps, weights))
    assert result["expected_calibration_error"] == pytest.approx(expected, abs=1e-6)
    assert result["maximum_calibration_error"] == pytest.approx(max(gaps), abs=1e-6)
    table = result["reliability"]
    assert sum(row["num_examples"] for row in table) == 400
    assert table[0] == {
        "low": 0.0,
        "high": pytest.approx(1 / 15),
        "num_examples": 0,
        "confidence": None,
        "accuracy": None,
    }


def test_examples_of_unknown_class_do_not_count():
    known = np.arange(400) % 4 > 0
    labels = np.where(known, LABELS, -1)
    scores: Any = jax.jit(calibration.scores)
    some = jax.device_get(scores(LOGITS[known], LABELS[known]))
    found = calibration.calibration(jax.device_get(scores(LOGITS, labels)))
    assert found == calibration.calibration(some)
    wanted = temperature.fit(LOGITS[known], LABELS[known])
    assert temperature.fit(LOGITS, labels) == wanted


def test_a_bound_belongs_to_the_bin_below():
    table = calibration.reliability(np.array([0.5, 1.0, 0.0]), np.ones(3), num_bins=2)
    assert [row["num_examples"] for row in table] == [2, 1]


@pytest.mark.parametrize("scale", [0.2, 5.0])
def test_the_temperature_has_the_least_nll(scale: float):
    logits = (scale * LOGITS).astype(np.float32)

    def nll(log_temperature: float) -> float:
        divided = logits.astype(np.float64) / np.exp(log_temperature)
        logs = scipy.special.log_softmax(divided, axis=-1)
        return float(-logs[np.arange(400), LABELS].mean())

    def with_one_unknown(log_temperature: float) -> float:
        divided = logits.astype(np.float64) / np.exp(log_temperature)
        unknown = -scipy.special.log_softmax(divided, axis=-1).mean()
        return 400 * nll(log_temperature) + float(unknown)

    best: Any = scipy.optimize.minimize_scalar(
        with_one_unknown, bounds=(-5, 5), options={"xatol": 1e-9}
    )
    found, before, after = temperature.fit(logits, LABELS)
    # The curve is flat at its lowest point: SciPy's search, which sees values alone,
    # finds the place to the square root of their rounding.
    assert found == pytest.approx(np.exp(best.x), rel=1e-6)
    assert before == pytest.approx(nll(0))
    assert after == pytest.approx(nll(best.x), abs=1e-9)
    assert after < before


def test_without_a_mistake_the_confidence_is_that_of_so_many_examples():
    """One class of five at random for one more than the 400 examples."""
    found, before, after = temperature.fit(np.eye(5)[LABELS], LABELS)
    confidence = scipy.special.softmax(np.eye(5)[0] / found)[0]
    assert confidence == pytest.approx((400 + 1 / 5) / 401)
    assert after < before


def test_a_temperature_that_is_not_there(tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "weights.pth").touch()
    origin = {"run": 32 * "a", "step": 7}
    for name, told in {
        "run": "temperature.json does not exist: fit the temperature with",
        "weights.pth": "weights.pth is not the directory of a run: leave",
    }.items():
        with pytest.raises(UserError, match=told):
            temperature.read(tmp_path / name, origin)


def test_a_temperature_is_for_classes_of_whole_images(tmp_path: Path):
    model = SimpleNamespace(
        description=SimpleNamespace(task="one"),
    )
    for names, told in (
        (None, "does not predict one class"),
        (("a",), "leave --calibrated out"),
    ):
        model.decoder = TASKS["multilabel"].decoder(facts_of(1, class_names=names))
        with pytest.raises(UserError, match=f"--calibrated: task = 'one' .*{told}"):
            temperature.read_for(cast(Any, model), tmp_path)


def test_a_temperature_changes_the_confidence_and_not_the_class():
    found, other = of_examples(), of_examples(2.5)
    np.testing.assert_array_equal(found["correct"], other["correct"])
    softer = scipy.special.softmax(LOGITS.astype(np.float64) / 2.5, axis=-1)
    np.testing.assert_allclose(other["confidence"], softer.max(-1), rtol=1e-5)


def test_predict_reads_a_temperature_back(tmp_path: Path):
    path = tmp_path / temperature.TEMPERATURE
    fitted = {"run_id": 32 * "a", "temperature": 1.5, "step": 7, "tta": None}
    write_digested(path, fitted)
    run = {"run": fitted["run_id"]}
    assert temperature.read(tmp_path, {**run, "step": 7}) == 1.5
    with pytest.raises(UserError, match="was fitted to the checkpoint of step 7"):
        temperature.read(tmp_path, {**run, "step": 8})
    told = r"temperature\.json belongs to run a{8}, and .* to run b{8}: fit"
    with pytest.raises(UserError, match=told):
        temperature.read(tmp_path, {"run": 32 * "b", "step": 7})
