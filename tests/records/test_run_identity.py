"""The id of a run: files and checkpoints of another run of the same shapes are refused.

Two runs of one recipe that differ in their seeds alone: each could read what the other
has written, were it not for the id.
"""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

import jaxtrain
from jaxtrain.checkpoints import manifest
from jaxtrain.checkpoints.digest import digests
from jaxtrain.checkpoints.orbax import write
from jaxtrain.cli import main
from jaxtrain.config import Config
from jaxtrain.config.recipe import load_config
from jaxtrain.errors import OtherRunError, UserError
from jaxtrain.json_files.run_id import FIELD, NUM_SHOWN, RunId
from jaxtrain.json_files.write import write_digested
from jaxtrain.records.workdir import SUMMARY, open_workdir, read_summary
from jaxtrain.trainer.progress import Progress
from jaxtrain.trainer.setup import build_setup
from jaxtrain.trainer.summary import describe_data
from jaxtrain.weights.description import MODEL, Description
from jaxtrain.weights.stored import abstract_weights
from tests.helpers.edited import edit
from tests.helpers.installed import installed
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import assert_same_run

RECIPE = recipe(
    data='DataConfig(source="synthetic:8x8x1/4/96", batch_size=16)',
    model='ConvNetConfig(name="convnet", width=0.125)',
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
)


# Of these the default tests try each way in which a checkpoint is read.
QUICK = (*COMMANDS[:1], *COMMANDS[3:7], COMMANDS[8])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs, `run` and `other`, whose weights are zeros."""
    folder = tmp_path_factory.mktemp("written")
    config = load_config(write_recipe(folder / "recipe.py", RECIPE))
    setup = build_setup(config)
    about = Description(
        task=config.task.name,
        model=config.model,
        precision=config.precision,
        image_shape=setup.splits.input_shape,
        num_outputs=setup.task.num_outputs,
        class_names=setup.task.class_names,
        mean=(0.5,),
        std=(0.5,),
        crop_pct=0.875,
        interpolation="bilinear",
    )
    for name in ("run", "other"):
        write_run(folder / name, setup.config, describe_data(setup), about)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "image.png")
    return folder


def write_run(
    workdir: Path, config: Config, data: dict[str, Any], about: Description
) -> None:
    workdir.mkdir()
    run = open_workdir(workdir, config, data, fresh=False)
    write_digested(workdir / MODEL, run.stamp(about.to_dict()))
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), abstract_weights(about))
    state = {"params": zeros[0], "model_state": zeros[1], "extras": {}}
    info = {"progress": dataclasses.asdict(Progress())}
    made_of = manifest.make(state, digests(state), info, None, run)
    write(workdir / "checkpoints" / "2", state, made_of)


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
def here(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A copy of `written`, or of what a parameter names, and the current folder."""
    folder = request.getfixturevalue(getattr(request, "param", "written"))
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ids(*places: str) -> list[str]:
    return [f"run {RunId.read(Path(p)).value[:NUM_SHOWN]}" for p in places]


def swap(name: str) -> None:
    """Put a file or folder of the other run into the place of that of the run."""
    place, other = Path("run", name), Path("other", name)
    if other.is_dir():
        shutil.rmtree(place)
        shutil.copytree(other, place)
    else:
        shutil.copy(other, place)


@pytest.mark.parametrize(
    ("here", "commands"),
    [
        ("written", installed(QUICK)),
        pytest.param("runs", installed(COMMANDS), marks=pytest.mark.slow),
    ],
    indirect=["here"],
)
def test_checkpoints_of_another_run_are_refused(
    here: Path, commands: tuple[str, ...], capsys: pytest.CaptureFixture[str]
):
    swap("checkpoints")
    before = sorted(here.rglob("*"))
    mine, others = ids("run", "other")
    for words in commands:
        capsys.readouterr()
        assert main(words.split()) == 2, words
        told = capsys.readouterr().err
        assert "run/checkpoints/" in told and "restore the original" in told, words
        assert f"belongs to {others}, and run/config.json to {mine}" in told, words
        assert told.count("error:") == 1 and "Traceback" not in told
    # Nothing was removed, renamed or added.
    assert set(here.rglob("*")) - set(before) <= {here / "run" / "metrics.jsonl"}
    assert set(before) <= set(here.rglob("*"))


def test_run_loads_with_its_own_checkpoints(here: Path):
    """In another folder, too, and a copy of it."""
    mine = RunId.read(here / "run").value
    (here / "run").rename(here / "moved")
    shutil.copytree(here / "moved", here / "copied")
    for name in ("moved", "copied"):
        assert jaxtrain.load_model(here / name).origin == {"step": 2, "run": mine}
        assert main(["checkpoint", "--verify", "--workdir", name]) == 0


@pytest.mark.parametrize("name", ["config.json", "model.json", "data.json"])
def test_file_of_another_run_is_refused(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
):
    swap(name)
    assert main(["checkpoint", "--verify", "--workdir", "run"]) == 2
    assert "belongs to run" in capsys.readouterr().err
    if name != "data.json":
        with pytest.raises(OtherRunError):
            jaxtrain.load_model("run")


def test_workdir_without_an_id_is_refused(here: Path):
    values = json.loads(Path("run/config.json").read_text())
    del values[FIELD], values["sha256"]
    Path("run/config.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"run/config\.json: run_id is missing"):
        jaxtrain.load_model("run")
    with pytest.raises(UserError, match="cannot be resumed"):
        jaxtrain.train(load_config(Path("recipe.py")), "run")


def test_run_keeps_its_id_until_it_begins_anew(tmp_path: Path):
    begun = open_workdir(tmp_path, Config(), {}, fresh=False)
    # A run without a checkpoint has nothing that the next one could take.
    other = open_workdir(tmp_path, Config(), {}, fresh=False)
    assert begun.value != other.value and len(other.value) == 32
    end = {"step": 9, "stopped_early": False, "evals_without_improvement": 0}
    write_digested(tmp_path / SUMMARY, other.stamp(end))
    assert read_summary(tmp_path, 9, None) == end
    (tmp_path / "checkpoints" / "9").mkdir()
    (tmp_path / "data.json").unlink()
    again = open_workdir(tmp_path, Config(), {}, fresh=False)
    assert again == other == RunId.read(tmp_path)
    fresh = open_workdir(tmp_path, Config(), {}, fresh=True)
    assert fresh.value != other.value
    write_digested(tmp_path / SUMMARY, other.stamp(end))
    with pytest.raises(OtherRunError, match="move the file away to continue"):
        read_summary(tmp_path, 9, None)


@pytest.mark.plugins
@pytest.mark.slow
@pytest.mark.parametrize("here", ["runs"], indirect=True)
def test_what_was_fitted_to_another_run_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    for name in ("run", "other"):
        assert main(["evaluate", "--workdir", name, "--calibrate"]) == 0
    predict = ["predict", "--workdir", "run", "--calibrated", "image.png"]
    verify = ["checkpoint", "--verify", "--workdir", "run"]
    assert main(predict) == main(verify) == 0
    for name, commands in {
        "temperature.json": [predict, verify],
        "evaluation.json": [verify],
        "summary.json": [verify, COMMANDS[0].split(), ["report", "--workdir", "run"]],
    }.items():
        own = Path("run", name).read_bytes()
        swap(name)
        for words in commands:
            capsys.readouterr()
            assert main(words) == 2, words
            assert f"run/{name} belongs to run" in capsys.readouterr().err, words
        Path("run", name).write_bytes(own)
    # Edited by hand, it still belongs to its run.
    edit(Path("run/temperature.json"), temperature=2.0)
    assert main(predict) == 0


@pytest.mark.slow
@pytest.mark.parametrize("here", ["runs"], indirect=True)
def test_id_enters_no_number(here: Path):
    """Another start, and one that was stopped on its way, end in the same bits."""
    config = load_config(Path("recipe.py"))
    jaxtrain.train(config, "again")
    train = dataclasses.replace(config.train, stop_after_steps=2)
    jaxtrain.train(dataclasses.replace(config, train=train), "resumed")
    begun = RunId.read(Path("resumed")).value
    jaxtrain.train(config, "resumed")
    assert RunId.read(Path("resumed")).value == begun
    assert len({RunId.read(Path(n)).value for n in ("run", "again", "resumed")}) == 3
    for name in ("again", "resumed"):
        assert_same_run(Path("run"), Path(name), 4)
