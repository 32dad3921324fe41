"""Checkpoints of a run: written in the background, verified when read.

In a run of several processes, each process copies its shards at the step, and writes
the copies in a background thread, without collectives (see `joint`). Process 0 commits.

A checkpoint of step N contains the state after N steps, and a JSON manifest with the
config, versions and progress of the run. The step determines the position in the data.
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
    """Saves, restores and removes the checkpoints of a run, `directory/<step>/`.

    Each process writes and reads its shards. Process 0 commits and removes checkpoints,
    and receives the errors of other processes. All processes must call the methods,
    except `listed` and `committed`, in the same order.

    Args:
      directory: Directory of the checkpoints.
      config: `checkpoint` section of the config.
      best: Metric that ranks the checkpoints; None retains no best checkpoint.
      run: Run to which the checkpoints must belong.
      read_only: Whether to leave files unchanged, as another process may be training.

    Raises:
      UserError: The path of the directory is not UTF-8.
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
        # The thread uses neither devices nor collectives, so its timing relative to
        # training steps does not matter.
        self._background = ThreadPoolExecutor(max_workers=1)
        self._pending: Future[None] | None = None
        self._joint: JointSave | None = None
        self._failed = False

    def steps(self) -> list[int]:
        """After the last save, list the steps of committed checkpoints, ascending."""
        self.wait()
        return cluster.current().gather(self.listed())[0]

    def listed(self) -> list[int]:
        """List the steps of committed checkpoints seen by this process, ascending."""
        return committed_steps(self.directory)

    def newest(self) -> str:
        """Wait for the last save; return the newest checkpoint's path or `none yet`."""
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
        """Copy the arrays, and complete the save in the background.

        Args:
          step: Number of completed steps.
          state: Arrays of the training state.
          info: JSON values of the run: config, versions, progress.
          metrics: Validation metrics; None if the step was not evaluated.

        Raises:
          BadNumbersError, CheckpointError: The previous save failed.
        """
        self.wait()
        if self._failed:
            # Reference cycles through Orbax's errors keep the copied state alive.
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
        """Write, commit and possibly verify a checkpoint; remove old checkpoints."""
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
        """Wait until the last save is complete; raise its errors (see `committed`)."""
        self.committed(timeout=None)

    def finish(self) -> None:
        """Wait for the last save, and verify the last checkpoint."""
        self.wait()
        if jax.process_index() == 0:
            self._retention.finish()

    def committed(self, timeout: float | None = 0) -> bool:
        """Whether a save was completed since the last call; raise its errors.

        Args:
          timeout: Maximum time in seconds to wait for the save; None is no limit.

        Raises:
          BadNumbersError: The state is not finite; nothing was written.
          CheckpointError: The save failed; its leftovers are removed.
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
        """Restore a checkpoint with the shardings of `abstract_state`.

        Returns:
          The state and its manifest.

        Raises:
          UserError: The arrays differ from `abstract_state` in path, shape or dtype.
          DamagedError: The checkpoint is damaged, or a process cannot read it.
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
        """Restore the newest good checkpoint; rename damaged ones to `quarantine-STEP`.

        Checkpoints that need not be retained are removed.

        Returns:
          Result of `restore`, or None if there is no checkpoint.

        Raises:
          UserError: The newest good checkpoint does not match the abstract state.
          CheckpointError: All checkpoints are damaged.
        """
        for step in reversed(self.steps()):
            try:
                restored = self.restore(step, abstract_state)
                if jax.process_index() == 0:
                    self._retention.restored(step)
                return restored
            except DamagedError as error:
                if jax.process_index() == 0:
                    _log.warning("%s; moved aside", error)
                self.put_aside(step)
        damaged = sorted(p.name for p in self.directory.glob(f"{DAMAGED}-*"))
        if damaged:
            raise CheckpointError(
                f"all checkpoints in {self.directory} are damaged "
                f"({', '.join(damaged)}): restore a backup, or give --fresh"
            )
        return None

    def read(self, step: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a full checkpoint into host memory.

        Returns:
          The state (NumPy arrays in nested dicts and lists) and its manifest.

        Raises:
          DamagedError: The checkpoint is unreadable or damaged.
        """
        info = self.info(step)
        return self._load(step, info), info

    def info(self, step: int) -> dict[str, Any]:
        """Read the manifest of a checkpoint."""
        return manifest.read(self.directory, step, self.run)

    def check_run(self) -> None:
        """Raise OtherRunError if a readable checkpoint belongs to another run."""
        for step in self.listed():
            with contextlib.suppress(DamagedError):
                self.info(step)

    def _load(self, step: int, info: dict[str, Any]) -> Any:
        with reading(step):
            state = load(self.directory / str(step))
        manifest.check_digests(step, info["arrays"], state, digests(state))
        return state

    def _verify(self, step: int) -> None:
        if cluster.current().num > 1:
            shards.verify(self.directory, step, self.info(step))
        else:
            self.read(step)

    def put_aside(self, step: int, label: str = DAMAGED) -> None:
        """Rename a checkpoint to `LABEL-STEP`; all processes must call the method."""
        if jax.process_index() == 0:
            rename(self.directory, step, label)
        cluster.current().barrier()

    def put_aside_after(self, step: int) -> None:
        """Rename each checkpoint after `step` to `rewound-STEP`; STEP is its step."""
        for newer in reversed([found for found in self.steps() if found > step]):
            self.put_aside(newer, REWOUND)

    def close(self) -> None:
        ending = sys.exc_info()[1]
        if ending is not None and self._joint and self._pending is not None:
            # Wait less than the heartbeat timeout, after which JAX aborts this process.
            self._joint.give_up(self._pending, cluster.current().heartbeat_seconds / 4)
        try:
            self.wait()
        except (CheckpointError, StartAgainError) as error:
            # The run already ends with another error, which is raised.
            if ending is None:
                raise
            _log.warning("%s", error)
        finally:
            self._background.shutdown()
            if self._writes:
                # Threads may have written files after the failed save was removed.
                remove_uncommitted(self.directory)
