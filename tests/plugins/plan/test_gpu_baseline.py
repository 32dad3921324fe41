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
