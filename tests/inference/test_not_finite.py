"""Outputs that are not finite: no prediction of an image, no metric of a split."""

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxtrain.cli import main
from jaxtrain.errors import UserError
from jaxtrain.evaluation.finite import NOT_FINITE, finite_rows
from jaxtrain.inference import folder
from jaxtrain.inference.model import TrainedModel, make_model
from jaxtrain.weights.description import Description
from jaxtrain.weights.stored import abstract_weights
from tests.helpers.described import describe
from tests.helpers.images import encode
from tests.helpers.rows import each_row

BLACK, WHITE = (np.full((16, 16, 3), value, np.uint8) for value in (0, 255))


def make(task: str = "classification", **fields: Any) -> TrainedModel:
    """Return a model of which a black image alone has finite outputs."""
    about = describe(
        "lenet",
        (16, 16, 3),
        task=task,
        num_outputs=3,
        class_names=("a", "b", "c") if task == "classification" else None,
        mean=(0.0,) * 3,
        std=(1.0,) * 3,
    )
    about = dataclasses.replace(about, **fields)
    # Kernels that overflow, and biases of 0.
    params, model_state = jax.tree.map(
        lambda x: np.full(x.shape, 1e30 if x.ndim > 1 else 0, x.dtype),
        abstract_weights(about),
    )
    return make_model(about, params, model_state, {"step": 7}, "here")


@pytest.fixture(scope="module")
def model() -> TrainedModel:
    return make()


def test_rows_are_finite_in_all_heads():
    nan, inf = np.nan, np.inf
    outputs = {
        "a": np.array([[1.0, 2], [nan, 0], [0, 0], [0, -inf]], np.float32),
        "b": (np.array([[[1]], [[1]], [[inf]], [[1]]], np.float32), np.arange(4)),
    }
    assert finite_rows(outputs).tolist() == [True, False, False, False]


def test_an_image_has_an_error_in_its_row(
    model: TrainedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    folder.write(model, Path("model"))
    for name, image in (("black", BLACK), ("white", WHITE)):
        Path(f"{name}.png").write_bytes(encode(image))
    Path("cut.png").write_bytes(encode(WHITE)[:-30])
    words = ["predict", "--workdir", "model", "black.png", "cut.png", "white.png"]
    assert main([*words, "--out", "x.csv", "--outputs", "all", "--strict"]) == 1
    with open("x.csv", newline="") as file:
        rows = {row["filename"]: row for row in csv.DictReader(file)}
    assert rows["black.png"]["label"] == "a" and rows["black.png"]["error"] == ""
    assert rows["white.png"] == {
        "filename": "white.png",
        "index": "",
        "label": "",
        "prob": "",
        "error": NOT_FINITE,
    }
    assert [path.name for path in Path("all").iterdir()] == ["black.png.npy"]
    told = capsys.readouterr()
    assert "1 of 3 images could not be read\n" in told.out
    assert f"{NOT_FINITE} for 1 of 3 images\n" in told.out
    assert f"--strict: 1 of 3 images could not be read; {NOT_FINITE} for 1" in told.err
    assert main([*words, "--batch-size", "1"]) == 0
    assert NOT_FINITE in " ".join(capsys.readouterr().out.split())


@each_row("output", ["predict", "logits", "features"])
def test_python_names_the_image(model: TrainedModel, output: str):
    assert np.isfinite(getattr(model, output)([BLACK, BLACK])).all()
    with pytest.raises(UserError, match=f"^image 1: {NOT_FINITE}$"):
        getattr(model, output)([BLACK, WHITE])


def test_values_are_finite_as_well():
    columns = ("x", "y", "z")
    options = {"mean": "1.0,1.0,1.0", "std": "1.0,1.0,1.0"}
    one = make("regression", column_names=columns, task_options=options)
    assert one.predict([BLACK]).shape == (1, 3)
    with pytest.raises(UserError, match=NOT_FINITE):
        one.predict([WHITE])


@each_row(
    ("fields", "told"),
    [
        (
            {"mean": (1e38,) * 3},
            r"mean = .*: expected 3 numbers in 0\.\.1, one per channel",
        ),
        ({"mean": (0.5,)}, r"expected 3 numbers in 0\.\.1"),
        ({"std": (0.0,) * 3}, r"std = .*: expected 3 numbers above 0, up to 1"),
        ({"std": (-1.0,) * 3}, "expected 3 numbers above 0, up to 1"),
    ],
)
def test_statistics_are_those_of_pixels(
    model: TrainedModel, fields: dict[str, Any], told: str, tmp_path: Path
):
    values = dataclasses.replace(model.description, **fields).to_dict()
    values = json.loads(json.dumps(values))
    with pytest.raises(UserError, match=f"^here: .*{told}"):
        Description.from_dict(values, "here")
