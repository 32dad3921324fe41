"""The id of a run: files and checkpoints of another run of the same shapes are refused.

Two runs of one recipe that differ in their seeds alone: each could read what the other
has written, were it not for the id.
"""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import jaxtrain
from jaxtrain.cli import main
from jaxtrain.config.recipe import load_config
from jaxtrain.inference import temperature
from jaxtrain.json_files.run_id import NUM_SHOWN, RunId
from jaxtrain.records.workdir import CHECKPOINTS, write_digested
from jaxtrain.tasks.classification import Classification
from tests.helpers.edited import edit
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import arrays

RECIPE = recipe(
    data='DataConfig(source="synthetic:8x8x1/4/96", batch_size=16)',
    model='ModelConfig(name="convnet", width=0.125)',
    train="TrainConfig(steps=4, eval_every_steps=2)",
    checkpoint="CheckpointConfig(every_steps=2)",
    logging="LoggingConfig(every_steps=4, tensorboard=False)",
)
# What reads a checkpoint of the run in the folder `run`.
COMMANDS = (
    "--config recipe.py --workdir run --train.steps 6",
    "--config recipe.py --workdir run --resume-step 2",
    "--config recipe.py --workdir new --model.pretrained run",
    "evaluate --workdir run",
    "checkpoint --verify --workdir run",
    "checkpoint --list --workdir run",
    "predict --workdir run image.png",
    "serve --workdir run --port 0",
    "export --workdir run --format safetensors --out model",
    "report --workdir run",
    "average run other --out model",
    "ensemble run other --out model",
    "compact --workdir run --flops 0.5 --out model",
    "quantize --workdir run --out model",
    "rewind --workdir run --to 2 --out model",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two finished runs, `run` and `other`."""
    folder = tmp_path_factory.mktemp("identity")
    config = load_config(write_recipe(folder / "recipe.py", RECIPE))
    for seed, name in enumerate(("run", "other")):
        jaxtrain.train(dataclasses.replace(config, seed=seed), folder / name)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "image.png")
    return folder


@pytest.fixture
def here(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder, and the current folder."""
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ids(*places: str) -> list[str]:
    return [f"run {RunId.read(Path(p)).value[:NUM_SHOWN]}" for p in places]


def swap(name: str) -> None:
    """Put a file or folder of the other run into the place of that of the run."""
    place = Path("run", name)
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    Path("other", name).rename(place)


def test_checkpoints_of_another_run_are_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    shutil.rmtree("run/checkpoints")
    shutil.copytree("other/checkpoints", "run/checkpoints")
    before = sorted(here.rglob("*"))
    mine, others = ids("run", "other")
    for words in COMMANDS:
        capsys.readouterr()
        assert main(words.split()) == 2, words
        told = capsys.readouterr().err
        assert "run/checkpoints/" in told and "put it back there" in told, words
        assert f"belongs to {others}, and run/config.json to {mine}" in told, words
        assert told.count("error:") == 1 and "Traceback" not in told
    # Nothing was removed, renamed or written.
    assert sorted(set(here.rglob("*")) - {here / "run/.lock"}) == before
