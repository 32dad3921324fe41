"""What a save and the end of a run need is known before the first step."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

import jaxtrain
from jaxtrain.checkpoints import manifest
from jaxtrain.cli import main
from jaxtrain.trainer import records
from tests.helpers.recipes import recipe
from tests.helpers.runs import read_summary


@pytest.mark.slow
def test_versions_are_those_of_the_start(
    write_config: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also without metadata, as from a zip file; replaced libraries do not count."""
    run = tmp_path / "run"
    metrics = run / "metrics.jsonl"

    def version(name: str) -> str:
        if name == "flax" or (metrics.exists() and metrics.read_text()):
            raise PackageNotFoundError(name)
        return "1"

    fake = SimpleNamespace(version=version, PackageNotFoundError=PackageNotFoundError)
    monkeypatch.setattr(records, "metadata", fake)
    config = write_config(recipe(train="TrainConfig(steps=4)"))
    assert main(["--config", str(config), "--workdir", str(run)]) == 0
    versions = read_summary(run)["versions"]
    assert versions["jaxtrain"] == jaxtrain.__version__
    assert (versions["jax"], versions["flax"]) == ("1", "unknown")
    assert "orbax-checkpoint" in versions
    assert manifest.read(run / "checkpoints", 4)["versions"] == versions
