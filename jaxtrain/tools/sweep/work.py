"""One process of a sweep: takes trials until there are none left."""

import contextlib
import gc

from jaxtrain.config import allow_own
from jaxtrain.errors import (
    CheckpointError,
    Interrupted,
    StartAgainError,
)
from jaxtrain.pages.text import shown
from jaxtrain.parallel import devices
from jaxtrain.processes.signals import StopSignals
from jaxtrain.records.sweep_file import SweepRecord, TrialRecord
from jaxtrain.tools.sweep.options import SweepOptions
from jaxtrain.tools.sweep.queue import TrialQueue
from jaxtrain.tools.sweep.study import reported
from jaxtrain.tools.sweep.trials import carry_out, carry_out_together


def work(options: SweepOptions, signals: StopSignals) -> None:
    """Train the trials of a sweep, one after another, with others that do the same.

    Args:
      options: The sweep; its folder is there.
      signals: Signals that stop the trial in order; the same sweep then goes on.

    Raises:
      UserError: The config, the space, the sampler or the folder cannot be used.
      Interrupted: A signal came; the trial is saved.
    """
    parallel = options.config.parallel
    allow_own(options.config)
    devices.start(options.platform, flags=parallel.xla_flags, cpus=parallel.cpu_devices)
    with reported(options.folder), contextlib.closing(TrialQueue(options)) as queue:
        queue.open()
        while (group := queue.take()) is not None:
            for trial in group.left:
                print(f"trial {trial.number}: {describe_overrides(trial.overrides)}")
            try:
                failed, given = None, (options.config, signals)
                if group.workdir is not None:
                    failed = carry_out_together(queue, group, *given)
                for trial in group.left:
                    outcome = failed or carry_out(queue, trial, *given)
                    # To write it is quick; a signal that comes meanwhile is heeded
                    # below.
                    signals.defer = True
                    queue.end(trial, *outcome)
                    signals.defer = False
                    print(describe_end(queue.study.record(), trial.number))
                    # Arrays in cycles of objects, for which others may have no room.
                    gc.collect()
                    if signals.signum is not None:
                        told = f"trial {trial.number} has ended; "
                        told += "the same command goes on"
                        raise Interrupted(signals.signum, told)
            except (Interrupted, CheckpointError, StartAgainError):
                queue.forget_start(group)
                raise
            finally:
                # Until there is something to save again.
                signals.defer = False
                queue.leave(group)


def describe_overrides(overrides: dict[str, object]) -> str:
    """Return what a trial changes, in a line."""
    return ", ".join(f"{path} = {shown(value)}" for path, value in overrides.items())


def describe_end(record: SweepRecord, number: int) -> str:
    """Return in a line how a trial has ended, and which is the best so far."""
    trial = record["trials"][number]
    text = f"trial {number} {describe_state(record, trial)}"
    if record["best"] is not None and trial["state"] == "complete":
        best = record["trials"][record["best"]]
        text += f" (best: trial {best['number']}, {shown(best['value'])})"
    return text


def describe_state(record: SweepRecord, trial: TrialRecord) -> str:
    """Return how a trial stands: its state, and its value or the reason."""
    if trial["state"] == "failed":
        return f"failed: {trial['reason']}"
    value = f"validation {record['metric']} {shown(trial['value'])}"
    state = "is complete" if trial["state"] == "complete" else "is running"
    if trial["state"] == "pruned":
        state = f"was {trial['reason']}"
    return f"{state}, {value}"
