"""Going back to an earlier checkpoint, and skipped spikes, by the command line.

The recipe is a noisy one, with small batches.
"""

import re
import shutil
from pathlib import Path

import pytest

from tests.helpers.command import Result
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import assert_same_run, read_lines, read_summary

STEPS, EVERY = 60, 10
CHANGES = {
    "seed": "6",
    "data": 'DataConfig(source="digits", batch_size=8)',
    "optimizer": "SGDConfig(learning_rate=0.02)",
    "train": f"TrainConfig(steps={STEPS}, ema_decay=0.9, eval_every_steps=25)",
    "checkpoint": f"CheckpointConfig(every_steps={EVERY}, keep=100)",
    "logging": "LoggingConfig(every_steps=10, tensorboard=False)",
}


def start(folder: Path, name: str, *words: object) -> Result:
    config = write_recipe(folder / "recipe.py", recipe(**CHANGES))
    return Cli(folder)("--config", config, "--workdir", folder / name, *words)


def run(folder: Path, name: str, *words: object) -> Path:
    result = start(folder, name, *words)
    assert result.code == 0, result.stderr
    return folder / name


def events(workdir: Path, event: str) -> list[dict]:
    return [e for e in read_lines(workdir, "event") if e["event"].startswith(event)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    return run(tmp_path_factory.mktemp("undisturbed"), "run")


def copy(undisturbed: Path, folder: Path, name: str = "run") -> Path:
    return Path(shutil.copytree(undisturbed, folder / name))


def names(workdir: Path) -> set[str]:
    return {path.name for path in (workdir / "checkpoints").iterdir()}


@pytest.mark.slow
def test_skipped_spikes_are_the_same_after_a_stop(tmp_path: Path):
    """The decision is a function of the state: with many spikes, to the last bit."""
    words = ["--train.spike-sigma", 0.3]
    whole = run(tmp_path, "whole", *words)
    assert read_summary(whole)["skipped_steps"] > 5
    run(tmp_path, "parts", *words, "--train.stop-after-steps", 37)
    parts = run(tmp_path, "parts", *words)
    assert_same_run(whole, parts, STEPS)
    assert events(whole, "loss spike") == events(parts, "loss spike")


@pytest.mark.slow
def test_going_back_alone_ends_like_an_undisturbed_run(
    undisturbed: Path, tmp_path: Path
):
    workdir = copy(undisturbed, tmp_path)
    run(tmp_path, "run", "--resume-step", 40)
    assert_same_run(undisturbed, workdir, STEPS)
    (event,) = events(workdir, "rewound (--resume-step)")
    assert (event["step"], event["from_step"]) == (40, STEPS)
    newer = {f"rewound-{step}" for step in range(50, STEPS + 1, EVERY)}
    assert newer < names(workdir)
    moved = workdir / f"metrics.rewound-{STEPS}.jsonl"
    assert moved.read_bytes() == (undisturbed / "metrics.jsonl").read_bytes()
    summary = workdir / f"summary.rewound-{STEPS}.json"
    assert summary.read_bytes() == (undisturbed / "summary.json").read_bytes()


@pytest.mark.slow
@each_row(
    ("words", "message"),
    [
        (["--resume-step", 55], "has no checkpoint of this step; choose from 10, 20, "),
        (["--resume-step", 40, "--fresh"], "with --fresh"),
    ],
)
def test_mistakes_are_named(
    undisturbed: Path, tmp_path: Path, words: list, message: str
):
    workdir = copy(undisturbed, tmp_path)
    before = sorted(workdir.rglob("*"))
    result = start(tmp_path, "run", *words)
    assert result.code == 2, result.stderr
    assert re.search(message, result.stderr), result.stderr
    assert sorted(workdir.rglob("*")) == before


def test_going_back_in_an_empty_folder_leaves_none_behind(tmp_path: Path):
    result = start(tmp_path, "run", "--resume-step", 40)
    assert result.code == 2
    assert "contains no run" in result.stderr
    assert not (tmp_path / "run").exists()
