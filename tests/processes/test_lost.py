"""A process that is lost ends the others; the same command then goes on."""

import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxtrain.checkpoints.orbax import load
from tests.helpers.processes import Cli, run_two, two
from tests.helpers.recipes import recipe
from tests.helpers.runs import read_summary
from tests.helpers.waiting import PATIENCE, wait_for_lines

# The processes wait for each other in every step.
CONFIG = recipe(
    data='DataConfig(source="digits", batch_size=64, cache="stream")',
    train="TrainConfig(steps=48, eval_every_steps=100)",
    logging="LoggingConfig(every_steps=1)",
)
HANG = "hang@step:30"
# Of this package, which a collective tells that another is gone; or JAX's abort.
LOST = (75, -signal.SIGABRT)

Both = Sequence["subprocess.Popen[str]"]


@pytest.fixture
def start_both(cli: Cli, write_config: Callable[..., Path]) -> Callable[..., Both]:
    """Start two processes of a run; process `index` has the fault."""
    config = write_config(CONFIG)

    def start(index: int = 0, fault: str = "", *words: object) -> Both:
        words = ("--config", config, "--workdir", "run", *words)
        return [
            cli.start(*each, fault=fault if i == index else "")
            for i, each in enumerate(two(*words, "--heartbeat-timeout", 20))
        ]

    return start


def end(process: "subprocess.Popen[str]", *codes: int) -> str:
    """Return what the process told at its end."""
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode in codes, (process.returncode, stderr)
    return stderr


def finish(both: Both, run: Path) -> None:
    for process in both:
        end(process, 0)
    assert read_summary(run)["step"] == 48


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_killed_process_ends_the_other(cli: Cli, start_both, lost: int):
    both = start_both(lost, HANG)  # The other waits for it in a collective.
    run = cli.directory / "run"
    wait_for_lines(run / "metrics.jsonl", 12, both[0])
    both[lost].kill()
    told = end(both[1 - lost], *LOST)
    if both[1 - lost].returncode == 75:
        assert "error: lost connection to another process" in told
        assert "Traceback" not in told
    both[lost].communicate()
    finish(start_both(), run)


@pytest.mark.exhaustive
def test_silent_process_ends_the_other(cli: Cli, start_both):
    """Itself it ends when it comes back."""
    both = start_both(1, HANG)
    wait_for_lines(cli.directory / "run" / "metrics.jsonl", 12, both[0])
    both[1].send_signal(signal.SIGSTOP)
    end(both[0], *LOST)
    both[1].send_signal(signal.SIGCONT)
    end(both[1], *LOST)
    finish(start_both(), cli.directory / "run")


@pytest.mark.slow
def test_hang_of_one_ends_both(cli: Cli, start_both):
    both = start_both(1, HANG, "--train.step-timeout-seconds", 10)
    run = cli.directory / "run"
    # Those up to eight steps before are still to be told.
    wait_for_lines(run / "metrics.jsonl", 12, both[0])
    told = [end(process, 75) for process in both]
    # One may see the end of the other first.
    assert any("no step finished for 10 s" in text for text in told)
    finish(start_both(), run)


# Process that is killed, and where.
KILLS = [
    (2, "kill@start:1"),
    (0, "kill@step:1"),  # Before the others have compiled.
    (1, "kill@step:12"),
    (0, "kill@save:2"),
    (2, "kill@save:2"),
    (1, "kill@eval:1"),
    (0, "kill@stop:1"),
]


@pytest.mark.exhaustive
def test_each_of_three_killed_at_each_phase(
    cli: Cli, write_config: Callable[..., Path]
):
    words = ["--config", write_config(CONFIG), "--data.batch-size", 48]
    words += ["--checkpoint.every-steps", 8, "--train.eval-every-steps", 16]
    words += ["--heartbeat-timeout", 20, "--parallel.preset", "fsdp"]

    def run_three(run: str, lost: int = 0, fault: str = "") -> list[int]:
        three = [
            cli.start(*each, "--workdir", run, fault=fault if i == lost else "")
            for i, each in enumerate(two(*words, num=3))
        ]
        for process in three:
            process.communicate(timeout=PATIENCE)
        return [process.returncode for process in three]

    assert run_three("whole") == [0, 0, 0]
    for lost, fault in KILLS:
        codes = run_three("run", lost, fault)
        assert codes.pop(lost) == -signal.SIGKILL, (fault, codes)
        assert {*codes} <= {*LOST}, (fault, codes)
    assert run_three("run") == [0, 0, 0]
    assert_same(arrays(cli.directory / "whole", 48), arrays(cli.directory / "run", 48))


def assert_same(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


def arrays(run: Path, step: int) -> dict[str, Any]:
    return jax.tree.map(np.asarray, load(run / "checkpoints" / str(step)))


@pytest.mark.exhaustive
def test_killed_and_stopped_at_random_a_run_ends_as_if_left_alone(
    cli: Cli, write_config: Callable[..., Path]
):
    """Twenty times, by SIGKILL or SIGTERM to one of two processes."""
    steps, chance = 600, random.Random(5)
    words = ["--config", write_config(CONFIG), "--train.steps", steps]
    words += ["--heartbeat-timeout", 20, "--init-timeout", 30]
    words += ["--parallel.preset", "fsdp"]
    whole, run = cli.directory / "whole", cli.directory / "run"
    assert run_two(cli.directory, *words, "--workdir", whole).code == 0
    lines = run / "metrics.jsonl"
    for _ in range(20):
        both = [cli.start(*each) for each in two(*words, "--workdir", run)]
        if chance.random() < 0.25:  # While it starts.
            time.sleep(chance.uniform(0, 4))
        else:
            before = len(lines.read_text().splitlines()) if lines.exists() else 0
            wait_for_lines(lines, before + chance.randint(1, 25), both[0])
        signum = chance.choice([signal.SIGKILL, signal.SIGTERM])
        both[chance.randrange(2)].send_signal(signum)
        told = [process.communicate(timeout=PATIENCE)[1] for process in both]
        codes = {process.returncode for process in both}
        # 2: process 0 was killed before they met. SIGTERM: before Python had handlers.
        fine = {143, *LOST, -signal.SIGKILL, -signal.SIGTERM, 2}
        assert codes <= fine, (codes, told)
    result = run_two(cli.directory, *words, "--workdir", run)
    assert result.code == 0, result.stderr
    assert_same(arrays(whole, steps), arrays(run, steps))
