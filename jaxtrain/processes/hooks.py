"""What others may do around the calls and the saves of a run: such as faults.

Those show how a run survives them; there are none unless JAXTRAIN_FAULT names some.

    JAXTRAIN_FAULT=kill@step:120,nan@step:30 python main.py --config configs/digits.py

kill: the process is killed before that step. hang: it never comes to that step. nan:
the loss of that step is NaN, and of the other steps of its call. worker_kill: a data
worker is killed before that step. enospc: that save of process 0 finds a full disk.
"""

import contextlib
import dataclasses
import errno
import functools
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.errors import CheckpointError, UserError

FAULTS_VARIABLE = "JAXTRAIN_FAULT"
FAULTS = {
    "kill": "step",
    "hang": "step",
    "nan": "step",
    "worker_kill": "step",
    "enospc": "save",
}


class Hooks:
    """Does nothing; faults, benchmarks and profilers override what they need.

    The steps that are done are counted from 0, over all of the run.
    """

    def during(self, attempt: Any) -> AbstractContextManager[Any]:
        """Return what is entered before the first call, and left after the last.

        Args:
          attempt: `jaxtrain.run.attempt.Attempt` that takes the steps.
        """
        return contextlib.nullcontext()

    def before_call(
        self, step: int, num_steps: int, data: Any, batches: Any
    ) -> tuple[Any, Any]:
        """Return the data and the batches that a call of the train step is to take.

        Args:
          step: steps that are done.
          num_steps: of the call.
          data: arrays on the device; {}: the batches hold the examples.
          batches: (steps, batch, ...) each.
        """
        return data, batches

    def after_call(self, step: int, metrics: Any) -> None:
        """Look at a call that was started; its results may not be there yet.

        Args:
          step: steps that are done once the call is.
          metrics: of the call, (steps,) each, on the device.
        """

    def after_evaluation(self, step: int, metrics: Mapping[str, Any]) -> str | None:
        """Return why the run is to end after an evaluation; None lets it go on.

        A run that ends so is saved, as one that was asked to stop early. Of several
        processes the word of the first counts.

        Args:
          step: steps that are done.
          metrics: of the validation split, by name.
        """
        return None

    def before_save(self, step: int) -> None:
        """Look at a save that is about to be written, in the process that writes it.

        Raises:
          CheckpointError: it fails.
        """


@dataclass
class Faults(Hooks):
    """Where the faults of a run strike, by their kind; counted from 1."""

    at: Mapping[str, set[int]] = dataclasses.field(default_factory=dict)
    num_saves: int = 0

    def before_call(
        self, step: int, num_steps: int, data: Any, batches: Any
    ) -> tuple[Any, Any]:
        kinds = {
            kind
            for kind, places in self.at.items()
            if any(step < place <= step + num_steps for place in places)
        }
        if "kill" in kinds:
            os.kill(os.getpid(), signal.SIGKILL)
        if "worker_kill" in kinds:
            kill_worker()
        while "hang" in kinds:
            time.sleep(1)
        if "nan" in kinds:
            return (_spoil(data), batches) if data else (data, _spoil(batches))
        return data, batches

    def before_save(self, step: int) -> None:
        self.num_saves += 1
        if self.num_saves in self.at.get("enospc", ()):
            reason = f"{os.strerror(errno.ENOSPC)} ({FAULTS_VARIABLE})"
            raise CheckpointError(f"could not save step {step}: {reason}")


def parse_faults(text: str) -> Faults:
    """Read `kind@step:N` or `kind@save:N`, with commas between several.

    Raises:
      UserError: the text is malformed.
    """
    at: dict[str, set[int]] = {}
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\w+)@(\w+):([1-9]\d*)", part.strip())
        if not match or FAULTS.get(match[1]) != match[2]:
            known = ", ".join(f"{kind}@{place}:N" for kind, place in FAULTS.items())
            raise UserError(
                f"{FAULTS_VARIABLE}: {part!r} is not one of {known}, N from 1"
            )
        at.setdefault(match[1], set()).add(int(match[3]))
    return Faults(at)


def _spoil(arrays: dict[str, Any]) -> dict[str, Any]:
    """Make all targets the largest numbers: a class that there is not has a NaN loss.

    A task that learns none of the stored targets goes on undisturbed. Images cannot be
    NaN, being bytes, and parameters that are would not be mended by skipping a step.
    """

    def largest(x: jax.Array) -> jax.Array:
        fill = functools.partial(jnp.full_like, fill_value=jnp.iinfo(x.dtype).max)
        return jax.jit(fill, out_shardings=x.sharding)(x)

    return {**arrays, "target": jax.tree.map(largest, arrays["target"])}


def kill_worker() -> None:
    """Kill one of the data workers of this process, which must have one."""
    workers = [p for p in multiprocessing.active_children() if "prefetch" in p.name]
    if not workers or workers[0].pid is None:
        message = f"{FAULTS_VARIABLE}: worker_kill: no data worker runs (data.workers)"
        raise UserError(message)
    os.kill(workers[0].pid, signal.SIGKILL)
