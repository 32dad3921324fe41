"""The command line as processes of its own, alone or two of a run."""

import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.helpers.command import Result, run
from tests.helpers.forked import ROOT, Forked
from tests.helpers.waiting import PATIENCE

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

# What comes before a program that is stopped and cannot save: however busy the machine
# is, its steps count as short, and it has the time to look for its last checkpoint.
STEADY = """
from jaxtrain.processes import signals

signals.LISTING_SECONDS = 300
signals.Grace.call_seconds = property(lambda grace: 0.0, lambda grace, seconds: None)
"""
# The command line, which takes some steps and then waits for a signal.
SIGNAL_AWAITED = """
import sys, time
from jaxtrain.__main__ import run
from jaxtrain.processes.signals import StopSignals

def requested(self):
    asked.append(self)
    while len(asked) > {steps} and self.signum is None:
        time.sleep(0.01)
    if self.signum is not None:  # JAX looks for signals once a second.
        time.sleep(0.05)
    return original(self)

original, asked = StopSignals.requested, []
if sys.argv[-1] == "{last_word}":
    StopSignals.requested = requested
if __name__ == "__main__":  # And not a data worker.
    run()
"""

# What comes before a program whose runs have faults.
FAULTY = """
if __name__ == "__main__":  # And not a data worker.
    from tests.helpers.faulty import install

    install({!r})
"""
MAIN = """
    from jaxtrain.__main__ import run

    run()
"""


def awaiting_signal(steps: int, last_word: object) -> str:
    """Return a program that is not over before a signal comes, however late that is.

    Args:
      steps: that it takes at most.
      last_word: of the command; processes with another one wait for nothing.
    """
    return SIGNAL_AWAITED.format(steps=steps, last_word=last_word)


@dataclass(frozen=True)
class Cli:
    """The command line in a folder: `cli(...)` here, with `start` as a process."""

    directory: Path
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    def start(
        self,
        *words: object,
        anew: bool = False,
        session: bool = False,
        group: int | None = None,
        program: str = "",
        fault: str = "",
        **env: Any,
    ) -> "subprocess.Popen[str]":
        """Start a process.

        Args:
          words: those of the command.
          anew: start Python, too, and do not fork a process that has imported all.
          session: let it lead a session.
          group: the process group that it joins; 0: one of its own; None: ours.
          program: what stands for `main.py`.
          fault: faults of its runs (`tests/helpers/faulty.py`).
          env: what is added to the environment.
        """
        path = ROOT / "main.py"
        if fault:
            program = FAULTY.format(fault) + (program or MAIN)
        if program:
            path = self.directory / ("faulty.py" if fault else "program.py")
            path.write_text(program)
        process = (subprocess.Popen if anew else Forked)(
            [sys.executable, str(path), *map(str, words)],
            cwd=self.directory,
            env={**os.environ, "COLUMNS": "200", "PYTHONPATH": str(ROOT), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=session,
            process_group=group,
        )
        self.started.append(process)
        return process

    def __call__(self, *words: object, **env: Any) -> Result:
        """Run a command without a process of its own."""
        return run([*map(str, words)], self.directory, env)

    def done(self, *words: object, **env: Any) -> Result:
        """Run a command that succeeds."""
        result = self(*words, **env)
        assert result.code == 0, result.stderr
        return result

    def process(self, *words: object, **env: Any) -> Result:
        """Run a command in a process of its own, to its end."""
        process = self.start(*words, **env)
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


def start_two(*words: object, **env: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*ENV, str(ROOT / "deploy" / "local.sh"), "2", "--", *map(str, words)],
        env={**os.environ, "COLUMNS": "200", "PYTHON": sys.executable, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def two(*words: object, num: int = 2) -> list[list[object]]:
    """Return the words of each of two processes, or `num`, that meet."""
    at = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", num]
    return [[*words, *at, "--process-id", index] for index in range(num)]


def run_two(folder: Path, *words: object, **env: Any) -> Result:
    """Run two processes in a folder to their end, which is the same for both.

    Returns:
      The exit code, and what process 0 told; then the lines of the other, as the
      launcher shows them.
    """
    cli = Cli(folder)
    both = [cli.start(*each, **env) for each in two(*words)]
    try:
        told = [process.communicate(timeout=PATIENCE) for process in both]
    finally:
        end_all(both)
    code, other = (process.returncode for process in both)
    assert code == other, told
    lines = (re.sub(r"(?m)^(?=.)", "[1] ", text) for text in told[1])
    return Result(
        code, *(text + more for text, more in zip(told[0], lines, strict=True))
    )


def stopped_steps(stderr: str) -> list[int]:
    return [int(step) for step in re.findall(r"stopped: step (\d+) is saved", stderr)]
