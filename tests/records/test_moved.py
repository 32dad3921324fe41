"""A workdir that is moved or removed while a run writes into it."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxtrain.checkpoints.folder import committed_steps
from jaxtrain.config import Config
from jaxtrain.config.recipe import load_config
from jaxtrain.errors import MovedError
from jaxtrain.parallel import devices
from jaxtrain.processes.hooks import Hooks
from jaxtrain.records.held_folder import LOCK, HeldFolder, locked
from jaxtrain.run import train as run
from tests.helpers.recipes import EIGHT_STEPS, write_recipe
from tests.helpers.runs import assert_same_run
from tests.helpers.tiers import thinned


def test_a_folder_is_found_where_it_was_moved_to(tmp_path: Path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    held = HeldFolder(here)
    assert not held.moved() and held.place() == here
    here.rename(there)
    assert held.moved() and held.place() == there
    # Another one in its place is not it.
    here.mkdir()
    assert held.moved() and held.place() == there
    there.rmdir()
    assert held.moved() and held.place() is None
    held.close()


def test_the_lock_of_a_moved_folder_goes_with_the_run(tmp_path: Path):
    with locked(tmp_path / "here") as held:
        assert held is not None
        (tmp_path / "here").rename(tmp_path / "there")
        assert (tmp_path / "there" / LOCK).exists()
    assert not list((tmp_path / "there").iterdir())


class At(Hooks):
    """Does something once, after the call, or before the save, of a step."""

    def __init__(self, what: Callable[[], object], *, call: int = 0, save: int = 0):
        self._what, self._call, self._save = what, call, save

    def after_call(self, step: int, metrics: object) -> None:
        if step == self._call:
            self._what()

    def before_save(self, step: int) -> None:
        if step == self._save:
            self._save = 0
            self._what()


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


@pytest.mark.parametrize(
    ("when", "replaced"),
    thinned(
        5,
        [
            ({"call": 3}, False),
            ({"call": 3}, True),
            ({"call": 8}, False),
            ({"save": 4}, False),
            ({"save": 8}, True),
        ],
    ),
)
def test_a_run_ends_saved_in_the_moved_folder_and_goes_on_there(
    when: dict[str, int], replaced: bool, config: Config, whole: Path, tmp_path: Path
):
    here, there = tmp_path / "here", tmp_path / "there"

    def move() -> None:
        here.rename(there)
        if replaced:
            # A save that is under way may have made it again.
            here.mkdir(exist_ok=True)
            (here / "config.json").write_text("that of another run")

    with pytest.raises(
        MovedError, match=f"moved to {re.escape(str(there))} while"
    ) as caught:
        run.train(config, here, hooks=At(move, **when))
    (step,) = when.values()
    last = committed_steps(there / "checkpoints")[-1]
    # Of a save that was under way, the next one; else that of the next interval.
    assert f"its last checkpoint there is step {last}." in str(caught.value)
    assert last == min(8, step + 2 - step % 2 if "save" in when else step + step % 2)
    if replaced:
        assert (here / "config.json").read_text() == "that of another run"
    else:
        assert not [*here.rglob("*")], [*here.rglob("*")]
    run.train(config, there)
    assert_same_run(there, whole, 8)


@pytest.mark.slow
def test_a_run_whose_folder_is_removed_says_so(config: Config, tmp_path: Path):
    here, gone = tmp_path / "here", tmp_path / "gone"

    def remove() -> None:
        here.rename(gone)  # First, as a save may be under way.
        shutil.rmtree(gone)

    hooks = At(remove, call=3)
    with pytest.raises(MovedError, match="was removed, or moved to another disk"):
        run.train(config, here, hooks=hooks)
    assert not [*here.rglob("*")], [*here.rglob("*")]
