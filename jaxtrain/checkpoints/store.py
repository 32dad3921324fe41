"""Checkpoints, behind Orbax: written beside the training, verified when they are read.

Of several processes each copies its shards at the step and writes them in a background
thread without collectives (`joint`), and process 0 commits when all have written.

A checkpoint of step N holds the state after N steps and a manifest, JSON with the
config, the versions and the progress of the run; the position in the data is the step
itself.
"""

import contextlib
import gc
import logging
import sys
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import jax

from jaxtrain.checkpoints import manifest, shards, snapshot
from jaxtrain.checkpoints.digest import digests
from jaxtrain.checkpoints.folder import (
    DAMAGED,
    REWOUND,
    check_name,
    committed_steps,
    newest_name,
    remove_uncommitted,
    rename,
)
from jaxtrain.checkpoints.joint import JointSave
from jaxtrain.checkpoints.orbax import load, reading, root_cause
from jaxtrain.checkpoints.retention import Retention
from jaxtrain.checkpoints.saving import contribute, lead
from jaxtrain.config import CheckpointConfig
from jaxtrain.errors import (
    BadNumbersError,
    CheckpointError,
    DamagedError,
    StartAgainError,
)
from jaxtrain.json_files.run_id import RunId
from jaxtrain.parallel.device_put import put_like
from jaxtrain.processes import cluster
from jaxtrain.tasks.metrics import Goal
from jaxtrain.trees import by_path, path_name

_log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one run, `directory/<step>/`, newest and best kept.

    Of several processes each writes and reads its shards; the first commits and removes
    checkpoints, and is told why another one could not write. They must call the methods
    at the same places, but for `listed` and `committed`.

    Args:
      best: Goal that ranks their evaluations; None keeps none as the best.
      run: Run that they belong to; a step of another one is refused.
      read_only: Whether to leave the save of a live run alone.

    Raises:
      UserError: the name of the directory is not UTF-8.
    """

    def __init__(
        self,
        directory: Path,
        config: CheckpointConfig,
        best: Goal | None = None,
        *,
        run: RunId,
        read_only: bool = False,
    ):
        check_name(directory)
        self.directory, self.run = directory, run
        self._writes = not read_only and jax.process_index() == 0
        if self._writes:
            remove_uncommitted(directory)
        self._retention = Retention(directory, config, best, self._verify)
        # Completes one save at a time, beside the training. It takes no device and no
        # collective, so that nothing depends on when it comes to what.
        self._background = ThreadPoolExecutor(max_workers=1)
        self._pending: Future[None] | None = None
        self._joint: JointSave | None = None
        self._failed = False

    def steps(self) -> list[int]:
        """List the committed steps, rising, once the last save is."""
        self.wait()
        return cluster.current().gather(self.listed())[0]

    def listed(self) -> list[int]:
        """List the committed steps that this process sees now."""
        return committed_steps(self.directory)

    def newest(self) -> str:
        """Name the newest checkpoint, for a message; a save that fails is not in it."""
        with contextlib.suppress(CheckpointError):
            self.wait()
        return cluster.current().gather(newest_name(self.directory))[0]

    def save(
        self,
        step: int,
        state: dict[str, Any],
        info: dict[str, Any],
        metrics: dict[str, Any] | None,
    ) -> None:
        """Copy the arrays, and leave the rest of the save to the background.

        Args:
          info: Values that JSON can hold.
          metrics: Validation metrics, which rank the checkpoints.

        Raises:
          BadNumbersError, CheckpointError: The save before this one failed.
        """
        self.wait()
        if self._failed:
            # Errors of Orbax hold the copy of a save that failed in cycles.
            gc.collect()
            self._failed = False
        copied = snapshot.take(state)
        self._joint = joint = JointSave(cluster.current())
        if cluster.current().index != 0:
            folder = self.directory / str(step)
            self._pending = self._background.submit(contribute, folder, copied, joint)
        else:
            self._pending = self._background.submit(
                self._complete, step, copied, info, metrics, joint
            )

    def _complete(
        self,
        step: int,
        state: dict[str, Any],
        info: dict[str, Any],
        metrics: dict[str, Any] | None,
        joint: JointSave,
    ) -> None:
        """Write a state, commit it, and remove what it replaces."""
        try:
            folder = self.directory / str(step)
            lead(folder, state, info, metrics, self.run, joint)
            self._retention.committed(step)
        except (BadNumbersError, StartAgainError):
            raise
        except Exception as error:
            reason = root_cause(error)
            raise CheckpointError(f"could not save step {step}: {reason}") from error

    def wait(self) -> None:
        """Wait until the last save is committed; raise what `committed` does."""
        self.committed(timeout=None)

    def finish(self) -> None:
        """Wait as `wait` does, and raise CheckpointError if it reads back wrongly."""
        self.wait()
        if jax.process_index() == 0:
            self._retention.finish()

    def committed(self, timeout: float | None = 0) -> bool:
        """Whether a save was committed since the last call.

        Args:
          timeout: seconds to wait for it; None: until it is done.

        Raises:
          BadNumbersError: Its state is not finite; nothing was written.
          CheckpointError: It failed; what it left is removed.
        """
        if self._pending is None or not wait([self._pending], timeout).done:
            return False
        completed, self._pending = self._pending, None
        self._failed = completed.exception() is not None
        completed.result()
        return True

    def restore(
        self, step: int, abstract_state: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Load a step onto the abstract state, with today's shardings.

        Returns:
          The state, and the JSON saved with it.

        Raises:
          UserError: the checkpoint's arrays have other paths, shapes or dtypes.
          DamagedError: it cannot be read, by all processes, or is not what was saved.
        """
        if cluster.current().num > 1:
            return shards.restore(self.directory, step, abstract_state, self.run)
        info = self.info(step)
        manifest.check_match(step, info["arrays"], abstract_state)
        arrays = by_path(self._load(step, info))
        placed = jax.tree_util.tree_map_with_path(
            lambda path, like: put_like(arrays[path_name(path)], like), abstract_state
        )
        return placed, info

    def restore_newest(
        self, abstract_state: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Restore the newest good step; put damaged ones aside as `quarantine-STEP`.

        What a run that was killed has left to remove is removed.

        Returns:
          What `restore` does; None if there is no checkpoint at all.

        Raises:
          UserError: the newest good step does not fit.
          CheckpointError: there are checkpoints, but none is good.
        """
        for step in reversed(self.steps()):
            try:
                restored = self.restore(step, abstract_state)
                if jax.process_index() == 0:
                    self._retention.restored(step)
                return restored
            except DamagedError as error:
                if jax.process_index() == 0:
                    _log.warning("%s; put aside", error)
                self.put_aside(step)
        damaged = sorted(p.name for p in self.directory.glob(f"{DAMAGED}-*"))
        if damaged:
            raise CheckpointError(
                f"no checkpoint in {self.directory} is good ({', '.join(damaged)}): "
                "bring one back from a backup, or start anew with --fresh"
            )
        return None

    def read(self, step: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read all of a step, without a device, whatever it was saved from.

        Returns:
          The state, NumPy arrays in nested dicts and lists, and the JSON saved with it.

        Raises:
          DamagedError: it cannot be read, or is not what was saved.
        """
        info = self.info(step)
        return self._load(step, info), info

    def info(self, step: int) -> dict[str, Any]:
        """Return the JSON saved with a step, as `manifest.read` does."""
        return manifest.read(self.directory, step, self.run)

    def check_run(self) -> None:
        """Raise OtherRunError if a step that can be read belongs to another run."""
        for step in self.listed():
            with contextlib.suppress(DamagedError):
                self.info(step)

    def _load(self, step: int, info: dict[str, Any]) -> Any:
        with reading(step):
            state = load(self.directory / str(step))
        manifest.check_digests(step, info["arrays"], state, digests(state))
        return state

    def _verify(self, step: int) -> None:
        """Read all of a step as `read` does, and keep nothing."""
        if cluster.current().num > 1:
            shards.verify(self.directory, step, self.info(step))
        else:
            self.read(step)

    def put_aside(self, step: int, label: str = DAMAGED) -> None:
        """Rename a step to `LABEL-STEP`; all processes must call it."""
        if jax.process_index() == 0:
            rename(self.directory, step, label)
        cluster.current().barrier()

    def put_aside_after(self, step: int) -> None:
        """Rename all newer steps to `rewound-STEP`: training goes on from this one."""
        for newer in reversed([found for found in self.steps() if found > step]):
            self.put_aside(newer, REWOUND)

    def close(self) -> None:
        ending = sys.exc_info()[1]
        if ending is not None and self._joint and self._pending is not None:
            # Before JAX aborts this process, if another one was lost.
            self._joint.give_up(self._pending, cluster.current().heartbeat_seconds / 4)
        try:
            self.wait()
        except (CheckpointError, StartAgainError) as error:
            # What ends the run has a message and an exit code of its own.
            if ending is None:
                raise
            _log.warning("%s", error)
        finally:
            self._background.shutdown()
            if self._writes:
                # Files of a save that failed may have come after its removal.
                remove_uncommitted(self.directory)
