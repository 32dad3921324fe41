"""What a save and the end of a run need is known before the first step."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

import jaxtrain
from jaxtrain.checkpoints import manifest
from jaxtrain.cli import main
from jaxtrain.run import summary
from tests.helpers.processes import ROOT
from tests.helpers.recipes import recipe
from tests.helpers.runs import read_summary

DIGITS = str(ROOT / "configs" / "digits.py")


@pytest.fixture
def words(tmp_path: Path, write_config: Callable[..., Path]) -> list[str]:
    config = write_config(recipe(train="TrainConfig(steps=4)"))
    return ["--config", str(config), "--workdir", str(tmp_path / "run")]


def set_versions(monkeypatch: pytest.MonkeyPatch, version: Callable) -> None:
    fake = SimpleNamespace(version=version, PackageNotFoundError=PackageNotFoundError)
    monkeypatch.setattr(summary, "metadata", fake)


@pytest.mark.slow
def test_run_of_libraries_without_metadata(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As without `pip install -e .`, from a zip file or in a frozen program."""

    def fail(name: str) -> str:
        raise PackageNotFoundError(name)

    set_versions(monkeypatch, fail)
    assert main(words) == 0
    versions = read_summary(tmp_path / "run")["versions"]
    assert versions.pop("jaxtrain") == jaxtrain.__version__
    assert {"jax", "flax", "orbax-checkpoint"} <= versions.keys()
    assert set(versions.values()) == {"unknown"}
    saved = manifest.read(tmp_path / "run" / "checkpoints", 4)
    assert saved["versions"] == read_summary(tmp_path / "run")["versions"]


@pytest.mark.slow
def test_library_that_is_replaced_meanwhile(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What is loaded counts; later there may be nothing to ask."""
    run = tmp_path / "run"
    metrics = run / "metrics.jsonl"

    def version(name: str) -> str:
        if metrics.exists() and metrics.read_text():
            raise PackageNotFoundError(name)
        return "1"

    set_versions(monkeypatch, version)
    assert main(words) == 0
    assert read_summary(run)["versions"]["jax"] == "1"
