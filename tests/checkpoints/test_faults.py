"""Runs with faults on purpose, which end as those without."""

import signal

import pytest

from tests.helpers.faulty import faulty
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe
from tests.helpers.runs import read_lines, read_summary

CONFIG = recipe(
    train="TrainConfig(steps=24, eval_every_steps=100)",
    checkpoint="CheckpointConfig(every_steps=8)",
    logging="LoggingConfig(every_steps=1)",
)


@pytest.mark.slow
def test_nan_is_skipped_by_the_guard(cli: Cli, write_config):
    """That step and no other, again and again the same."""
    words = ["--config", write_config(CONFIG), "--data.cache", "stream"]
    for name in ("one", "other"):
        with faulty("nan@step:5"):
            result = cli(*words, "--workdir", name)
        assert result.code == 0, result.stderr
    one, other = cli.directory / "one", cli.directory / "other"
    skipped = {line["step"]: line["skipped_steps"] for line in read_lines(one, "train")}
    assert skipped == {step: int(step == 5) for step in range(1, 25)}
    assert read_lines(one) == read_lines(other)


@pytest.mark.slow
def test_killed_and_full_disk_then_the_same_command_ends_the_same(
    cli: Cli, write_config
):
    words = ["--config", write_config(CONFIG)]
    cli.done(*words, "--workdir", "whole")
    fault = "enospc@save:2,kill@step:20"
    killed = cli.process(*words, "--workdir", "run", fault=fault)
    assert killed.code == -signal.SIGKILL
    assert "could not save step 16: No space left on device" in killed.stderr
    run, whole = cli.directory / "run", cli.directory / "whole"
    assert [p.name for p in (run / "checkpoints").iterdir()] == ["8"]
    cli.done(*words, "--workdir", "run")
    assert read_lines(run, "train") == read_lines(whole, "train")
    assert read_summary(run)["eval"] == read_summary(whole)["eval"]
