"""Faults on purpose: what they do, and that a run without them is the same."""

import signal

import pytest

from jaxtrain.errors import CheckpointError, UserError
from jaxtrain.processes.hooks import parse_faults
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines, read_summary

CONFIG = recipe(
    train="TrainConfig(steps=24, eval_every_steps=100)",
    checkpoint="CheckpointConfig(every_steps=8)",
    logging="LoggingConfig(every_steps=1)",
)


def test_places_are_read():
    plan = parse_faults("kill@step:120,nan@step:30, nan@step:31,enospc@save:2")
    assert plan.at == {"kill": {120}, "nan": {30, 31}, "enospc": {2}}
    assert parse_faults("").at == {}


@each_row("text", ["kill", "kill@step:0", "kill@save:1", "melt@step:1", "nan@step:x"])
def test_malformed_text_is_refused(text: str):
    with pytest.raises(
        UserError, match=r"JAXTRAIN_FAULT: .* is not one of kill@step:N"
    ):
        parse_faults(f"kill@step:1,{text}")


def test_malformed_variable_ends_the_command(cli: Cli, write_config):
    result = cli("--config", write_config(CONFIG), JAXTRAIN_FAULT="melt@step:1")
    assert result.code == 2
    assert "JAXTRAIN_FAULT: 'melt@step:1' is not one of" in result.stderr


def test_only_the_second_save_fails():
    plan = parse_faults("enospc@save:2")
    plan.before_save(10)
    with pytest.raises(CheckpointError, match="step 20: No space left on device"):
        plan.before_save(20)
    plan.before_save(30)


@pytest.mark.parametrize(
    "cache", ["device", pytest.param("stream", marks=pytest.mark.slow)]
)
def test_nan_is_skipped_by_the_guard(cli: Cli, write_config, cache: str):
    """That step and no other, again and again the same."""
    words = ["--config", write_config(CONFIG), "--data.cache", cache]
    for name in ("one", "other"):
        result = cli(*words, "--workdir", name, JAXTRAIN_FAULT="nan@step:5")
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
    assert cli(*words, "--workdir", "whole").code == 0
    fault = "enospc@save:2,kill@step:20"
    killed = cli.process(*words, "--workdir", "run", JAXTRAIN_FAULT=fault)
    assert killed.code == -signal.SIGKILL
    assert "could not save step 16: No space left on device" in killed.stderr
    run, whole = cli.directory / "run", cli.directory / "whole"
    assert [p.name for p in (run / "checkpoints").iterdir()] == ["8"]
    assert cli(*words, "--workdir", "run").code == 0
    assert read_lines(run, "train") == read_lines(whole, "train")
    assert read_summary(run)["eval"] == read_summary(whole)["eval"]
