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

DEVICES, X64 = "JAX_NUM_CPU_DEVICES", "JAX_ENABLE_X64"


@dataclass(frozen=True)
class Result:
    """How a run of the command line ended."""

    code: int
    stdout: str
    stderr: str


def run(words: Sequence[str], directory: Path, env: Mapping[str, str]) -> Result:
    """Run a command in a folder, with these variables added to the environment.

    JAX reads its own variables when it starts: the number of devices leads to a process
    that has so many, and float64 is switched on for the time of the command.
    """
    devices = int(env.get(DEVICES, 1))
    if devices > 1:
        return with_devices(devices, run_here, words, directory, env)
    return run_here(words, directory, env)


def run_here(words: Sequence[str], directory: Path, env: Mapping[str, str]) -> Result:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(directory),
        mock.patch.dict(os.environ, {"COLUMNS": "200", **env}),
        float64(X64 in env),
        forgetting(directory),
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
def forgetting(directory: Path) -> Iterator[None]:
    """Forget afterwards the modules of a folder, as a process of its own would."""
    before = {*sys.modules}
    try:
        yield
    finally:
        for name in {*sys.modules} - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and directory.resolve() in Path(file).resolve().parents:
                del sys.modules[name]


@contextlib.contextmanager
def float64(enable: bool) -> Iterator[None]:
    """Switch float64 on in all threads, and back."""
    before = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_x64", enable or before)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


@contextlib.contextmanager
def log_to(stream: io.StringIO) -> Iterator[None]:
    """Write warnings to a stream, as Python does where no handler is set."""
    handler = logging.StreamHandler(stream)
    handler.setLevel(logging.WARNING)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def with_devices(num: int, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of a module in a process that has so many simulated devices."""
    link = _server(num)
    link.send((function, args))
    returned, error = link.recv()
    if error is not None:
        raise error
    return returned


@functools.cache
def _server(num: int) -> "Connection[Any, Any]":
    """Start a process with so many devices, which lives as long as this one."""
    with Listener(family="AF_UNIX") as listener:
        server = Forked(
            [
                sys.executable,
                str(ROOT / "tests/helpers/callee.py"),
                str(listener.address),
            ],
            cwd=ROOT,
            env={**os.environ, DEVICES: str(num)},
        )
        link = listener.accept()
    atexit.register(server.wait)
    atexit.register(link.close)  # Which comes before.
    return link
