"""A stop that cannot save ends within its time, whatever hangs."""

import math
import signal
import subprocess

import pytest

from jaxtrain.checkpoints.folder import COMMITTED
from jaxtrain.processes.signals import Grace
from tests.helpers.processes import HANG_TOLD, STEADY, Cli, two
from tests.helpers.recipes import recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.waiting import (
    PATIENCE,
    wait_until,
    wait_until_asleep,
)

GRACE = 1
CONFIG = recipe(
    train="TrainConfig(steps=24, eval_every_steps=100)",
    checkpoint=f"CheckpointConfig(every_steps=8, grace_seconds={GRACE})",
)
GOES_ON = "the same command resumes from step 16\n"
MESSAGE = f"stopped: not saved within checkpoint.grace_seconds = {GRACE}: {GOES_ON}"

NOTHING_LOST = (
    "no step was finished since {}, so no progress is lost: the same command resumes "
    "from that step\n"
)


# The Python interface, of a run that cannot save.
FROM_PYTHON = """
import ctypes
import jaxtrain
from jaxtrain.config import CheckpointConfig, Config
from jaxtrain.trainer import train as run

def train(*_, signals, **options):
    signals.defer, signals.grace.step = True, 1
    print("ready", flush=True)
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)

run.train = train
jaxtrain.train(Config(checkpoint=CheckpointConfig(grace_seconds=0.2)), "run")
"""

# The command line, whose main thread waits in C instead of compiling.
COMPILES_LONG = """
import ctypes
from jaxtrain.__main__ import run
from jaxtrain.training.compiled import Compiled

def compile(*args):
    print("ready", flush=True)
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)

Compiled._compile = compile
run()
"""


def wait_for_hang(cli: Cli, *processes: "subprocess.Popen[str]") -> None:
    """Before step 20, once step 16 is committed."""
    saved = cli.directory / "run" / "checkpoints" / "16" / COMMITTED
    hangs = cli.directory / "hangs"
    wait_until(lambda: saved.exists() and hangs.exists(), *processes)


@pytest.mark.slow
def test_one_that_waits_for_one_that_hangs_ends(cli: Cli, write_config):
    """Its main thread waits inside a collective, where Python calls no handlers."""
    words = ["--config", write_config(CONFIG), "--workdir", "run"]
    one, other = two(*words)
    program = STEADY + HANG_TOLD
    both = [
        cli.start(*one, program=program),
        cli.start(*other, program=program, fault="hang@step:20"),
    ]
    wait_for_hang(cli, *both)
    both[0].send_signal(signal.SIGTERM)
    errors = [process.communicate(timeout=PATIENCE)[1] for process in both]
    codes = [process.returncode for process in both]
    assert codes == [143, -signal.SIGABRT], errors
    assert MESSAGE in errors[0]
    cli.done(*words)
    assert read_summary(cli.directory / "run")["step"] == 24
    assert [line["step"] for line in read_lines(cli.directory / "run", "event")] == [16]


@pytest.mark.slow
def test_a_stop_while_the_first_step_compiles_loses_nothing(cli: Cli, write_config):
    checkpoint = "CheckpointConfig(grace_seconds=0.5)"
    words = ["--config", write_config(recipe(checkpoint=checkpoint))]
    process = cli.start(*words, "--workdir", "run", program=STEADY + COMPILES_LONG)
    assert process.stdout is not None
    while process.stdout.readline() not in ("ready\n", ""):
        pass
    wait_until_asleep(process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, stderr
    assert f"stopped: {NOTHING_LOST.format('the start')}" in stderr


@pytest.mark.slow
def test_python_has_the_same_limit(cli: Cli):
    process = cli.start(program=STEADY + FROM_PYTHON)
    assert process.stdout is not None
    # After what is shown of the start.
    assert "ready\n" in iter(process.stdout.readline, "")
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143, stderr
    told = "stopped: not saved within checkpoint.grace_seconds = 0.2: the same command"
    assert f"{told} resumes from step 0\n" in stderr


@each_row(
    ("limit", "call", "allowed"),
    [(25, 0, 25), (25, 12, 25), (25, 44, 88), (None, 44, math.inf)],
)
def test_a_slow_step_has_the_time_to_end(limit, call: float, allowed: float):
    grace = Grace()
    grace.limit(limit, lambda: 0)
    grace.call_seconds = call
    assert grace.allowed() == allowed
