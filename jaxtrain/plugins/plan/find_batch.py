"""Implementation of `main.py find-batch`: find the best batch or micro-batch size."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import jax
from rich.console import Console
from rich.table import Table

from jaxtrain.config import Config
from jaxtrain.console import print_stderr
from jaxtrain.errors import UserError
from jaxtrain.json_files.write import write_json
from jaxtrain.plugins.plan import batch_search, gpu_compiler
from jaxtrain.plugins.plan.batch_advice import describe_batch, describe_micro_batches
from jaxtrain.plugins.plan.batch_search import with_micro_batches
from jaxtrain.plugins.plan.batch_trial import Trial, plan_trial, run_trial
from jaxtrain.plugins.plan.memory import look
from jaxtrain.plugins.plan.plan import Planner, make_planner
from jaxtrain.plugins.plan.plan_table import binary
from jaxtrain.plugins.plan.targets import Target

Vary = Literal["batch_size", "accumulate_steps"]


@dataclass(frozen=True, kw_only=True)
class BatchFinder:
    """Tries configs on one target, and records the trials.

    Attributes:
      planner: Planner of the target.
      num_devices: Number of devices that share a batch.
      device_kind: Name of the device in JAX.
      memory: Bytes available on each device; None uses the plan's `usable_bytes`.
      is_here: Whether steps are run on this machine, rather than only planned.
      trials: All trials so far.
    """

    planner: Planner
    num_devices: int
    device_kind: str
    memory: int | None
    is_here: bool
    trials: list[Trial] = field(default_factory=list)

    def attempt(self, config: Config) -> Trial | None:
        """Try a config; return the trial, or None if the batch does not fit."""
        if self.is_here:
            assert self.memory is not None
            micro = config.data.batch_size, config.train.accumulate_steps
            print_stderr(
                "trying data.batch_size {}, train.accumulate_steps {}".format(*micro)
            )
            trial = run_trial(self.planner.target, config, self.memory)
        else:
            trial = plan_trial(self.planner, config, self.memory)
        self.trials.append(trial)
        return trial if trial.fits else None


def carry_out(
    config: Config,
    target: Target,
    *,
    vary: Vary,
    memory: int | None,
    largest: int | None,
    path: Path,
) -> None:
    """Find the best batch, print the trials, and write find_batch.json.

    Args:
      config: Config of the run.
      target: Target to plan for, or to run on.
      vary: Config field to vary: `batch_size` finds the largest batch,
        `accumulate_steps` the fastest micro-batch.
      memory: Bytes available on each device. Defaults to the memory of the target's
        devices.
      largest: Largest batch to try. Defaults to the size of the training split.
      path: Path of find_batch.json.

    Raises:
      UserError: The config is invalid, compilation for the target fails, or no batch
        fits.
    """
    finder, config = make_finder(config, target, memory)
    if vary == "batch_size":
        found = find_largest(finder, config, largest)
        advise = describe_batch
    else:
        found = find_fastest(finder, config)
        advise = describe_micro_batches
    show(finder, found)
    write_json(path, to_json(finder, config, vary, found))
    print(f"wrote {path}")
    if found is None:
        size = min(trial.micro_batch_size for trial in finder.trials)
        raise UserError(
            f"a micro-batch of {size}, the smallest possible, does not fit on "
            f"{target}: use smaller images, a smaller model, train.remat, or more "
            "devices with --parallel.preset fsdp"
        )
    for line in advise(finder.planner, config, found, finder.trials):
        print(line)


def make_finder(
    config: Config, target: Target, memory: int | None
) -> tuple[BatchFinder, Config]:
    """Inspect data and devices; return the finder and the resolved config.

    Raises:
      UserError: The data set is missing, or does not fit the config.
    """
    planner, config = make_planner(config, target, memory)
    if target.gpu is not None:
        assert target.num_devices is not None
        num, kind = target.num_devices, target.gpu.device_kind
    else:
        num, kind, usable = gpu_compiler.call(target, look, config.parallel.xla_flags)
        memory = usable if memory is None else memory
    finder = BatchFinder(
        planner=planner,
        num_devices=num,
        device_kind=kind,
        memory=memory,
        is_here=target.gpu is None,
    )
    return finder, config


def find_largest(
    finder: BatchFinder, config: Config, largest: int | None
) -> Trial | None:
    """Return the trial of the largest batch that fits, or None if no batch fits.

    The batch size is at most the length of the training split, and at most `largest`.
    """
    most, limit = len(finder.planner.splits.train), "the training split has"
    if largest is not None and largest < most:
        most, limit = largest, "--largest is"
    return batch_search.largest_batch(
        finder.attempt,
        config,
        num_devices=finder.num_devices,
        most=most,
        option="--vary batch_size",
        limit=limit,
    )


def find_fastest(finder: BatchFinder, config: Config) -> Trial | None:
    """Return the trial of the fastest micro-batch, or None if no micro-batch fits."""
    counts = batch_search.micro_batch_counts(config, finder.num_devices)

    def attempt(count: int) -> Trial | None:
        return finder.attempt(with_micro_batches(config, count))

    return batch_search.fastest(attempt, counts)


def show(finder: BatchFinder, found: Trial | None) -> None:
    """Print a table with one row per trial, the smallest micro-batch first."""
    speed = "images/s" if finder.is_here else "images/s bound"
    print(f"{finder.num_devices} x {finder.device_kind}:")
    table = Table(box=None, pad_edge=False)
    for name in ("batch", "micro-batches", speed, "memory per device", "of"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("fits")
    for trial in sorted(finder.trials, key=lambda t: t.micro_batch_size):
        speed, peak = trial.images_per_second, trial.peak_bytes
        table.add_row(
            f"{trial.batch_size:,}",
            f"{trial.accumulate_steps:,} of {trial.micro_batch_size:,}",
            "" if speed is None else f"{speed:,.0f}",
            binary(peak) if peak else "",
            binary(trial.usable_bytes),
            "recommended" if trial is found else "yes" if trial.fits else "no",
        )
    Console().print(table)


def to_json(
    finder: BatchFinder, config: Config, vary: Vary, found: Trial | None
) -> dict[str, Any]:
    """Return the contents of find_batch.json."""
    return {
        "target": str(finder.planner.target),
        "device_kind": finder.device_kind,
        "num_devices": finder.num_devices,
        "vary": vary,
        "batch_size": config.data.batch_size,
        "accumulate_steps": config.train.accumulate_steps,
        "measured": finder.is_here,
        "usable_bytes": finder.trials[0].usable_bytes,
        "trials": [trial.to_json() for trial in finder.trials],
        "recommended": found and found.to_json(),
        "versions": {"jax": jax.__version__},
    }
