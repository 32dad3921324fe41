"""The way of a trained model: evaluated, used, exported, reported; on real images."""

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from jaxtrain import load_model
from jaxtrain.cli import main
from tests.helpers.needs import fashion_mnist
from tests.helpers.processes import ROOT
from tests.helpers.runs import read_summary
from tests.helpers.words import quoted

NUM = 300


def read_clothes() -> tuple[np.ndarray, np.ndarray]:
    """Return the 10,000 images to test, uint8 (N, 28, 28, 1), and their labels."""
    images, labels = fashion_mnist("t10k")
    return images[..., None], labels


def onnx_accuracy(path: Path, images: np.ndarray, labels: np.ndarray) -> float:
    session = onnxruntime.InferenceSession(path)
    name = session.get_inputs()[0].name
    parts = np.split(images, 20)
    outputs = [np.asarray(session.run(None, {name: part})[0]) for part in parts]
    return float(np.mean(np.concatenate(outputs).argmax(axis=1) == labels))


@pytest.mark.plugins
@pytest.mark.exhaustive
def test_five_commands_from_data_to_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fashion_mnist_dir: str
):
    monkeypatch.chdir(tmp_path)
    clothes, labels = read_clothes()
    (tmp_path / "clothes").mkdir()
    for i, image in enumerate(clothes[:NUM]):
        Image.fromarray(image[..., 0]).save(tmp_path / "clothes" / f"{i:04d}.png")
    recipe = ROOT / "configs" / "fashion_mnist.py"
    fewer = "--data.train-split train[:10000] --optimizer.warmup-epochs 0.2"
    where = f"--data.data-dir {quoted(fashion_mnist_dir)} {fewer}"
    onnx = "export --workdir runs/fashion --format onnx --include-preprocessing"
    for words in (
        f"--config {quoted(recipe)} --workdir runs/fashion --train.epochs 1 {where}",
        "evaluate --workdir runs/fashion --calibrate",
        "predict --workdir runs/fashion --calibrated --out predictions.csv clothes",
        "export --workdir runs/fashion --format safetensors --out model",
        f"{onnx} --out model.onnx",
        f"{onnx} --out int8.onnx --precision int8",
        "export --workdir runs/fashion --format stablehlo --out model.stablehlo",
        "export --workdir runs/fashion --format saved --out saved",
        "report --workdir runs/fashion --out report.html",
    ):
        assert main(shlex.split(words)) == 0, words
    workdir = tmp_path / "runs" / "fashion"
    accuracy = read_summary(workdir)["eval"]["accuracy"]
    assert accuracy > 0.7
    evaluation = json.loads((workdir / "evaluation.json").read_text())
    assert evaluation["metrics"]["accuracy"] == accuracy
    with (tmp_path / "predictions.csv").open() as file:
        found = [int(row["index"]) for row in csv.DictReader(file)]
    hits = np.mean(np.array(found) == labels[:NUM])
    assert hits == pytest.approx(accuracy, abs=0.06)  # Of 300 images.
    files = sorted((tmp_path / "clothes").iterdir())[:50]
    one, other = (load_model(p).predict(files) for p in (workdir, tmp_path / "model"))
    np.testing.assert_array_equal(one, other)
    full, int8 = (
        onnx_accuracy(tmp_path / name, clothes, labels)
        for name in ("model.onnx", "int8.onnx")
    )
    assert full == pytest.approx(evaluation["metrics"]["accuracy"], abs=2e-4)
    assert int8 == pytest.approx(full, abs=0.01)
    assert "Ankle boot" in (tmp_path / "report.html").read_text()
