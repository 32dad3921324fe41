"""Files that are removed from a workdir while a run writes into it.

The run ends with a workdir that can be used, or with an error.
"""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxtrain.checkpoints.folder import committed_steps
from jaxtrain.cli import main
from jaxtrain.config import Config
from jaxtrain.config.recipe import load_config
from jaxtrain.errors import MovedError, UserError
from jaxtrain.parallel import devices
from jaxtrain.processes.hooks import Hooks
from jaxtrain.records.held_folder import LOCK, locked
from jaxtrain.run import evaluations
from jaxtrain.run import train as run
from tests.helpers.recipes import EIGHT_STEPS, write_recipe
from tests.helpers.runs import arrays

pytestmark = pytest.mark.slow


class AfterStep(Hooks):
    """Does something once, after the call of a step, with no save under way."""

    def __init__(self, step: int, act: Callable[[], object]):
        self._step, self._act = step, act

    def during(self, attempt: Any) -> contextlib.AbstractContextManager[Any]:
        self._saved = attempt.job.saved
        return super().during(attempt)

    def after_call(self, step: int, metrics: object) -> None:
        if step == self._step:
            self._saved.wait()
            self._act()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    devices.start("cpu")
    path = tmp_path_factory.mktemp("removed") / "recipe.py"
    return load_config(write_recipe(path, EIGHT_STEPS))


def remove(workdir: Path, name: str) -> None:
    """Remove something as `rm -r` does beside a run, whose new files it may leave."""
    for path in [*workdir.iterdir()] if name == "*" else [workdir / name]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("step", "name"),
    [(3, "*"), (3, "config.json"), (3, LOCK), (8, "*"), (8, "checkpoints")],
)
def test_what_is_removed_from_a_live_run_is_written_again(
    step: int, name: str, config: Config, tmp_path: Path
):
    here = tmp_path / "here"
    hooks = AfterStep(step, lambda: remove(here, name))
    summary = run.train(config, here, hooks=hooks)
    assert summary["step"] == 8
    assert len(arrays(here, 8)) > 20
    assert not (here / LOCK).exists()
    for words in ("evaluate", "checkpoint --verify", "report"):
        assert main([*words.split(), "--workdir", str(here)]) == 0
    assert run.train(config, here)["step"] == 8


@pytest.mark.parametrize("name", ["*", "checkpoints", "checkpoints/8", "config.json"])
def test_what_is_removed_after_the_last_save(
    name: str,
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """The state of the last step may be gone: another one was tested in its place."""
    here, original = tmp_path / "here", evaluations._pass_over

    def passes(attempt: Any, dataset: Any, split: str, task: Any) -> Any:
        if split == "test":
            remove(here, name)
        return original(attempt, dataset, split, task)

    monkeypatch.setattr(evaluations, "_pass_over", passes)
    if name == "config.json":
        run.train(config, here)
    else:
        with pytest.raises(MovedError, match="checkpoint 8 was removed") as error:
            run.train(config, here)
        left = committed_steps(here / "checkpoints")
        then = f"goes on from step {left[-1]}" if left else "begins anew"
        assert str(error.value).endswith(then)
        assert not (here / "summary.json").exists()
        monkeypatch.undo()
        run.train(config, here)
    assert main(["evaluate", "--workdir", str(here)]) == 0


def test_what_is_removed_before_the_test(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    here, original = tmp_path / "here", evaluations._choose

    def choose(job: Any) -> int:
        remove(here, "checkpoints")
        return original(job)

    monkeypatch.setattr(evaluations, "_choose", choose)
    with pytest.raises(MovedError, match="all checkpoints were removed"):
        run.train(config, here)


def test_a_workdir_that_another_run_has_taken_is_left_to_it(
    config: Config, tmp_path: Path
):
    here = tmp_path / "here"
    with contextlib.ExitStack() as other:

        def take() -> None:
            remove(here, "*")
            other.enter_context(locked(here))

        with pytest.raises(UserError, match="another process trains in"):
            run.train(config, here, hooks=AfterStep(3, take))
        assert not (here / "config.json").exists()
