"""Runs that evaluate an average, or reduce their rate."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain import load_model
from jaxtrain.config.recipe import read_run
from jaxtrain.data import sources
from jaxtrain.data.order import epoch_order
from tests.helpers.features import Runs
from tests.helpers.runs import read_lines
from tests.helpers.tiers import thinned

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("averaged"))


@pytest.mark.parametrize("case", thinned(2, ["swa", "schedule_free_sgd"]))
def test_statistics_are_those_of_the_average(case: str, runs: Runs):
    """The first norm's, behind a convolution: of all training images, in batches of 8.

    As a run saves them, and as a loaded model has them.
    """
    run = runs.whole(case)
    config = read_run(run)
    source = sources.load(config.data, config.seed).train
    chosen, size = epoch_order(0, 0, len(source)), config.micro_batch_size
    means, variances = [], []
    with jax.enable_x64(True):
        model = load_model(run, "latest")
        for first in range(0, len(chosen) - size + 1, size):
            pixels = source.read(chosen[first : first + size])["image"]
            images = (pixels / 255 - model.description.mean) / model.description.std
            features = jax.lax.conv_general_dilated(
                *(jnp.asarray(images), jnp.asarray(model.params["conv1"]["kernel"])),
                *((1, 1), "SAME"),
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )
            means.append(np.mean(features, (0, 1, 2)))
            variances.append(np.var(features, (0, 1, 2)))
    norm = model.model_state["norm1"]
    np.testing.assert_allclose(norm["mean"], np.mean(means, 0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(norm["var"], np.mean(variances, 0), rtol=1e-5)


def test_the_rate_falls_where_evaluations_do_not_improve(runs: Runs):
    """The rate of each line is that of the schedule times the factor so far."""
    run = runs.whole("plateau")
    best, waited, factor = None, 0, 1.0
    factors = {}
    for line in read_lines(run):
        if line["kind"] == "train":
            factors[line["step"]] = line["learning_rate"] / 0.01
            assert line["step"] <= 2 or factors[line["step"]] == pytest.approx(factor)
        elif line["kind"] == "eval" and line["split"] == "validation":
            if best is None or line["loss"] < best:
                best, waited = line["loss"], 0
            elif waited < 1:
                waited += 1
            else:
                factor, waited = factor * 0.1, 0
    assert min(factors.values()) < 0.2
