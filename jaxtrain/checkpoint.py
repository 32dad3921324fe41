"""Checkpoints, behind Orbax: asynchronous, verified against the state they go into.

A checkpoint of step N holds the state after N steps and a manifest, JSON with the
config, the versions and the progress of the run; the position in the data is the step
itself.
"""

import contextlib
import functools
import inspect
import logging
import math
import os
import re
import shutil
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from jaxtrain import manifest, quarantine
from jaxtrain.config import CheckpointConfig
from jaxtrain.digest import scan
from jaxtrain.errors import BadNumbersError, CheckpointError, DamagedError

_STATE = "state"
# What Orbax writes last into a checkpoint.
COMMITTED = "commit_success.txt"
# Tries to remove a failed save, 50 ms apart.
REMOVALS = 40

# Orbax reports routine steps, and the use of the faster non-OCDBT format, as warnings.
# What is wrong with a checkpoint this module says itself, once.
logging.getLogger("absl").setLevel(logging.CRITICAL)
logging.getLogger("asyncio").setLevel(logging.CRITICAL)
_log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one run, `directory/<step>/`, newest and best kept."""

    def __init__(
        self, directory: Path, config: CheckpointConfig, *, read_only: bool = False
    ):
        self.directory = directory
        quarantine.put_unreadable_aside(directory, read_only=read_only)
        context = ocp.Context()
        # A step counts once its commit file is written: an empty or half-deleted folder
        # never does.
        context.atomicity.mode = type(context.atomicity.mode).COMMIT_FILE
        # The faster format for the small states of CNNs (docs/decisions.md).
        context.array_options.saving.use_ocdbt = False
        # The type of the policy is not that which Orbax's Checkpointer names.
        decisions: Any = ocp.training.save_decision_policies
        self._open = functools.partial(
            ocp.training.Checkpointer,
            str(directory.absolute()),
            context=context,
            # The loop decides when to save.
            save_decision_policy=decisions.FixedIntervalPolicy(1),
            preservation_policy=_retention(config),
            # Of saves that were cut off; a reader must not touch those of a live run.
            cleanup_tmp_directories=not read_only,
        )
        self._checkpointer = self._open()
        self._pending: tuple[int, Any] | None = None
        self._failed = False

    def steps(self) -> list[int]:
        """List the committed steps, rising."""
        self.wait()
        return [checkpoint.step for checkpoint in self._checkpointer.checkpoints]

    def newest(self) -> str:
        """Name the newest checkpoint, for a message."""
        steps = self.steps()
        return str(self.directory / str(steps[-1])) if steps else "none yet"

    def save(
        self,
        step: int,
        state: dict[str, Any],
        info: dict[str, Any],
        metrics: dict[str, Any] | None,
    ) -> None:
        """Start to save; the arrays are copied before this returns.

        Args:
          step: completed steps.
          state: nested dicts of arrays.
          info: JSON values.
          metrics: of the validation split, by which the best checkpoints are kept.

        Raises:
          CheckpointError: this save could not start, or the one before it failed.
          BadNumbersError: the state is not finite.
        """
        self.wait()
        sums, bad = scan(state)
        if bad:
            more = f" and {len(bad) - 1} more arrays" if len(bad) > 1 else ""
            raise BadNumbersError(
                f"step {step}: {bad[0]}{more} of the state is not finite; it is not "
                f"saved, and the last good checkpoint is {self.newest()}"
            )
        _silence_abandoned_work()
        try:
            response = self._checkpointer.save_checkpointables_async(
                step,
                {_STATE: state},
                metrics=None if metrics is None else {**metrics, "step": step},
                custom_metadata=manifest.make(state, sums, info),
            )
        except Exception as error:
            self._forget_failed(step)
            raise CheckpointError(
                f"could not save step {step}: {_root(error)}"
            ) from error
        if response is None:
            raise CheckpointError(f"Orbax did not save step {step}: it skipped it")
        self._pending = step, response

    def wait(self) -> None:
        """Wait until the last save is committed.

        Raises:
          CheckpointError: it failed.
        """
        self.committed(timeout=None)

    def committed(self, timeout: float | None = 0) -> bool:
        """Tell, once for each save, that it is committed.

        Args:
          timeout: seconds to wait for it; None: until it is done.

        Raises:
          CheckpointError: it failed; what it left is removed.
        """
        if self._pending is None:
            return False
        step, response = self._pending
        try:
            response.result(timeout)
        except Exception as error:
            if timeout is not None and isinstance(error, TimeoutError):
                return False
            self._pending = None
            self._forget_failed(step)
            raise CheckpointError(
                f"could not save step {step}: {_root(error)}"
            ) from error
        self._pending = None
        return True

    def _forget_failed(self, step: int) -> None:
        """Remove what a failed save left, and open the folder anew.

        After one, Orbax lists no step any more, and raises the same error again. Of
        several processes none could open it alone.
        """
        self._failed = jax.process_count() > 1
        if self._failed:
            return
        with contextlib.suppress(Exception):
            self._checkpointer.close()
        remains = self.directory / str(step)
        for _ in range(REMOVALS):
            if (remains / COMMITTED).exists():
                break
            shutil.rmtree(remains, ignore_errors=True)
            time.sleep(0.05)
            # Other files of the same save may have been under way.
            if not remains.exists():
                break
        self._checkpointer = self._open()

    def restore(
        self, step: int, abstract_state: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Load a step onto the abstract state, with today's shardings.

        Returns:
          The state, and the JSON saved with it.

        Raises:
          UserError: the checkpoint's arrays have other paths, shapes or dtypes.
          DamagedError: it cannot be read, or is not what was saved.
        """
        info, _ = self._read_info(step)
        manifest.check_match(step, info["arrays"], abstract_state)
        state = self._load(step, abstract_state)
        manifest.check_digests(step, info["arrays"], state)
        return state, info

    def restore_newest(
        self, abstract_state: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Restore the newest good step; put damaged ones aside as `quarantine-STEP`.

        Returns:
          What `restore` does; None if there is no checkpoint at all.

        Raises:
          UserError: the newest good step does not fit.
          CheckpointError: there are checkpoints, but none is good.
        """
        for step in reversed(self.steps()):
            try:
                return self.restore(step, abstract_state)
            except DamagedError as error:
                _log.warning("%s; put aside", error)
                quarantine.put_aside(self.directory, step)
                self._checkpointer.reload()
        damaged = sorted(p.name for p in self.directory.glob(f"{quarantine.DAMAGED}-*"))
        if damaged:
            raise CheckpointError(
                f"no checkpoint in {self.directory} is good ({', '.join(damaged)}): "
                "bring one back from a backup, or start anew with --fresh"
            )
        return None

    def verify(self, step: int) -> dict[str, Any]:
        """Read all of a step onto one device; return the JSON saved with it.

        Raises:
          DamagedError: it cannot be read, or is not what was saved.
        """
        info, saved = self._read_info(step)
        device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        abstract = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device), saved
        )
        manifest.check_digests(step, info["arrays"], self._load(step, abstract))
        return info

    def info(self, step: int) -> dict[str, Any]:
        """Return the JSON saved with a step.

        Raises:
          DamagedError: it cannot be read, or is not what was saved.
        """
        return self._read_info(step)[0]

    def _read_info(self, step: int) -> tuple[dict[str, Any], Any]:
        """Return the JSON of a step, and Orbax's own description of its state."""
        try:
            metadata: Any = self._checkpointer.checkpointables_metadata(step)
            saved = metadata.metadata[_STATE]
            info: dict[str, Any] = dict(metadata.custom_metadata)
        except Exception as error:
            raise DamagedError(f"could not read step {step}: {_root(error)}") from error
        return manifest.check(step, info), saved

    def _load(self, step: int, abstract_state: Any) -> Any:
        _silence_abandoned_work()
        try:
            with warnings.catch_warnings():
                # Resuming on other devices than those that saved is what we are for.
                warnings.filterwarnings("ignore", message=".*[Ss]harding.*")
                loaded = self._checkpointer.load_checkpointables(
                    step, {_STATE: abstract_state}
                )
            return loaded[_STATE]
        except Exception as error:
            raise DamagedError(f"could not read step {step}: {_root(error)}") from error

    def put_aside_after(self, step: int) -> None:
        """Rename all newer steps to `rewound-STEP`: training goes on from this one."""
        for newer in reversed(self.steps()):
            if newer > step:
                quarantine.put_aside(self.directory, newer, quarantine.REWOUND)
        self._checkpointer.reload()

    def close(self) -> None:
        try:
            self.wait()
        finally:
            # Orbax raises a failed save, which `wait` has told, once more.
            with contextlib.suppress(*([Exception] if self._failed else [])):
                self._checkpointer.close()


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
def _silence_abandoned_work() -> None:
    """Drop the tracebacks of reads and writes that Orbax abandons when one fails."""
    previous = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        late = str(unraisable.exc_value) == "Event loop is closed"
        if not (late or inspect.iscoroutine(unraisable.object)):
            previous(unraisable)

    sys.unraisablehook = hook


def _root(error: BaseException) -> str:
    """Return the message of the first cause: Orbax wraps it in its own."""
    while error.__cause__ is not None:
        error = error.__cause__
    # What the system said, if it did: TensorStore hides it in a long text.
    code = re.search(r"os_error_code='(\d+)'", str(error))
    number = int(code[1]) if code else getattr(error, "errno", None)
    return os.strerror(number) if number else f"{type(error).__name__}: {error}"
