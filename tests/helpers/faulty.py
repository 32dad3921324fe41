"""Faults on purpose: a run that is killed, hangs, has bad numbers or a full disk.

Faults are `kind@place:N`, with commas between several, N from 1:

kill@start:1, kill@eval:1, kill@stop:1: the process is killed at the start, the first
evaluation, the end of training. kill@step, kill@save: before that step or write of a
save. hang@step: the process never comes to that step. nan@step: the loss of that step
is NaN, and of the other steps of its call. worker_kill@step: a data worker is killed
before that step. enospc@save: that save of process 0 finds a full disk.
"""

import contextlib
import errno
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.checkpoints import saving, store
from jaxtrain.trainer.callback import Callback
from jaxtrain.trainer.programs import Programs

# Place of a kill -> hook, which some callbacks of a run inherit.
HOOKS = {"start": "on_start", "eval": "on_eval_start", "stop": "on_stop"}


@contextlib.contextmanager
def faulty(faults: str) -> Iterator[None]:
    """Let runs of this process have faults meanwhile."""
    import pytest  # Not in the processes of runs.

    with pytest.MonkeyPatch.context() as patch:
        install(faults, patch.setattr)
        yield


def install(faults: str, replace: Any = setattr) -> None:
    """Let runs of this process have faults from now on.

    Args:
      faults: As the text of this module says.
      replace: Sets an attribute, as `setattr` does.
    """
    at: dict[str, set[int]] = {}
    for fault, number in re.findall(r"(\w+@\w+):(\d+)", faults):
        at.setdefault(fault, set()).add(int(number))
    train_at, save = Programs.train_at, store.Checkpoints.save
    num_saves = 0

    def strikes(fault: str, step: int, num_steps: int) -> bool:
        return any(step < number <= step + num_steps for number in at.get(fault, ()))

    def strike(callback: Callback, run: Any, batch: Any) -> None:
        step, num_steps = batch.start, batch.num_steps
        if strikes("kill@step", step, num_steps):
            kill()
        if strikes("worker_kill@step", step, num_steps):
            kill_worker()
        while strikes("hang@step", step, num_steps):
            time.sleep(1)

    def kill(*args: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def spoiled_at(programs: Programs, step: int) -> Any:
        program = train_at(programs, step)

        def train(
            state: Any, root: Any, data: Any, batches: Any, **method_arrays: Any
        ) -> Any:
            num_steps = len(jax.tree.leaves(batches)[0])
            if strikes("nan@step", step, num_steps):
                with jax.transfer_guard("allow"):
                    if data:
                        data = _spoil(data)
                    else:
                        batches = _spoil(batches)
            return program(state, root, data, batches, **method_arrays)

        return train

    def with_faults(write: Callable[..., None]) -> Callable[..., None]:
        def faulty_write(*args: Any) -> None:
            nonlocal num_saves
            num_saves += 1
            if num_saves in at.get("kill@save", ()):
                kill()
            if num_saves in at.get("enospc@save", ()):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write(*args)

        return faulty_write

    def save_at_once(saved: store.Checkpoints, *args: Any, **given: Any) -> None:
        save(saved, *args, **given)
        saved.wait()

    replace(Callback, "on_step_start", strike)
    for place, hook in HOOKS.items():
        if f"kill@{place}" in at:
            replace(Callback, hook, kill)
    if "nan@step" in at:
        replace(Programs, "train_at", spoiled_at)
    if {"kill@save", "enospc@save"} & {*at}:
        replace(saving, "write", with_faults(saving.write))
    if "kill@save" in at:  # Of a process other than 0.
        replace(saving, "write_shards", with_faults(saving.write_shards))
    if "enospc@save" in at:
        replace(store.Checkpoints, "save", save_at_once)


def _spoil(arrays: dict[str, Any]) -> dict[str, Any]:
    """Make all targets the largest numbers: a class that there is not has a NaN loss.

    Images cannot be NaN, being bytes, and parameters that are would not be mended by
    skipping a step.
    """

    def largest(x: jax.Array) -> jax.Array:
        return jax.device_put(
            jnp.full_like(x, jnp.iinfo(x.dtype).max), x.sharding, may_alias=False
        )

    return {**arrays, "target": jax.tree.map(largest, arrays["target"])}


def kill_worker() -> None:
    """Kill one of the data workers of this process, which must have one."""
    workers = [p for p in multiprocessing.active_children() if "prefetch" in p.name]
    assert workers[0].pid is not None
    os.kill(workers[0].pid, signal.SIGKILL)
