"""Shared by all tests: the CPU, one compilation cache, the CLI as a subprocess."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
DISK_BYTES = 12_000_000

# Before JAX is imported, here and in every subprocess.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XDG_CACHE_HOME", tempfile.gettempdir() + "/jaxtrain-tests")


@dataclass(frozen=True)
class Result:
    """How a run of the command line ended."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Cli:
    """The real command line, started as a process of its own."""

    directory: Path
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    def start(
        self, *words: object, group: bool = False, **env: str
    ) -> "subprocess.Popen[str]":
        """Start a process, or a group of its own."""
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "main.py"), *map(str, words)],
            cwd=self.directory,
            env={**os.environ, "COLUMNS": "200", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=group,
        )
        self.started.append(process)
        return process

    def __call__(self, *words: object, **env: str) -> Result:
        process = self.start(*words, group=False, **env)
        stdout, stderr = process.communicate(timeout=300)
        return Result(process.returncode, stdout, stderr)


# Runs that are compared over devices, stages or processes compute in float64. Sums in
# another order then differ by about 1e-16, and by less than TOLERANCE after some tens
# of steps. In float32 an activation within rounding of a ReLU's corner changes a
# gradient by 1e-3, and which step meets one depends on the CPU.
FP64 = {"JAX_ENABLE_X64": "1"}
TOLERANCE = 1e-9


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """What a test starts ends with the test, whatever the test comes to."""
    cli = Cli(tmp_path)
    yield cli
    end_all(cli.started)


def end_all(processes: "list[subprocess.Popen[str]]") -> None:
    for process in processes:
        process.kill()
        with process:
            pass


def write_recipe(path: Path, expression: str) -> Path:
    """Write a config file whose `get_config` returns the given expression."""
    path.write_text(
        "from jaxtrain.config import *\n\n\ndef get_config():\n"
        f"    return {expression}\n"
    )
    return path


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[..., Path]:
    """Write such a file into the folder of the test."""

    def write(expression: str, name: str = "recipe.py") -> Path:
        return write_recipe(tmp_path / name, expression)

    return write


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk that is small."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True)
    if mounted.returncode:
        message = f"cannot mount a small disk: {mounted.stderr.strip()}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="session")
def fashion_mnist_dir() -> str:
    """The folder where `make fashion-mnist` has prepared the real data set."""
    directory = Path(os.environ.get("TFDS_DATA_DIR", ROOT / ".data" / "tfds"))
    if not (directory / "fashion_mnist").is_dir():
        message = f"no fashion_mnist in {directory}: run `make fashion-mnist`"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return str(directory)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def read_lines(workdir: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """Read metrics.jsonl without the times, which differ from run to run."""
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    unlike = ("time", "examples_per_second")
    return [
        {k: v for k, v in line.items() if k not in unlike}
        for line in lines
        if kind in (None, line["kind"])
    ]


def read_summary(workdir: Path) -> dict[str, Any]:
    return json.loads((workdir / "summary.json").read_text())


def wait_for_lines(path: Path, count: int, process) -> None:
    """Wait until the run has written some lines of metrics."""
    for _ in range(1200):
        if path.exists() and len(path.read_text().splitlines()) >= count:
            return
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    raise AssertionError(f"{path} did not come to {count} lines")


def recipe(**changes: str) -> str:
    """Return a config expression: a tiny run on the digits that takes seconds."""
    parts = {
        "data": 'DataConfig(source="digits", batch_size=64)',
        "model": 'ModelConfig(name="convnet", width=0.125, dropout=0.1)',
        "optimizer": 'OptimizerConfig(name="sgd", learning_rate=0.1)',
        "train": "TrainConfig(steps=40, ema_decay=0.9)",
        "checkpoint": "CheckpointConfig(every_steps=10)",
        "logging": "LoggingConfig(every_steps=8)",
        **changes,
    }
    return "Config(" + ", ".join(f"{k}={v}" for k, v in parts.items()) + ")"
