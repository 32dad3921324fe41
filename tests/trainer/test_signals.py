"""A signal may come at any moment: in a compilation, an evaluation, a save."""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxtrain.checkpoints import saving, store
from jaxtrain.checkpoints.folder import committed_steps
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.cli import main
from jaxtrain.errors import Interrupted
from jaxtrain.processes.signals import StopSignals
from jaxtrain.trainer.saves import Saves
from jaxtrain.training.compiled import Compiled
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.waiting import PATIENCE, wait_for_lines

CONFIG = recipe(
    train="TrainConfig(steps=12, eval_every_steps=4)",
    checkpoint="CheckpointConfig(every_steps=3)",
    logging="LoggingConfig(every_steps=1)",
)
# In the midst of what the signal comes, and the step that is saved for it.
PLACES = {
    "save": (Checkpoints, "save", 3),
    "compilation": (Compiled, "_compile", 0),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    config = write_recipe(folder / "recipe.py", CONFIG)
    assert main(["--config", str(config), "--workdir", str(folder / "run")]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_signal_in_the_midst_of(
    place: str, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    owner, name, saved = PLACES[place]
    words = ["--config", str(undisturbed / "recipe.py"), "--workdir", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, with_signal(getattr(owner, name)))
        assert main(words) == 143
    steps = [int(p.name) for p in (tmp_path / "checkpoints").iterdir()]
    assert max(steps, default=0) == saved
    assert main(words) == 0
    for kind in ("train", "eval"):
        assert read_lines(tmp_path, kind) == read_lines(undisturbed / "run", kind)
    ours, theirs = read_summary(tmp_path), read_summary(undisturbed / "run")
    assert ours["eval"] == theirs["eval"] and ours["best"] == theirs["best"]


@pytest.mark.slow
def test_signal_while_a_save_is_under_way(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It is written only once the run has come to its end: both saves are whole."""
    words = ["--config", str(undisturbed / "recipe.py"), "--workdir", str(tmp_path)]
    ending, (write, finish) = threading.Event(), (saving.write, Saves.finish)

    def signal_and_write(*args: Any) -> None:
        if not ending.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
        assert ending.wait(PATIENCE)
        write(*args)

    def end(self: Saves) -> None:
        ending.set()
        finish(self)

    with monkeypatch.context() as patch:
        patch.setattr(saving, "write", signal_and_write)
        patch.setattr(Saves, "finish", end)
        assert main(words) == 143
    last = read_lines(tmp_path, "train")[-1]["step"]
    assert set(committed_steps(tmp_path / "checkpoints")) == {3, last}
    assert main(words) == 0
    assert read_lines(tmp_path, "train") == read_lines(undisturbed / "run", "train")


@pytest.mark.slow
def test_signal_in_the_midst_of_reading_a_checkpoint(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The run ends; the checkpoint is not taken for a damaged one."""
    words = ["--config", str(undisturbed / "recipe.py"), "--workdir", str(tmp_path)]
    assert main([*words, "--train.stop-after-steps", "6"]) == 0
    with monkeypatch.context() as patch:
        owner, name = store, "load"
        patch.setattr(owner, name, with_signal(getattr(owner, name)))
        assert main(words) == 143
    assert {p.name for p in (tmp_path / "checkpoints").iterdir()} == {"3", "4", "6"}
    assert main(words) == 0
    assert [line["step"] for line in read_lines(tmp_path, "event")] == [6, 6]


@pytest.mark.parametrize("where", ["destructor", "collector"])
def test_signal_where_python_swallows_what_is_raised(
    where: str, capsys: pytest.CaptureFixture[str]
):
    """It stops the program all the same, without a word of Python's own."""

    class Dying:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    def collected(*_: Any) -> None:
        gc.callbacks.remove(collected)
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted), StopSignals() as signals:
        if where == "destructor":
            Dying()
        else:
            gc.callbacks.append(collected)
            gc.collect(0)
        time.sleep(PATIENCE)
    assert signals.signum == signal.SIGTERM
    assert capsys.readouterr().err == ""


def with_signal(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, with a SIGTERM at its first call."""
    calls = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if not calls:
            calls.append(args)
            os.kill(os.getpid(), signal.SIGTERM)
        return function(*args, **kwargs)

    return call


@pytest.mark.slow
def test_ctrl_c_that_ends_the_reader_of_the_output_first(cli: Cli, write_config: Any):
    """As a terminal does to `main.py ... 2>&1 | tee log`."""
    words = ["--config", write_config(CONFIG), "--workdir", "run"]
    process = cli.start(*words, "--train.steps", 100_000)
    run = cli.directory / "run"
    wait_for_lines(run / "metrics.jsonl", 3, process)
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 130
    saved = max(int(path.name) for path in (run / "checkpoints").iterdir())
    assert saved == read_lines(run, "train")[-1]["step"]
