"""What Weights & Biases gets, of a module that takes its place: it is not installed."""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jaxtrain.cli import main
from jaxtrain.config import LoggingConfig, TrainConfig
from jaxtrain.errors import UserError
from jaxtrain.records.run_log import RunLog
from tests.helpers.logged import logged_run
from tests.helpers.processes import ROOT
from tests.helpers.recipes import recipe

DIGITS = str(ROOT / "configs" / "digits.py")


class FakeRun:
    """A run, which drops records of a step before its last, as W&B does."""

    def __init__(self) -> None:
        self.step = 0
        self.axes: dict[str, str | None] = {}
        self.rows: list[dict[str, Any]] = []
        self.config: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.axes[name] = step_metric

    def log(self, values: dict[str, Any], step: int | None = None) -> None:
        step = self.step + 1 if step is None else step
        if step >= self.step:
            self.step = step
            self.rows.append(values)

    def finish(self) -> None:
        pass


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeRun]:
    """The runs that were begun, by their ids."""
    found: dict[str, FakeRun] = {}

    def init(*, id: str, config: dict[str, Any], **options: Any) -> FakeRun:
        assert options["resume"] == "allow" and options["allow_val_change"]
        run = found.setdefault(id, FakeRun())
        run.config |= config
        return run

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    return found


def write(workdir: Path, first: int, steps: range) -> None:
    """Write lines as an attempt does that goes on from step `first`."""
    run = logged_run(
        workdir,
        step=first,
        train=TrainConfig(steps=steps[-1]),
        logging=LoggingConfig(wandb_project="p", tensorboard=False),
    )
    log = RunLog(run, lambda: 1.5)
    for step in steps:
        log.record("train", step, loss=1 / step)
    log.record("eval", steps[-1], split="validation", loss=0.5)
    log.finish({"step": steps[-1], "eval": {"loss": math.inf}})
    log.close()


def scoped(scope: str, values: dict[str, float]) -> dict[str, float]:
    return {f"{scope}/{name}": value for name, value in values.items()}


def test_no_record_is_lost_after_a_rewind(tmp_path: Path, runs: dict[str, FakeRun]):
    write(tmp_path, 0, range(2, 9, 2))
    write(tmp_path, 4, range(6, 13, 2))
    (run,) = runs.values()
    # W&B's own step counts the records; the charts have ours as their axis.
    assert run.axes == {"step": None, "*": "step"}
    assert run.step == len(run.rows) == 10
    assert [row["step"] for row in run.rows] == [2, 4, 6, 8, 8, 6, 8, 10, 12, 12]
    first = {"epoch": 0.5, "wall_seconds": 1.5, "loss": 0.5}
    last = {"epoch": 3, "wall_seconds": 1.5, "loss": 0.5}
    assert run.rows[0] == {"step": 2, **scoped("train", first)}
    assert run.rows[-1] == {"step": 12, **scoped("validation", last)}


def test_the_config_and_the_summary_are_those_of_the_last_command(
    tmp_path: Path, runs: dict[str, FakeRun]
):
    write(tmp_path, 0, range(2, 9, 2))
    write(tmp_path, 8, range(10, 13, 2))
    (run,) = runs.values()
    assert run.config["train"]["steps"] == 12
    assert run.config["model"]["name"] == "convnet"
    assert run.summary == {"step": 12, "eval": {"loss": None}}  # JSON has no infinity.


def test_the_id_is_no_link(tmp_path: Path, runs: dict[str, FakeRun]):
    """It would send what it leads to, or write there."""
    for target in ("secret", "not there"):
        run = tmp_path / target.replace(" ", "-") / "run"
        run.mkdir(parents=True)
        (run.parent / "secret").write_text("precious")
        (run / "wandb_id").symlink_to(run.parent / target)
        with pytest.raises(UserError, match="wandb_id is a link"):
            write(run, 0, range(2, 9, 2))
        assert [p.name for p in run.parent.iterdir() if p != run] == ["secret"]
    assert not runs


def test_folder_that_wandb_has_left_is_not_wandb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "wandb").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["--config", DIGITS, "--logging.wandb-project", "p"]) == 2
    told = capsys.readouterr().err
    assert "requires wandb, which is not installed" in told and "pip install" in told
    assert "Traceback" not in told and not (tmp_path / "runs").exists()


def test_wandb_that_does_not_start(
    tmp_path: Path,
    write_config: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    config = write_config(recipe(train="TrainConfig(steps=4)"))
    words = ["--config", str(config), "--workdir", str(tmp_path / "run")]
    (tmp_path / "wandb.py").write_text(
        "def init(**options):\n    raise RuntimeError('api_key not configured')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert main([*words, "--logging.wandb-project", "p"]) == 2
    finally:
        del sys.modules["wandb"]
    error = capsys.readouterr().err
    for text in ("= 'p'", "api_key not configured", "wandb login"):
        assert text in error
    assert "Traceback" not in error
