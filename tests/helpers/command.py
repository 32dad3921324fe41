"""The command line without a process of its own: here, or where devices are many.

`main` takes a second of CPU time, a new process three more to import and start JAX.
"""

import atexit
import contextlib
import functools
import io
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any
from unittest import mock

import jax

from jaxtrain.cli import main
from tests.helpers.forked import ROOT, Forked

DEVICES, X64, FLAGS = "JAX_NUM_CPU_DEVICES", "JAX_ENABLE_X64", "XLA_FLAGS"
# XLA's own passes are those of every run; the machine code is compiled in half the time
# and may be slow.
UNOPTIMISED = {FLAGS: "--xla_backend_optimization_level=0"}


@dataclass(frozen=True)
class Result:
    """How a run of the command line ended."""

    code: int
    stdout: str
    stderr: str


def run(words: Sequence[str], directory: Path, env: Mapping[str, str]) -> Result:
    """Run a command in a folder, with these variables added to the environment.

    JAX reads its own variables when it starts: the number of devices, and flags, lead
    to a process that has them, and float64 is switched on for the time of the command.
    """
    devices, flags = int(env.get(DEVICES, 1)), env.get(FLAGS, "")
    if devices > 1 or flags:
        return with_devices(devices, run_here, words, directory, env, flags=flags)
    return run_here(words, directory, env)


def run_here(words: Sequence[str], directory: Path, env: Mapping[str, str]) -> Result:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(directory),
        mock.patch.dict(os.environ, {"COLUMNS": "200", **env}),
        float64(X64 in env),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        log_to(err),
    ):
        try:
            code: Any = main(words)
        except SystemExit as end:  # tyro's own
            code = end.code
    return Result(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def float64(enable: bool) -> Iterator[None]:
    """Switch float64 on in all threads, and back."""
    before = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_x64", enable or before)
    yield
    jax.config.update("jax_enable_x64", before)


@contextlib.contextmanager
def log_to(stream: io.StringIO) -> Iterator[None]:
    """Write warnings to a stream, as Python does where no handler is set."""
    handler = logging.StreamHandler(stream)
    handler.setLevel(logging.WARNING)
    logging.getLogger().addHandler(handler)
    yield
    logging.getLogger().removeHandler(handler)


def with_devices(
    num: int, function: Callable[..., Any], *args: Any, flags: str = ""
) -> Any:
    """Call a function of a module in a process that has so many simulated devices.

    Args:
      num: devices.
      function: what to call.
      args: its arguments.
      flags: of XLA, which has read them when it takes its first program.
    """
    link = _server(num, flags)
    link.send((function, args))
    returned, error = link.recv()
    if error is not None:
        raise error
    return returned


@functools.cache
def _server(num: int, flags: str) -> "Connection[Any, Any]":
    """Start a process with so many devices, which lives as long as this one."""
    env = {**os.environ, DEVICES: str(num), **({FLAGS: flags} if flags else {})}
    with Listener(family="AF_UNIX") as listener:
        server = Forked(
            [
                sys.executable,
                str(ROOT / "tests/helpers/callee.py"),
                str(listener.address),
            ],
            cwd=ROOT,
            env=env,
        )
        link = listener.accept()
    atexit.register(server.wait)
    atexit.register(link.close)  # Which comes before.
    return link
