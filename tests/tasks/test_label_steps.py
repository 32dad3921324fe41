"""Twenty steps on several labels are those of PyTorch, from the same weights."""

import json
from pathlib import Path

import numpy as np
import pytest

from jaxtrain.weights.sources import SOURCES
from tests.helpers import labelled, tiny
from tests.helpers.numerics import FP64
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines

OPTIONS = {
    "binary_cross_entropy": f"positive_weights={labelled.POSITIVE_WEIGHTS}",
    "asymmetric": 'loss="asymmetric"',
}


@pytest.mark.slow
@pytest.mark.parametrize("loss", OPTIONS)
def test_losses_of_twenty_steps_are_those_of_pytorch(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(SOURCES, "convnet", (tiny.source("timm"),))
    images, labels = labelled.examples()
    np.savez(tmp_path / "train.npz", image=images, label=labels)
    data = (
        f'DataConfig(source="arrays:train.npz", targets={tuple("abcde")!r}, '
        f"batch_size={labelled.NUM}, validation_fraction=0.0, test_split='train', "
        f"allow_overlap=True, mean={labelled.MEAN}, std={labelled.STD})"
    )
    text = recipe(
        task=f"MultilabelConfig({OPTIONS[loss]})",
        data=data,
        model='ConvNetConfig(width=0.125, pretrained="tiny.safetensors")',
        optimizer=f"SGDConfig(learning_rate={labelled.RATE}, "
        "momentum=0.9, nesterov=False, warmup_fraction=0.0)",
        train=f"TrainConfig(steps={labelled.STEPS})",
        logging="LoggingConfig(every_steps=1, tensorboard=False)",
    )
    weights = (tiny.STORED / "tiny.safetensors").read_bytes()
    (tmp_path / "tiny.safetensors").write_bytes(weights)
    write_recipe(tmp_path / "recipe.py", text)
    words = "--config recipe.py --workdir run --precision fp64"
    result = Cli(tmp_path).done(*words.split(), **FP64)
    assert "the last layer" not in result.stdout
    found = [line["loss"] for line in read_lines(tmp_path / "run", "train")]
    expected = json.loads((tiny.STORED / "labels.json").read_text())[loss]
    assert len(found) == labelled.STEPS
    # Both in float64; a step may send rounding of 1e-16 through a ReLU or a maximum.
    np.testing.assert_allclose(found, expected, rtol=1e-9)
