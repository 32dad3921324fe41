"""The way of a trained model: evaluated, used, exported, reported; on real images."""

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxtrain import load_model
from jaxtrain.cli import main
from tests.helpers.processes import ROOT
from tests.helpers.runs import read_summary

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
NUM = 300


def write_clothes(folder: Path) -> np.ndarray:
    """Write the first images of the test split as PNG files; return their labels."""
    labels, images = (
        np.frombuffer(gzip.decompress((FASHION_MNIST / name).read_bytes()), np.uint8)
        for name in ("t10k-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz")
    )
    folder.mkdir()
    for i, image in enumerate(images[16:].reshape(-1, 28, 28)[:NUM]):
        Image.fromarray(image).save(folder / f"{i:04d}.png")
    return labels[8:][:NUM]


@pytest.mark.slow
def test_five_commands_from_data_to_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fashion_mnist_dir: str
):
    monkeypatch.chdir(tmp_path)
    labels = write_clothes(tmp_path / "clothes")
    recipe = ROOT / "configs" / "fashion_mnist.py"
    fewer = "--data.train-split train[:10000] --optimizer.warmup-epochs 0.2"
    where = f"--data.data-dir {fashion_mnist_dir} {fewer}"
    for words in (
        f"--config {recipe} --workdir runs/fashion --train.epochs 1 {where}",
        "evaluate --workdir runs/fashion --calibrate",
        "predict --workdir runs/fashion --calibrated --out predictions.csv clothes",
        "export --workdir runs/fashion --format safetensors --out model",
        "export --workdir runs/fashion --format onnx --out model.onnx",
        "export --workdir runs/fashion --format onnx --precision int8 --out int8.onnx",
        "export --workdir runs/fashion --format stablehlo --out model.stablehlo",
        "export --workdir runs/fashion --format saved --out saved",
        "report --workdir runs/fashion --out report.html",
    ):
        assert main(words.split()) == 0, words
    workdir = tmp_path / "runs" / "fashion"
    accuracy = read_summary(workdir)["eval"]["accuracy"]
    assert accuracy > 0.7
    # The command takes the best checkpoint, and the run's own test the last.
    evaluation = json.loads((workdir / "evaluation.json").read_text())
    assert evaluation["metrics"]["accuracy"] == pytest.approx(accuracy, abs=0.03)
    with (tmp_path / "predictions.csv").open() as file:
        found = [int(row["index"]) for row in csv.DictReader(file)]
    hits = np.mean(np.array(found) == labels)
    assert hits == pytest.approx(accuracy, abs=0.06)  # Of 300 images.
    files = sorted((tmp_path / "clothes").iterdir())[:50]
    one, other = (load_model(p).predict(files) for p in (workdir, tmp_path / "model"))
    np.testing.assert_array_equal(one, other)
    sizes = [(tmp_path / name).stat().st_size for name in ("int8.onnx", "model.onnx")]
    assert sizes[0] < sizes[1]
    assert "Ankle boot" in (tmp_path / "report.html").read_text()
