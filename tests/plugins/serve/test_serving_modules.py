"""Plain Flax modules in a server, and in the report of a run."""

from pathlib import Path

import numpy as np
import pytest

import jaxtrain
from tests.helpers.processes import Cli
from tests.models.test_flax_module import NAMES, config_of
from tests.plugins.serve.running import LIMITS, Running, png


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_plain_module_is_served_and_reported(tmp_path: Path, name: str):
    jaxtrain.train(config_of(name), tmp_path / "run")
    model = jaxtrain.load_model(tmp_path / "run", trust=True)
    with Running(model, LIMITS) as server:
        status, answer = server.ask(png(0), "/predict?topk=10")
    assert status == 200
    classes = answer["predictions"][0]["classes"]
    expected = model.predict([png(0)])[0]
    found = {one["index"]: one["prob"] for one in classes}
    np.testing.assert_allclose([found[i] for i in range(10)], expected, atol=1e-6)
    done = Cli(tmp_path)("report", "--workdir", "run", "--trust", "--out", "page.html")
    assert done.code == 0, done.stderr
    assert f"flax_modules.py:{name}" in (tmp_path / "page.html").read_text()
