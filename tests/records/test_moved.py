"""A workdir that is moved or removed while a run writes into it, or between runs."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxtrain.checkpoints.folder import committed_steps
from jaxtrain.config import Config
from jaxtrain.config.recipe import load_config
from jaxtrain.errors import CheckpointError
from jaxtrain.parallel import devices
from jaxtrain.records.folder_lock import locked
from jaxtrain.trainer import train as run
from jaxtrain.trainer.callback import Callback
from tests.helpers.recipes import EIGHT_STEPS, write_recipe
from tests.helpers.runs import assert_same_run


def test_a_moved_folder_may_have_another_lock_in_its_place(tmp_path: Path):
    here, there = tmp_path / "here", tmp_path / "there"
    with locked(here):
        here.rename(there)
        with locked(here):
            pass
    assert not here.exists()


class After(Callback):
    """Does something once, after the call of a step, with no save under way."""

    def __init__(self, step: int, act: Callable[[], object]):
        self._step, self._act = step, act

    def on_step_end(self, run: Any, metrics: dict[str, Any]) -> None:
        if run.step == self._step:
            run.saved.wait()
            self._act()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    devices.start("cpu")
    path = tmp_path_factory.mktemp("moved") / "recipe.py"
    return load_config(write_recipe(path, EIGHT_STEPS))


@pytest.fixture(scope="module")
def whole(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nobody moved."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run.train(config, folder)
    return folder


@pytest.mark.slow
def test_a_run_whose_folder_is_moved_ends_and_goes_on_there(
    config: Config, whole: Path, tmp_path: Path
):
    here, there = tmp_path / "here", tmp_path / "there"
    callback = After(3, lambda: here.rename(there))
    with pytest.raises(CheckpointError, match="No such file or directory"):
        run.train(config, here, callbacks=[callback])
    assert not here.exists()
    assert committed_steps(there / "checkpoints")[-1] < 8
    run.train(config, there)
    assert_same_run(there, whole, 8)


@pytest.mark.slow
def test_a_run_whose_folder_is_removed_ends(config: Config, tmp_path: Path):
    here = tmp_path / "here"
    with pytest.raises(CheckpointError, match="No such file or directory"):
        run.train(config, here, callbacks=[After(3, lambda: shutil.rmtree(here))])
    assert not here.exists()
