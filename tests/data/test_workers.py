"""Data workers that are killed, and workers whose trainer is."""

import os
import signal
from pathlib import Path

import pytest

from benchmarks.kills import alive, children, shared_memory
from tests.helpers.processes import Cli, awaiting_signal
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.waiting import PATIENCE, wait_for_lines, wait_until

WORKERS = recipe(
    data='DataConfig(source="digits", batch_size=64, workers=2, '
    "validation_fraction=0.0)",
    train="TrainConfig(steps=60)",
    logging="LoggingConfig(every_steps=1)",
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    write_recipe(folder / "recipe.py", WORKERS)
    words = ["--config", "recipe.py", "--workdir", "run", "--data.workers", 0]
    Cli(folder).done(*words, "--data.cache", "stream")
    return folder


@pytest.mark.slow
def test_killed_worker_is_replaced_and_no_example_lost(undisturbed: Path, cli: Cli):
    words = ["--config", undisturbed / "recipe.py", "--workdir", "run"]
    fault = "worker_kill@step:10"
    result = cli.process(*words, "--data.workers", 1, fault=fault)
    assert result.code == 0, result.stderr
    assert result.stderr.count("a data worker died with exit code -9") == 1
    assert "Traceback" not in result.stderr
    run = cli.directory / "run"
    assert read_lines(run, "train") == read_lines(undisturbed / "run", "train")
    assert read_summary(run)["eval"] == read_summary(undisturbed / "run")["eval"]


@pytest.mark.exhaustive
def test_workers_that_die_again_and_again_end_the_run(undisturbed: Path, cli: Cli):
    words = ["--config", undisturbed / "recipe.py", "--workdir", "run"]
    fault = ",".join(f"worker_kill@step:{step}" for step in (12, 22, 32, 42))
    result = cli.process(*words, fault=fault)
    assert result.code == 75, result.stderr
    assert (
        "error: a data worker died with exit code -9 after 3 restarts" in result.stderr
    )
    assert "Traceback" not in result.stderr
    rest = cli.process(*words)
    assert rest.code == 0
    assert "leaked" not in rest.stderr  # Of shared memory, once its workers have ended.
    run = cli.directory / "run"
    assert read_lines(run, "train") == read_lines(undisturbed / "run", "train")


@pytest.mark.exhaustive
def test_signal_to_the_whole_group(undisturbed: Path, cli: Cli):
    """As Ctrl-C and batch systems send it: the workers leave it to the trainer."""
    words = ["--config", undisturbed / "recipe.py", "--workdir", "run"]
    program = awaiting_signal(30, last_word=words[-1])
    process = cli.start(*words, program=program, session=True)
    run = cli.directory / "run"
    wait_for_lines(run / "metrics.jsonl", 5, process)
    workers = children(process.pid)
    os.killpg(process.pid, signal.SIGTERM)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143, stderr
    assert "is saved; the same command resumes" in stderr and "Traceback" not in stderr
    wait_until(lambda: not any(map(alive, workers)))
    # Without workers the rest is the same.
    assert cli(*words, "--data.workers", 0, "--data.cache", "stream").code == 0
    assert read_lines(run, "train") == read_lines(undisturbed / "run", "train")


@pytest.mark.slow
def test_nothing_outlives_a_killed_trainer(undisturbed: Path, cli: Cli):
    words = ["--config", undisturbed / "recipe.py", "--workdir", "run"]
    process = cli.start(*words, "--data.workers", 1, "--train.steps", 100000)
    wait_for_lines(cli.directory / "run" / "metrics.jsonl", 5, process)
    workers = children(process.pid)
    assert len(workers) >= 2  # One, and the tracker of shared memory.
    segments = shared_memory({process.pid, *workers})
    assert segments
    process.kill()
    wait_until(lambda: not any(map(alive, workers)))
    process.communicate(timeout=PATIENCE)
    wait_until(lambda: not any(map(os.path.exists, segments)))
