"""The recipes whose data are at hand reach the accuracy that their docstrings state."""

import importlib.util
from pathlib import Path

import pytest

from tests.helpers.processes import ROOT, Cli
from tests.helpers.runs import read_summary


@pytest.mark.plugins
@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
def test_digits(cli: Cli, tmp_path: Path):
    config = ROOT / "configs" / "digits.py"
    result = cli.process("--config", config)
    assert result.code == 0, result.stderr
    summary = read_summary(tmp_path / "runs" / "digits")
    assert summary["eval"]["num_examples"] == 360
    assert summary["eval"]["accuracy"] >= 0.98
    assert "report.html" not in result.stderr
    page = (tmp_path / "runs" / "digits" / "report.html").read_bytes()
    assert len(page) < 200_000 and b"all 360 images of the test split" in page


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(
    ("name", "epochs", "accuracy"),
    [
        ("fashion_mnist", 1, 0.88),
        pytest.param("fashion_mnist", None, 0.918, marks=pytest.mark.exhaustive),
        pytest.param("fashion_mnist_fast", None, 0.929, marks=pytest.mark.exhaustive),
    ],
)
def test_fashion_mnist(
    name: str,
    epochs: int | None,
    accuracy: float,
    cli: Cli,
    tmp_path: Path,
    fashion_mnist_dir: str,
):
    """All 10,000 test images, read through TFDS where TensorFlow is not installed."""
    assert importlib.util.find_spec("tensorflow") is None
    words = ["--config", ROOT / "configs" / f"{name}.py", "--workdir", tmp_path / "run"]
    words += ["--data.data-dir", fashion_mnist_dir]
    words += ["--train.epochs", epochs] if epochs else []
    process = cli.start(*words)
    _, stderr = process.communicate(timeout=1800)
    assert process.returncode == 0, stderr
    summary = read_summary(tmp_path / "run")
    assert summary["eval"]["num_examples"] == 10_000
    # As measured (after one epoch, a floor), less 1.5 standard errors of 10,000 images:
    # CPUs round in other ways.
    assert summary["eval"]["accuracy"] >= accuracy - 0.004
