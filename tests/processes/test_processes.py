"""Several processes over loopback: the run of one process, and how it ends."""

import signal
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import pytest

from jaxtrain.cli import main
from jaxtrain.processes.cluster import Cluster
from jaxtrain.training.compiled import Compiled
from tests.helpers.numerics import FP64
from tests.helpers.processes import (
    ROOT,
    Cli,
    Result,
    free_port,
    run_two,
    start_two,
    stopped_steps,
)
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines
from tests.helpers.waiting import PATIENCE, wait_for_lines

# Each process loads its half of every batch, here from a stream.
EXPRESSION = recipe(
    precision='"fp64"',
    data='DataConfig(source="digits", batch_size=64, cache="stream", '
    "augment=AugmentConfig(crop_padding=1))",
    train="TrainConfig(steps=40, eval_every_steps=20)",
    logging="LoggingConfig(every_steps=1)",
)


@dataclass(frozen=True)
class Pair:
    """A finished run of two processes: its config file, workdir and output."""

    config: Path
    workdir: Path
    result: Result


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("pair")
    config = write_recipe(folder / "recipe.py", EXPRESSION)
    words = ["--config", config, "--workdir", folder / "run"]
    result = run_two(folder, *words, **FP64)
    return Pair(config, folder / "run", result)


@pytest.mark.slow
def test_process_0_alone_tells(pair: Pair):
    """On the screen, too: the others have errors to tell, and Gloo its greeting."""
    printed = pair.result.stdout.splitlines()
    others = [line for line in printed if line.startswith("[1]")]
    assert all("[Gloo]" in line for line in others), others
    assert sum("test accuracy" in line for line in printed) == 1
    assert "[1]" not in pair.result.stderr
    assert len([*(pair.workdir / "tensorboard").iterdir()]) == 1
    steps = [line["step"] for line in read_lines(pair.workdir, "train")]
    assert steps == [*range(1, 41)]


@pytest.mark.slow
def test_launcher_passes_signals_on(pair: Pair, tmp_path: Path):
    words = ["--config", pair.config, "--workdir", tmp_path / "run"]
    launcher = start_two(*words, "--train.steps", 100000, **FP64)
    wait_for_lines(tmp_path / "run" / "metrics.jsonl", 2, launcher)
    launcher.send_signal(signal.SIGINT)
    _, stderr = launcher.communicate(timeout=PATIENCE)
    assert launcher.returncode == 130, stderr
    first, second = stopped_steps(stderr)
    assert first == second
    assert stderr.count(f"\n[1] stopped: step {first} is saved") == 1


def test_processes_wait_for_each_other_when_they_have_compiled(
    monkeypatch: pytest.MonkeyPatch,
):
    """Gloo gives up after 30 s, which one may take to compile what another has."""
    met = []
    program = Compiled(lambda x: x + 1)

    def barrier(self: Cluster) -> None:
        assert program.compiling  # So that nothing counts as a hang.
        met.append([shape for ((shape, _),) in program.programs])

    monkeypatch.setattr(Cluster, "barrier", barrier)
    for size in (2, 2, 3):
        assert list(program(jnp.zeros(size))) == [1.0] * size
    assert met == [[(2,)], [(2,), (3,)]]


@pytest.mark.slow
def test_one_that_fails_ends_the_other(pair: Pair, tmp_path: Path):
    """Process 0 alone looks at the workdir, while the other waits for it."""
    words = ["--config", pair.config, "--workdir", pair.workdir]
    words += ["--optimizer.learning-rate", 0.2]
    result = run_two(tmp_path, *words, **FP64)
    assert result.code == 2
    assert (
        "\nResume with the config of the run (--optimizer.learning-rate "
        in result.stderr
    )
    assert "[1] error: stopping because process 0 ended" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_waiting_in_vain_ends_with_one_message(cli: Cli, index: int):
    address = f"127.0.0.1:{free_port()}"
    words = ["--coordinator", address, "--num-processes", 2, "--process-id", index]
    config = ROOT / "configs" / "digits.py"
    result = cli.process("--config", config, *words, "--init-timeout", 1)
    assert result.code == 2, result.stderr
    told = f"error: process {index} of 2 waited 1 s (--init-timeout) for the other"
    assert f"{told} processes at --coordinator {address}" in result.stderr
    assert result.stderr.count("error") == 1 and "Traceback" not in result.stderr


@each_row(
    ("words", "named"),
    [
        ("--coordinator a:1", "also give --num-processes and --process-id"),
        ("--num-processes 2 --process-id 0", "also give --coordinator"),
        ("--coordinator a --num-processes 2 --process-id 0", "HOST:PORT"),
        ("--coordinator a:x --num-processes 2 --process-id 0", "HOST:PORT"),
        ("--coordinator a:1 --num-processes 2 --process-id 2", "0 to 1"),
        ("--coordinator a:1 --num-processes 0 --process-id 0", "1 or more"),
        ("--init-timeout -1", "--init-timeout -1"),
        ("--heartbeat-timeout 0", "--heartbeat-timeout 0"),
    ],
)
def test_wrong_flags(words: str, named: str, capsys: pytest.CaptureFixture[str]):
    assert main(["--config", f"{ROOT}/configs/digits.py", *words.split()]) == 2
    assert named in capsys.readouterr().err
