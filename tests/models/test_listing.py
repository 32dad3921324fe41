"""`main.py models`: all models, quickly, and their counts against torchvision's."""

import json
import subprocess
import sys
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from jaxtrain.cli import main
from jaxtrain.models import MODELS
from jaxtrain.training.forward import predict
from jaxtrain.training.state import num_params, split_model
from jaxtrain.weights.sources import sources_of
from jaxtrain.zoo import counted
from jaxtrain.zoo.published import PUBLISHED
from tests.helpers.blueprints import make_blueprint
from tests.helpers.processes import ROOT

# What the metadata of torchvision 0.28's weights say: parameters, and billions of
# products, those with zeros around images included.
TORCHVISION = {
    "resnet18": (11_689_512, 1.814),
    "resnet50": (25_557_032, 4.089),
    "wide_resnet50_2": (68_883_240, 11.398),
    "resnext50_32x4d": (25_028_904, 4.230),
    "vgg16": (138_357_544, 15.470),
    "vgg16_bn": (138_365_992, 15.470),
    "inception_v3": (27_161_264, 5.713),
    "densenet121": (7_978_856, 2.834),
    "mobilenet_v2": (3_504_872, 0.301),
    "mobilenet_v3_small": (2_542_856, 0.057),
    "efficientnet_b0": (5_288_548, 0.386),
    "efficientnet_v2_s": (21_458_488, 8.366),
    "convnext_tiny": (28_589_128, 4.456),
    "regnet_y_3_2gf": (19_436_338, 3.176),
    "fcn_resnet50": (35_322_218, 152.717),
}


def output(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["models", *words]) == 0
    return capsys.readouterr().out


def test_the_table_has_a_line_of_each_model(capsys: pytest.CaptureFixture[str]):
    lines = output(capsys).splitlines()
    rows = [line for line in lines if not line.endswith(":")]
    assert [line.split()[0] for line in rows] == ["model", *MODELS]
    assert max(map(len, lines)) <= 100
    row = lines[1 + list(MODELS).index("resnet18")]
    assert "11,689,512" in row and "69.76" in row and "timm, torchvision" in row


def test_json_has_the_counts_as_they_were_made(capsys: pytest.CaptureFixture[str]):
    rows = {row["name"]: row for row in json.loads(output(capsys, "--json"))}
    assert list(rows) == list(MODELS)
    one = json.loads(output(capsys, "resnet18", "--json"))
    assert one == rows["resnet18"]
    for name, counts in counted.read().items():
        assert rows[name]["forward_flops"] == counts.forward_flops
        assert rows[name]["image_shape"] == list(PUBLISHED[name].image_shape)


def test_one_model_with_its_sources(capsys: pytest.CaptureFixture[str]):
    text = output(capsys, "resnet50")
    assert "25,557,032" in text and "resnet50 of torchvision" in text
    for result in PUBLISHED["resnet50"].results:
        assert f"{result.top1:g} %, {result.of}, {result.source}" in text
    text = output(capsys, "deeplabv3_resnet50")
    assert "42,004,074" in text and "66.4 % mean IoU, torchvision" in text


def test_an_unknown_model(capsys: pytest.CaptureFixture[str]):
    assert main(["models", "resnet5"]) == 2
    message = "unknown model 'resnet5'; perhaps you meant resnet50"
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_it_imports_no_jax():
    code = (
        "import sys; from jaxtrain.cli import main; code = main(['models']); "
        "assert not {'jax', 'flax', 'numpy'} & set(sys.modules); sys.exit(code)"
    )
    words = [sys.executable, "-c", code]
    result = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr


def test_all_models_are_described_and_their_weights_are_those_that_fit():
    assert set(MODELS) <= set(PUBLISHED)
    assert list(counted.read()) == list(MODELS), "run benchmarks/zoo.py --write"
    for name, counts in counted.read().items():
        sources = sources_of(name)
        assert [tuple(w) for w in counts.weights] == [
            (s.library, s.architecture, dict(s.options)) for s in sources
        ], "run benchmarks/zoo.py --write"


def test_counts_are_those_of_torchvision():
    """A product and a sum count 2; up to a fifth are with zeros around images."""
    for name, counts in counted.read().items():
        if name in TORCHVISION:
            params, billions = TORCHVISION[name]
            assert counts.num_params == params
            assert 0.8 < counts.forward_flops / (2e9 * billions) < 1.1, name


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", list(MODELS)[::5])
def test_counts_are_of_the_models_as_they_are(name: str):
    """Those of the program before the compiler works on it, which is a second's work.

    The compiler changes them by a few percent.
    """
    counts, about = counted.read()[name], PUBLISHED[name]
    model = make_blueprint(name, about.image_shape, about.num_outputs).abstract()
    graphdef, params, model_state = split_model(model)
    assert num_params(params) == counts.num_params

    image = jax.ShapeDtypeStruct((1, *about.image_shape), np.float32)
    lowered = jax.jit(partial(predict, graphdef)).lower(params, model_state, image)
    analysis: Any = lowered.cost_analysis()
    flops = analysis["flops"]
    assert counts.forward_flops == pytest.approx(flops, rel=0.05)
