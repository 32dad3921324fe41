"""The GPU's program of each recipe has the figures that were accepted last."""

import jax
import pytest

from jaxtrain.plugins.plan import gpu_compiler
from tests.helpers.needs import need
from tests.plugins.plan import gpu_baseline as baseline


@pytest.mark.gpu_compiler
@pytest.mark.parametrize("name", baseline.recipes())
def test_recipe(name: str):
    need(gpu_compiler.COMPILER)
    accepted = baseline.read()
    if not accepted:
        pytest.skip(f"no figures are known of JAX {jax.__version__}")
    assert name in accepted, f"a new recipe: {baseline.ACCEPT} --only {name}"
    found = baseline.figures(name, accepted[name])
    changed = baseline.differences(name, found, accepted[name])
    assert not changed, f"{changed}; to accept: {baseline.ACCEPT} --only {name}"


def test_a_figure_that_differs_is_told_with_both_numbers():
    figures = dict.fromkeys(baseline.COUNTED, 1000)
    sums = {"all-reduce": {"count": 2, "bytes": 500, "dtypes": ["f32"]}}
    accepted = {**figures, "collectives": sums}
    found = {**accepted, "num_kernels": 1010, "hbm_bytes": 1011}
    told = baseline.differences("digits", found, accepted)
    assert told == ["digits: hbm_bytes: 1000 -> 1011"]
    halves = {"all-reduce": {"count": 2, "bytes": 250, "dtypes": ["bf16"]}}
    assert baseline.differences("digits", {**accepted, "collectives": halves}, accepted)
    assert baseline.differences("digits", {**accepted, "collectives": {}}, accepted)
