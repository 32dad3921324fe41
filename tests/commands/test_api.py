"""`jaxtrain.train`, as scripts and notebooks call it."""

import os
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rich.console

import jaxtrain
from jaxtrain.checkpoints.folder import committed_steps
from jaxtrain.config import Config, replace
from jaxtrain.config.recipe import load_config
from jaxtrain.records import progress_bar
from jaxtrain.records.progress_bar import BarState, make_bar
from tests.helpers.recipes import EIGHT_STEPS, write_recipe
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.waiting import PATIENCE, wait_until


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(write_recipe(tmp_path / "recipe.py", EIGHT_STEPS))


@pytest.mark.slow
def test_it_is_called_twice_in_a_process(config: Config, tmp_path: Path):
    summaries = [jaxtrain.train(config, tmp_path / name) for name in ("a", "b")]
    assert summaries[0]["step"] == 8
    assert summaries[0]["eval"] == summaries[1]["eval"]
    assert summaries[0]["eval"] == read_summary(tmp_path / "a")["eval"]
    # A finished run is not trained again.
    again = jaxtrain.train(config, str(tmp_path / "a"))
    assert again == read_summary(tmp_path / "a")


@pytest.mark.slow
def test_an_interrupt_saves_and_the_same_call_goes_on(config: Config, tmp_path: Path):
    endless = replace(config, "train.steps", 100_000)
    workdir = tmp_path / "run"

    def interrupt() -> None:
        # Any: the first ones are soon removed again.
        wait_until(lambda: committed_steps(workdir / "checkpoints"))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt, match="is saved; the same command resumes"):
        jaxtrain.train(endless, workdir)
    thread.join()
    stopped = read_lines(workdir)[-1]["step"]
    longer = replace(endless, "train.stop_after_steps", stopped + 2)
    assert jaxtrain.train(longer, workdir)["step"] == stopped + 2


def test_a_notebook_shows_a_bar(monkeypatch: pytest.MonkeyPatch):
    shown: list[str] = []

    def display(html: str, *, display_id: bool) -> Any:
        shown.append(html)
        return SimpleNamespace(update=shown.append)

    fake = SimpleNamespace(display=display, HTML=str)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=fake))
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    monkeypatch.setattr(progress_bar, "EVERY_SECONDS", PATIENCE)
    console = rich.console.Console(force_jupyter=True)
    states = iter([(3, "compiling"), (5, "loss < 1"), (10, "")])

    def look() -> BarState:
        step, text = next(states)
        return BarState(step=step, total_steps=10, text=text, times="0:01")

    bar = make_bar(console, look)
    assert bar is not None
    bar.refresh()  # Too soon after the first.
    monkeypatch.setattr(progress_bar, "EVERY_SECONDS", 0.0)
    bar.refresh()
    bar.close()
    assert shown == [
        '<progress value="3" max="10"></progress> 3/10 compiling  0:01',
        '<progress value="5" max="10"></progress> 5/10 loss &lt; 1  0:01',
        '<progress value="10" max="10"></progress> 10/10   0:01',
    ]


def test_a_file_gets_no_bar(tmp_path: Path):
    with (tmp_path / "output").open("w") as file:
        assert make_bar(rich.console.Console(file=file), pytest.fail) is None
