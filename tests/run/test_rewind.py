"""Going back through the real command line, by hand and after a loss spike.

The recipe is a noisy one, with small batches: one loss, late in the run, is above the
limit of 3.7 standard deviations.
"""

import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtrain.run.progress import Progress
from tests.helpers.command import Result
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import arrays, assert_same_run, read_lines, read_summary

STEPS, EVERY = 120, 20
CHANGES = {
    "seed": "6",
    "data": 'DataConfig(source="digits", batch_size=8)',
    "optimizer": 'OptimizerConfig(name="sgd", learning_rate=0.02)',
    "train": f"TrainConfig(steps={STEPS}, ema_decay=0.9, eval_every_steps=50, "
    "spike_sigma=3.7, spike_window=20)",
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
    """A finished run that told of its spikes and did nothing about them."""
    return run(tmp_path_factory.mktemp("undisturbed"), "run")


def copy(undisturbed: Path, folder: Path, name: str = "run") -> Path:
    return Path(shutil.copytree(undisturbed, folder / name))


def names(workdir: Path) -> set[str]:
    return {path.name for path in (workdir / "checkpoints").iterdir()}


@pytest.mark.slow
def test_spike_leads_back_and_its_data_are_left_out(undisturbed: Path, tmp_path: Path):
    """As by hand; and where the run was interrupted makes no difference."""
    (told,) = events(undisturbed, "loss spike")
    back = (told["step"] - 1) // EVERY * EVERY
    num_skipped = told["step"] - back
    assert 0 < back < back + 7 < told["step"] < STEPS
    rewind = ["--train.on-spike", "rewind"]
    alone = run(tmp_path, "alone", *rewind)
    (event,) = events(alone, "rewound for a loss spike")
    assert (event["step"], event["from_step"]) == (back, told["step"])
    assert (event["loss"], event["loss_limit"]) == (told["loss"], told["loss_limit"])
    assert read_summary(alone)["data_offset"] == num_skipped
    assert not events(alone, "loss spike")
    by_hand = copy(undisturbed, tmp_path, "by hand")
    run(tmp_path, "by hand", "--resume-step", back, "--skip-steps", num_skipped)
    assert_same_run(alone, by_hand, STEPS)
    run(tmp_path, "parts", *rewind, "--train.stop-after-steps", back + 7)
    parts = run(tmp_path, "parts", *rewind)
    assert_same_run(alone, parts, STEPS)
    assert f"rewound-{back + 7}" in names(parts)
    run(tmp_path, "parts", *rewind)  # It is finished.
    assert arrays(alone, STEPS) != arrays(undisturbed, STEPS)


@pytest.mark.slow
def test_too_many_spikes_end_with_code_5(tmp_path: Path):
    words = ["--train.on-spike", "rewind", "--train.spike-sigma", 0.5]
    result = start(tmp_path, "run", *words)
    assert result.code == 5, result.stderr
    for text in ("after 3 others that led back to checkpoint", "--resume-step"):
        assert text in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_skipped_spikes_are_the_same_after_a_stop(tmp_path: Path):
    """The decision is a function of the state: with many spikes, to the last bit."""
    words = ["--train.on-spike", "skip", "--train.spike-sigma", 1.0]
    whole = run(tmp_path, "whole", *words)
    assert read_summary(whole)["skipped_steps"] > 5
    run(tmp_path, "parts", *words, "--train.stop-after-steps", 77)
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
    (event,) = events(workdir, "rewound, as asked")
    assert (event["step"], event["from_step"], event["data_offset"]) == (40, STEPS, 0)
    newer = {f"rewound-{step}" for step in range(60, STEPS + 1, EVERY)}
    assert newer < names(workdir)
    moved = workdir / f"metrics.rewound-{STEPS}.jsonl"
    assert moved.read_bytes() == (undisturbed / "metrics.jsonl").read_bytes()
    summary = workdir / f"summary.rewound-{STEPS}.json"
    assert summary.read_bytes() == (undisturbed / "summary.json").read_bytes()
    assert not (workdir / "skips.json").exists()


@pytest.mark.slow
def test_same_commands_end_the_same(undisturbed: Path, tmp_path: Path):
    """Even if the run ends before it has saved what it leaves out."""
    words = ["--resume-step", 60, "--skip-steps", 3]
    one, other = (copy(undisturbed, tmp_path, name) for name in ("one", "other"))
    run(tmp_path, "one", *words)
    run(tmp_path, "other", *words, "--train.stop-after-steps", 60)
    assert not {p for p in names(other) if p.isdigit() and int(p) > 60}
    run(tmp_path, "other", "--train.stop-after-steps", 70)
    run(tmp_path, "other")
    assert_same_run(one, other, STEPS)
    assert arrays(one, STEPS) != arrays(undisturbed, STEPS)
    assert read_summary(other)["data_offset"] == 3
    # From a later checkpoint, more is left out.
    run(tmp_path, "other", "--resume-step", 100, "--skip-steps", 2)
    assert read_summary(other)["data_offset"] == 5


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["device", "stream"])
def test_data_that_are_left_out_are_those_of_the_next_steps(tmp_path: Path, cache: str):
    """Weights that hardly move: the loss of a step tells its batch."""
    words = ["--data.cache", cache, "--optimizer.learning-rate", 1e-30]
    words += ["--model.name", "cnn4", "--data.image-size", 16, "--model.dropout", None]
    words += ["--checkpoint.every-steps", 4, "--logging.every-steps", 1]
    words += ["--train.steps", 12]
    workdir = run(tmp_path, "run", *words)
    before = [line["loss"] for line in read_lines(workdir, "train")]
    run(tmp_path, "run", *words, "--resume-step", 4, "--skip-steps", 3)
    after = [line["loss"] for line in read_lines(workdir, "train")]
    assert after[:4] == before[:4]
    assert after[4:9] == before[7:12]
    assert len(set(before)) == 12


@pytest.mark.slow
@each_row(
    ("words", "message"),
    [
        (["--resume-step", 55], "no such checkpoint in .*; there is 20, 40, "),
        (["--resume-step", 40, "--fresh"], "with --fresh"),
        (["--skip-steps", 3], "no effect without --resume-step"),
        (["--resume-step", 40, "--skip-steps", -1], "expected 0 or more"),
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


@given(step=st.integers(0, 99), ahead=st.integers(0, 99))
def test_data_go_on_with_the_first_batch_that_was_not_left_out(step: int, ahead: int):
    progress, last = Progress(), step + ahead
    progress.leave_out(step, last)
    assert progress.data_position(step) == last + 1


def test_going_back_in_an_empty_folder_leaves_none_behind(tmp_path: Path):
    result = start(tmp_path, "run", "--resume-step", 40)
    assert result.code == 2
    assert "--resume-step 40: no run in" in result.stderr
    assert not (tmp_path / "run").exists()
