"""The command line as processes of its own, alone or two of a run."""

import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.helpers.command import Result, run
from tests.helpers.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]


# The command line, which touches a file when its main thread begins to hang.
HANG_TOLD = """
import pathlib, threading, time
from jaxtrain.__main__ import run

def told(seconds):
    if seconds >= 1 and threading.current_thread() is threading.main_thread():
        pathlib.Path("hangs").touch()
    sleep(seconds)

sleep, time.sleep = time.sleep, told
run()
"""


@dataclass(frozen=True)
class Cli:
    """The command line in a folder: `cli(...)` here, with `start` as a process."""

    directory: Path
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    def start(
        self, *words: object, group: bool = False, program: str = "", **env: str
    ) -> "subprocess.Popen[str]":
        """Start a process, or a group of its own; `program` stands for main.py."""
        path = ROOT / "main.py"
        if program:
            path = self.directory / "program.py"
            path.write_text(program)
        process = subprocess.Popen(
            [sys.executable, str(path), *map(str, words)],
            cwd=self.directory,
            env={**os.environ, "COLUMNS": "200", "PYTHONPATH": str(ROOT), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=group,
        )
        self.started.append(process)
        return process

    def __call__(self, *words: object, **env: str) -> Result:
        """Run a command without a process of its own."""
        return run([*map(str, words)], self.directory, env)

    def process(self, *words: object, **env: str) -> Result:
        """Run a command in a process of its own, to its end."""
        process = self.start(*words, group=False, program="", **env)
        stdout, stderr = process.communicate(timeout=PATIENCE)
        return Result(process.returncode, stdout, stderr)


def end_all(processes: "list[subprocess.Popen[str]]") -> None:
    for process in processes:
        process.kill()
        with process:
            pass


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# A shell cannot trap a signal that was ignored when it started, as SIGINT is in what
# another shell runs in the background.
ENV = ["env", "--default-signal=INT"]


def start_two(*words: object, **env: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*ENV, str(ROOT / "deploy" / "local.sh"), "2", "--", *map(str, words)],
        env={**os.environ, "COLUMNS": "200", "PYTHON": sys.executable, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_two(*words: object, **env: str) -> Result:
    process = start_two(*words, **env)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    return Result(process.returncode, stdout, stderr)


def stopped_steps(stderr: str) -> list[int]:
    return [int(step) for step in re.findall(r"stopped at step (\d+), saved", stderr)]
