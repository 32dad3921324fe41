"""Orbax's checkpointer: how we set it up, and what went wrong inside it."""

import functools
import inspect
import logging
import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from orbax.checkpoint import checkpoint_manager
from orbax.checkpoint import v1 as ocp

from jaxtrain.config import CheckpointConfig

# What Orbax writes last into a checkpoint.
COMMITTED = "commit_success.txt"

# Orbax reports routine steps, and the use of the faster non-OCDBT format, as warnings.
# What is wrong with a checkpoint `Checkpoints` says itself, once.
logging.getLogger("absl").setLevel(logging.CRITICAL)
logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def opener(
    directory: Path, config: CheckpointConfig, *, read_only: bool
) -> Callable[[], Any]:
    """Return what opens the folder, which must exist.

    Of several processes each has a checkpointer of its own, which waits for no other:
    one that waits for a process whose disk has failed waits for 20 minutes.
    """
    context = ocp.Context()
    # A step counts once its commit file is written: an empty or half-deleted folder
    # never does.
    context.atomicity.mode = type(context.atomicity.mode).COMMIT_FILE
    # The faster format for the small states of CNNs (docs/decisions.md).
    context.array_options.saving.use_ocdbt = False
    index = jax.process_index()
    if jax.process_count() > 1:
        context.multiprocessing_options.primary_host = index
        context.multiprocessing_options.active_processes = {index}
        # It would refuse to make the folder, which is there, for some processes alone.
        setattr(checkpoint_manager, "_create_root_directory", lambda *_: None)  # noqa: B010
    # The type of the policy is not that which Orbax's Checkpointer names.
    decisions: Any = ocp.training.save_decision_policies
    return functools.partial(
        ocp.training.Checkpointer,
        str(directory.absolute()),
        context=context,
        # The loop decides when to save.
        save_decision_policy=decisions.FixedIntervalPolicy(1),
        preservation_policy=_retention(config),
        # Of saves that were cut off; a reader must not touch those of a live run.
        cleanup_tmp_directories=not read_only and index == 0,
    )


def _retention(config: CheckpointConfig) -> Any:
    """Return Orbax's policy of what to keep: newest, best, every so many."""
    policies: Any = ocp.training.preservation_policies
    keep = [policies.LatestN(config.keep)]
    if config.keep_best:
        keep.append(
            policies.BestN(
                get_metric_fn=lambda metrics: _rank(config.best_metric, metrics),
                n=config.keep_best,
                keep_checkpoints_without_metrics=False,
            )
        )
    if config.keep_every_steps:
        keep.append(policies.EveryNSteps(config.keep_every_steps))
    return policies.AnyPreservationPolicy(keep)


def _rank(name: str, metrics: dict[str, Any]) -> tuple[float, int]:
    """Order evaluations: higher is better, of equal ones the first, NaN is worst."""
    value = metrics[name]
    if not isinstance(value, int | float) or not math.isfinite(value):
        return -math.inf, 0
    return (-value if name == "loss" else value), -metrics["step"]


@functools.cache  # Once for a process.
def silence_abandoned_work() -> None:
    """Drop the tracebacks of reads and writes that Orbax abandons when one fails."""
    previous = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        late = str(unraisable.exc_value) == "Event loop is closed"
        if not (late or inspect.iscoroutine(unraisable.object)):
            previous(unraisable)

    sys.unraisablehook = hook


def root_cause(error: BaseException) -> str:
    """Return the message of the first cause: Orbax wraps it in its own."""
    while error.__cause__ is not None:
        error = error.__cause__
    # What the system said, if it did: TensorStore hides it in a long text.
    code = re.search(r"os_error_code='(\d+)'", str(error))
    number = int(code[1]) if code else getattr(error, "errno", None)
    return os.strerror(number) if number else f"{type(error).__name__}: {error}"
