"""A run that begins with the weights of another, or of an exported folder."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain import load_model
from jaxtrain.cli import main
from jaxtrain.inference import folder
from jaxtrain.processes.cluster import Cluster
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines
from tests.helpers.words import quoted

LOGGING = "LoggingConfig(every_steps=1, tensorboard=False)"
# A learning rate so small that the weights stay what they are.
STILL = "SGDConfig(learning_rate=1e-12)"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, `run`, the same model exported, `model`, and recipes."""
    root = tmp_path_factory.mktemp("trained")
    write_recipe(root / "first.py", recipe(logging=LOGGING))
    still = recipe(
        logging=LOGGING,
        optimizer=STILL,
        train="TrainConfig(steps=2)",
        checkpoint="CheckpointConfig()",
    )
    write_recipe(root / "still.py", still)
    words = (
        f"--config {quoted(root)}/first.py --workdir {quoted(root)}/run --train.steps 6"
    )
    assert main([*shlex.split(words), "--checkpoint.every-steps", "6"]) == 0
    folder.write(load_model(root / "run"), root / "model")
    return root


def begin(trained: Path, workdir: Path, source: str, words: str = "") -> Path:
    given = (
        f"--config {quoted(trained)}/still.py --workdir {quoted(workdir)} "
        "--model.pretrained"
    )
    assert main([*shlex.split(given), str(trained / source), *shlex.split(words)]) == 0
    return workdir


def test_it_begins_with_these_weights(trained: Path, tmp_path: Path):
    workdir = begin(trained, tmp_path / "w", "model")
    images = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 1)).astype(np.uint8)
    old, new = load_model(trained / "run"), load_model(workdir)
    for one, other in zip(
        (old.params["conv1"]["kernel"], old.params["head"]["linear"]["kernel"]),
        (new.params["conv1"]["kernel"], new.params["head"]["linear"]["kernel"]),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert old.predict(images).shape == new.predict(images).shape
    told = [line.get("event", "") for line in read_lines(workdir, "event")]
    assert any(f"starts from the weights of {trained / 'model'}" in t for t in told)


def test_fresh_leaves_the_run_that_it_begins_with(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    words = (
        f"--config {quoted(trained)}/still.py --workdir {quoted(trained)}/run --fresh"
    )
    assert main([*shlex.split(words), "--model.pretrained", f"{trained}/run"]) == 2
    assert "--fresh would move" in capsys.readouterr().err
    assert (trained / "run" / "config.json").is_file()


def test_all_processes_begin_with_the_same_file(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def of_two(self: Cluster, value: Any) -> list[Any]:
        return [value, 64 * "f" if isinstance(value, str) else value]

    words = f"--config {quoted(trained)}/still.py --workdir {quoted(tmp_path)}/w"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "gather", of_two)
        assert (
            main([*shlex.split(words), "--model.pretrained", f"{trained}/model"]) == 2
        )
    assert "has sha256 ffffffffffff in process 1" in capsys.readouterr().err


WRONG = {
    "does not fit model.name = 'convnet': 11 of another shape": "--model.width 0.25",
    "none does not exist": "--model.pretrained none",
}


@pytest.mark.parametrize("message", WRONG)
def test_weights_of_another_model_are_refused(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], message: str
):
    words = f"--config {quoted(trained)}/still.py --workdir {quoted(tmp_path)}/w"
    words += f" --model.pretrained {quoted(trained)}/model {WRONG[message]}"
    assert main(shlex.split(words)) == 2
    assert message in capsys.readouterr().err
