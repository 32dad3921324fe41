"""Several processes on one sweep, each with its share of the GPUs."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from jaxtrain import console, links, own
from jaxtrain.console import tell
from jaxtrain.errors import (
    START_AGAIN,
    CheckpointError,
    IncompleteError,
    Interrupted,
    StartAgainError,
    UserError,
    counted,
)
from jaxtrain.parallel import devices
from jaxtrain.plugins.plan.gpu_compiler import visible_gpus
from jaxtrain.processes.signals import StopSignals
from jaxtrain.records.sweep_file import SWEEP, read_sweep
from jaxtrain.system_errors import as_user_error
from jaxtrain.tools.sweep.options import SweepOptions
from jaxtrain.tools.sweep.work import describe_end, work

# Starts of a process in a row that were killed without a trial that ended meanwhile.
MAX_KILLS = 4
# Between looks at signals and at the trials that have ended. A process that has got the
# signal itself takes the one that is passed on for a repeat, if it comes within 1 s.
LOOK_SECONDS = 0.2
# Exit codes of errors by which a process ends in order.
CODES: dict[type[Exception], int] = {
    UserError: 2,
    CheckpointError: 1,
    StartAgainError: START_AGAIN,
}


def work_together(options: SweepOptions, num: int, signals: StopSignals) -> None:
    """Train the trials of a sweep in several processes.

    What they print goes to `process-I.log` in the folder of the sweep. One that was
    killed, as by Linux for want of memory, is started again.

    Args:
      options: The sweep; its folder is there.
      num: Number of processes.
      signals: Signals that stop all of them in order.

    Raises:
      UserError: The GPUs cannot be shared evenly, or a process ended with one.
      CheckpointError, StartAgainError, IncompleteError: A process ended with one.
      Interrupted: A signal came; the trials are saved.
    """
    gpus = [] if options.platform == "cpu" else visible_gpus()
    team = [Worker(options, i, share) for i, share in enumerate(share_gpus(gpus, num))]
    news, kills, stopping = News(options.folder), 0, False
    signals.defer = True
    try:
        for worker in team:
            worker.start()
        while running := [worker for worker in team if worker.process is not None]:
            connection.wait([w.process.sentinel for w in running], LOOK_SECONDS)
            if news.tell():
                kills = 0
            if signals.signum is not None and not stopping:
                stopping = True
                for worker in running:
                    worker.stop()
            for worker in running:
                code = worker.ended()
                if code is not None and code < 0 and not stopping:
                    kills += 1
                    name = signal.Signals(-code).name
                    tell(f"warning: process {worker.index} was killed by {name}")
                    if kills < MAX_KILLS * num:
                        worker.start()
    finally:
        for worker in team:
            worker.kill()
    news.tell()
    if signals.signum is not None:
        message = "the trials are saved; the same command goes on"
        raise Interrupted(signals.signum, message)
    for worker in team:
        worker.check()
    # What follows needs no GPU.
    devices.start("cpu")


def share_gpus(gpus: Sequence[str], num: int) -> list[list[str]]:
    """Return the GPUs of each process; none on a machine without.

    Raises:
      UserError: They cannot be shared evenly.
    """
    if len(gpus) % num:
        raise UserError(
            f"--processes {num}: {counted(len(gpus), 'GPU')} cannot be shared evenly; "
            "give a number that divides them"
        )
    each = len(gpus) // num
    return [list(gpus[i * each : (i + 1) * each]) for i in range(num)]


class Worker:
    """A process of a sweep, which may be started several times.

    Attributes:
      index: Number of the process.
      log: File that has what it prints.
      process: The process while it runs; None before and after.
    """

    def __init__(self, options: SweepOptions, index: int, gpus: Sequence[str]):
        self.index, self.log = index, options.folder / f"process-{index}.log"
        self.process: Any = None
        self._options, self._gpus = options, gpus
        self._error: Exception | None = None
        self._code = 0

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._receive, send = context.Pipe(duplex=False)
        given = (self._options, own.decided(), self._gpus, self.log, send)
        self.process = context.Process(target=_run, args=given)
        self.process.start()
        send.close()

    def stop(self) -> None:
        """Stop it in order."""
        if self.process is not None:
            self.process.terminate()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()

    def ended(self) -> int | None:
        """Return its exit code if it has ended; below 0 it is that of a signal."""
        process: BaseProcess = self.process
        code = process.exitcode
        if code is None:
            return None
        try:
            self._error = self._receive.recv()
        except EOFError:
            self._error = None
        self._receive.close()
        self.process, self._code = None, code
        return code

    def check(self) -> None:
        """Raise the error that it ended with, if there was one."""
        if self._error is not None:
            raise self._error
        if self._code < 0 or self._code == START_AGAIN:
            raise StartAgainError(
                f"process {self.index} of the sweep was lost: see the end of "
                f"{self.log}; the same command goes on"
            )
        if self._code:
            raise IncompleteError(
                f"process {self.index} of the sweep failed: see the end of {self.log}"
            )


def _run(
    options: SweepOptions,
    decisions: dict[own.Key, str | None],
    gpus: Sequence[str],
    log: Path,
    send: connection.Connection,
) -> None:
    """Do what a process of the sweep does, from its start to its end."""
    file = links.open_in_place(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    console.guard()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # Ctrl-C in a terminal comes from the first process, as any other signal.
    os.setpgrp()
    own.hand_over(decisions)
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    code = 0
    with StopSignals() as signals:
        try:
            with own.no_exit():
                work(options, signals)
        except Interrupted as stopped:
            tell(f"stopped: {stopped}")
            code = 128 + stopped.signum
        except Exception as caught:
            error = as_user_error(caught) or caught
            codes = [c for kind, c in CODES.items() if isinstance(error, kind)]
            code = codes[0] if codes else 1
            if codes:
                tell(f"error: {error}")
                send.send(error)
            else:
                traceback.print_exc()
        signals.defer = True
    sys.exit(code)


def _stop_with_parent() -> None:
    """Stop in order once the process that has started this one is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


class News:
    """Prints a line for each trial that ends, as the file of the sweep says.

    Args:
      folder: Folder of the sweep; trials that have ended there are no news.
    """

    def __init__(self, folder: Path):
        self._path, self._folder = folder / SWEEP, folder
        self._version: int | None = None
        self._told = {number for number, _ in self._ended()}

    def tell(self) -> bool:
        """Print a line for each trial that has ended; return whether one has."""
        new = [(n, line) for n, line in self._ended() if n not in self._told]
        for number, line in new:
            print(line, flush=True)
            self._told.add(number)
        return bool(new)

    def _ended(self) -> Iterator[tuple[int, str]]:
        """Yield the trials that have ended, if the file is another than before."""
        with contextlib.suppress(FileNotFoundError):
            version = self._path.stat().st_mtime_ns
            if version == self._version:
                return
            self._version, record = version, read_sweep(self._folder)
            for trial in record["trials"] if record is not None else ():
                if record is not None and trial["state"] != "running":
                    yield trial["number"], describe_end(record, trial["number"])
