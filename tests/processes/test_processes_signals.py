"""Signals to one of two processes, or to both: the same end for both."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from jaxtrain.checkpoints.folder import COMMITTED
from tests.helpers.processes import (
    STEADY,
    Cli,
    awaiting_signal,
    run_two,
    stopped_steps,
    two,
)
from tests.helpers.recipes import recipe
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.waiting import (
    PATIENCE,
    signal_until_end,
    wait_for_lines,
    wait_until,
    wait_until_asleep,
)

CONFIG = recipe(
    data='DataConfig(source="digits", batch_size=64, cache="stream")',
    train="TrainConfig(steps=300, eval_every_steps=20)",
    checkpoint="CheckpointConfig(every_steps=20)",
    logging="LoggingConfig(every_steps=1)",
)
NOTHING = "no step was finished yet, so no progress is lost"
# The command line, which does something else at the first call of one function.
PROGRAM = """
import os, pathlib, sys, time
import jax
from jaxtrain.__main__ import run
from jaxtrain.checkpoints import store
from jaxtrain.trainer import trainer

def act():
    {act}

def wait():
    pathlib.Path("there").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)

original, calls = {place}, []

def function(*args, **kwargs):
    calls.append(args)
    pathlib.Path("came-" + sys.argv[-1]).touch()
    if len(calls) == 1 and sys.argv[-1] == "{index}":
        act()
    return original(*args, **kwargs)

{place} = function
run()
"""

Both = Sequence["subprocess.Popen[str]"]


@pytest.fixture
def start_both(cli: Cli, write_config: Callable[..., Path]) -> Callable[..., Both]:
    """Start two processes of a run in a process group of their own."""
    config = write_config(CONFIG)

    def start(*words: object, program: str = "", **env: Any) -> Both:
        one, other = two("--config", config, "--workdir", "run", *words)
        first = cli.start(*one, group=0, program=program, **env)
        group = first.pid
        return first, cli.start(*other, group=group, program=program, **env)

    return start


def send(both: Both, to: int | str, signum: int) -> None:
    if to == "group":
        os.killpg(both[0].pid, signum)
    else:
        both[int(to)].send_signal(signum)


def end(both: Both, *codes: int) -> list[str]:
    """Return what the processes told; they must end with the code, or each with its."""
    errors = [process.communicate(timeout=PATIENCE)[1] for process in both]
    ended = [process.returncode for process in both]
    assert ended == [*(codes if len(codes) == 2 else 2 * codes)], errors
    assert not any("Traceback" in error for error in errors), errors
    return errors


def wait_for(path: Path, both: Both) -> None:
    wait_until(path.exists, *both)


def steps(run: Path) -> list[int]:
    return sorted(int(p.name) for p in (run / "checkpoints").iterdir())


# The signal, who gets it, and when: after so many lines of metrics (the first tells
# that the run goes on, before its first step), or inside of a function.
STOPS = [
    (signal.SIGTERM, "group", 3),
    (signal.SIGINT, 1, "trainer.Trainer.evaluate"),
    (signal.SIGUSR1, 0, "store.Checkpoints.save"),
]


@pytest.mark.slow
def test_whichever_gets_which_signal_both_stop_at_the_same_step(cli: Cli, start_both):
    """One run, stopped again and again, ends like one that was not."""
    whole, run = cli.directory / "whole", cli.directory / "run"
    result = run_two(cli.directory, "--config", "recipe.py", "--workdir", whole)
    assert result.code == 0, result.stderr
    saved, lines = [], 0
    for signum, to, when in STOPS:
        if isinstance(when, str):
            act = f"os.kill(os.getpid(), {int(signum)})"
            both = start_both(program=PROGRAM.format(act=act, place=when, index=to))
        else:
            both = start_both(program=awaiting_signal(30, last_word=0))
            wait_for_lines(run / "metrics.jsonl", lines + when, both[0])
            send(both, to, signum)
        errors = end(both, 130 if signum == signal.SIGINT else 143)
        (step,), (other,) = map(stopped_steps, errors)
        assert step == other == steps(run)[-1] < 300
        saved.append(step)
        lines = len(read_lines(run))
    end(start_both(), 0)
    for kind in ("train", "eval"):
        assert read_lines(run, kind) == read_lines(whole, kind)
    for name in ("eval", "best"):
        assert read_summary(run)[name] == read_summary(whole)[name]
    events = [
        (line["step"], line["event"].split()[0]) for line in read_lines(run, "event")
    ]
    assert [step for step, event in events if event == "resumed"] == saved
    assert [step for step, event in events if event == "stopped"] == saved
    assert len(events) == 2 * len(saved)


@pytest.mark.slow
@pytest.mark.parametrize("to", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_second_signal_to_one_ends_it_at_once(cli: Cli, start_both, to: int):
    """Though its main thread waits for the other, which JAX then ends."""
    program = PROGRAM.format(
        act="wait()", place="trainer.Trainer.evaluate", index=1 - to
    )
    words = ["--checkpoint.every-steps", 10, "--heartbeat-timeout", 20]
    both = start_both(*words, program=STEADY + program)
    wait_for(cli.directory / "there", both)
    wait_for(cli.directory / "run" / "checkpoints" / "10" / COMMITTED, both)
    signal_until_end(both[to], signal.SIGTERM)
    told = "not saved, as a second signal arrived: the same command resumes from step"
    codes = [1, -signal.SIGABRT]
    assert f"stopped: {told} 10" in end(both, *(codes if to == 0 else codes[::-1]))[to]


@pytest.mark.slow
def test_signal_between_the_meeting_and_the_run(cli: Cli, start_both):
    """Process 0 waits inside of JAX for the other, which does not come."""
    program = PROGRAM.format(act="wait()", place="jax.default_backend", index=1)
    both = start_both("--checkpoint.grace-seconds", 1, program=program)
    for name in ("there", "came-0"):
        wait_for(cli.directory / name, both)
    wait_until_asleep(both[0])
    send(both, 0, signal.SIGINT)
    told = end(both, 130, -signal.SIGABRT)[0]
    assert (
        "stopped: no step was finished since the start, so no progress is lost" in told
    )


@pytest.mark.slow
def test_signal_before_all_have_come_ends_the_one_that_waits(cli: Cli, write_config):
    words = two("--config", write_config(CONFIG), "--workdir", "run")[1]
    process = cli.start(*words)
    wait_until_asleep(process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, stderr
    assert stderr == f"stopped: {NOTHING}\n"


@pytest.mark.exhaustive
def test_signals_at_the_end_of_all_are_too_late(cli: Cli, start_both):
    """Process 1 waits for process 0 in JAX's shutdown."""
    act = "import atexit; atexit.register(wait)"
    program = PROGRAM.format(act=act, place="trainer.Trainer.evaluate", index=0)
    both = start_both("--train.steps", 5, program=program)
    wait_for(cli.directory / "there", both)
    wait_for(cli.directory / "run" / "summary.json", both)
    time.sleep(1)  # From its way there into the wait.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        send(both, "group", signum)
    (cli.directory / "go").touch()
    assert end(both, 0) == ["", ""]


@pytest.mark.exhaustive
def test_stop_whose_save_fails_ends_both_and_says_so(cli: Cli, start_both):
    words = ["--checkpoint.every-steps", 1000, "--train.eval-every-steps", 1000]
    program = awaiting_signal(30, last_word=1)
    both = start_both(*words, program=program, fault="enospc@save:1")
    wait_for_lines(cli.directory / "run" / "metrics.jsonl", 3, both[0])
    send(both, 1, signal.SIGTERM)
    for told in end(both, 1):
        assert "could not save step" in told and "No space left on device" in told
        assert "the final checkpoint is missing" in told
    assert steps(cli.directory / "run") == []
