"""Which checkpoints stay: the newest, the best, and every so many.

A step goes only once a newer one was read back from the disk: a good one is there at
each instant.
"""

import logging
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxtrain import manifest, quarantine
from jaxtrain.checkpointer import COMMITTED, committed_steps
from jaxtrain.config import CheckpointConfig
from jaxtrain.errors import DamagedError

_log = logging.getLogger(__name__)


def remove_old(directory: Path, config: CheckpointConfig) -> None:
    """Remove the steps that `config` does not keep; put aside what it cannot rate.

    To be called once the newest is known to be good.
    """
    metrics = {}
    for step in committed_steps(directory):
        try:
            metrics[step] = manifest.read(directory, step).get("metrics")
        except DamagedError as error:
            _log.warning("%s; put aside", error)
            quarantine.rename(directory, step)
    for step in metrics.keys() - kept(metrics, config):
        # First, so that what a kill leaves of it does not count as a step.
        (directory / str(step) / COMMITTED).unlink()
        shutil.rmtree(directory / str(step))


def kept(
    metrics: Mapping[int, Mapping[str, Any] | None], config: CheckpointConfig
) -> set[int]:
    """Choose the steps to keep.

    Args:
      metrics: of the validation split, of each step; None: it was not evaluated.
      config: how many.
    """
    steps = sorted(metrics)
    keep = set(steps[-config.keep :])
    ranks = {
        step: _rank(config.best_metric, step, values)
        for step, values in metrics.items()
        if values is not None
    }
    keep |= set(sorted(ranks, key=ranks.__getitem__, reverse=True)[: config.keep_best])
    if config.keep_every_steps:
        keep |= {step for step in steps if step % config.keep_every_steps == 0}
    return keep


def _rank(name: str, step: int, metrics: Mapping[str, Any]) -> tuple[float, int]:
    """Order evaluations: higher is better, of equal ones the first, NaN is worst."""
    value = metrics[name]
    if not isinstance(value, int | float) or not math.isfinite(value):
        return -math.inf, 0
    return (-value if name == "loss" else value), -step
