"""Retention of checkpoints, and their disk space."""

import errno
import logging
import math
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxtrain.checkpoints import manifest
from jaxtrain.checkpoints.folder import committed_steps, remove, rename
from jaxtrain.checkpoints.orbax import system_error
from jaxtrain.config import CheckpointConfig
from jaxtrain.errors import DamagedError, UserError
from jaxtrain.tasks.metrics import Goal
from jaxtrain.trees import num_bytes

# Maximum fraction of the run time that verification takes. The first and the last
# checkpoint are always verified.
READING_SHARE = 0.005

_log = logging.getLogger(__name__)


class Retention:
    """Removes old checkpoints, but retains the last verified checkpoint.

    Thus a verified checkpoint always exists, although not all checkpoints are verified:
    verification takes at most `READING_SHARE` of the run time.

    Args:
      directory: Directory of the checkpoints.
      config: Config section of the checkpoints.
      best: Metric that ranks checkpoints; None retains no best checkpoint.
      verify: Function that reads the checkpoint of a step, and raises DamagedError if
        the checkpoint is damaged.
    """

    def __init__(
        self,
        directory: Path,
        config: CheckpointConfig,
        best: Goal | None,
        verify: Callable[[int], Any],
    ):
        self.directory, self._config, self._best = directory, config, best
        self._verify = verify
        self._good: int | None = None
        self._wait_until = 0.0

    def committed(self, step: int) -> None:
        """Verify a new checkpoint if verification is due; remove old checkpoints."""
        if time.monotonic() >= self._wait_until:
            self._read_back(step)
        self._remove_old()

    def finish(self) -> None:
        """Verify the last checkpoint if still unverified; remove old checkpoints."""
        steps = committed_steps(self.directory)
        if self._good is not None and steps and steps[-1] != self._good:
            self._read_back(steps[-1])
            self._remove_old()

    def restored(self, step: int) -> None:
        """Mark the restored checkpoint as verified, and remove old checkpoints."""
        self._good = step
        self._remove_old()

    def _read_back(self, step: int) -> None:
        """Verify a checkpoint; if damaged, quarantine it and raise DamagedError."""
        start = time.monotonic()
        try:
            self._verify(step)
        except DamagedError as error:
            if not _unreadable_now(error):
                rename(self.directory, step)
            raise
        self._good, end = step, time.monotonic()
        self._wait_until = end + (end - start) * (1 / READING_SHARE - 1)

    def _remove_old(self) -> None:
        """Remove old checkpoints; a failed removal is repeated after the next save."""
        try:
            remove_old(self.directory, self._config, self._best, self._good)
        except OSError as error:
            _log.warning("could not remove old checkpoints: %s", error)


def remove_old(
    directory: Path, config: CheckpointConfig, best: Goal | None, good: int | None
) -> None:
    """Remove checkpoints that `config` does not retain; quarantine unreadable ones."""
    metrics = {}
    for step in committed_steps(directory):
        try:
            metrics[step] = manifest.read(directory, step)["metrics"]
        except DamagedError as error:
            if _unreadable_now(error):
                return
            _log.warning("%s; moved aside", error)
            rename(directory, step)
    for step in metrics.keys() - kept(metrics, config, best) - {good}:
        remove(directory / str(step))


def _unreadable_now(error: DamagedError) -> bool:
    """Whether a checkpoint may be undamaged, as reading failed with a system error."""
    number = system_error(error)
    return number is not None and number != errno.ENOENT


def kept(
    metrics: Mapping[int, Mapping[str, Any] | None],
    config: CheckpointConfig,
    best: Goal | None,
) -> set[int]:
    """Choose the checkpoints to retain; return their steps.

    Args:
      metrics: Validation metrics of each checkpoint, by step; None if not evaluated.
      config: Config section of the checkpoints.
      best: Metric that ranks checkpoints; None retains only the newest checkpoints.
    """
    steps = sorted(metrics)
    keep = set(steps[-config.keep :])
    if best is not None:
        rated = {step: values for step, values in metrics.items() if values is not None}
        ranks = {step: _rank(best, step, values) for step, values in rated.items()}
        ranked = sorted(ranks, key=ranks.__getitem__, reverse=True)
        keep |= set(ranked[: config.keep_best])
    return keep


def _rank(best: Goal, step: int, metrics: Mapping[str, Any]) -> tuple[float, int]:
    """Sort key of a checkpoint; of equal metrics, the later step ranks higher.

    Non-finite and missing metrics rank lowest. A metric is missing if
    `checkpoint.best_metric` was changed during the run.
    """
    value = metrics.get(best.metric)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return -math.inf, 0
    return (value if best.higher else -value), step


def num_copies(config: CheckpointConfig) -> int:
    """Maximum number of checkpoints on the disk at a time.

    They are the retained checkpoints, the last verified checkpoint, and the checkpoint
    that is being written.
    """
    return config.keep + config.keep_best + 2


def check_space(folder: Path, abstract_state: Any, config: CheckpointConfig) -> None:
    """Raise UserError if the disk has too little space for a run's checkpoints.

    The assumed size of a checkpoint is the uncompressed size of its arrays. Space that
    existing checkpoints take is counted as free, because new checkpoints replace them.
    """
    size, copies = num_bytes(abstract_state), num_copies(config)
    old = [p for step in folder.glob("[0-9]*") for p in step.rglob("*") if p.is_file()]
    free = shutil.disk_usage(folder).free + sum(p.stat().st_size for p in old)
    if free < copies * size:
        raise UserError(
            f"{folder}: the disk has {shown_size(free)} of free space, but {copies} "
            f"checkpoints of {shown_size(size)} take up to {shown_size(copies * size)} "
            f"(checkpoint.keep = {config.keep}, "
            f"checkpoint.keep_best = {config.keep_best}, one being verified and one "
            "being written): free disk space, choose another --workdir, or reduce "
            "checkpoint.keep"
        )


def shown_size(num_bytes: int) -> str:
    """Format a number of bytes, such as 1.5 GB."""
    for power, unit in ((9, "GB"), (6, "MB"), (3, "kB")):
        if num_bytes >= 10**power:
            return f"{num_bytes / 10**power:.1f} {unit}"
    return f"{num_bytes} bytes"
