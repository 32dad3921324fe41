"""Saving of checkpoints during a run."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import asdict

import jax

from jaxtrain.checkpoints import manifest
from jaxtrain.checkpoints.remedies import is_of_space, remedy_of
from jaxtrain.checkpoints.retention import shown_size
from jaxtrain.errors import CheckpointError, DamagedError
from jaxtrain.processes import cluster
from jaxtrain.trainer.run_state import RunState
from jaxtrain.training.state import as_dict

# Number of consecutive failed saves after which the run ends.
MAX_FAILURES = 3


class Saves:
    """Saves checkpoints of the train state and the host-side state of a run.

    `MAX_FAILURES` consecutive failed saves end the run. With several processes, each
    writes its shards, and only process 0 detects failures: if process 0 exits, all
    processes exit.
    """

    def __init__(self, run: RunState):
        self._run, self._step = run, run.step
        self._failures = 0
        # Error of the last save, if it failed, and advice for the message.
        self._error: CheckpointError | None = None
        self._remedy = ""

    def done(self) -> bool:
        """Whether the current step is saved, or is being saved."""
        return self._step == self._run.step

    def due(self) -> bool:
        """Whether the timetable or a callback requests a save of the current step."""
        run = self._run
        every = run.trainer.timetable.save_every_steps
        return not self.done() and (run.save_asked or run.step % every == 0)

    def save(self) -> None:
        """Pass all metrics to the callbacks, then start to save the current step.

        Raises:
          BadNumbersError: Non-finite state, or too many non-finite steps in a row.
          CheckpointError: Too many saves failed in a row.
        """
        run, progress = self._run, self._run.progress
        data = run.trainer.data
        run.drain()
        run.callbacks.on_save(run)
        run.clock.update(progress)
        run.renew_statistics()
        with self._saving():
            info = {
                "config": asdict(run.trainer.config),
                "versions": run.versions,
                "own_parts": run.own_parts,
                "statistics": {"mean": data.mean, "std": data.std},
                "progress": asdict(progress),
            }
            metrics = self._metrics()
            self.look(wait=True)
            # Wait for process 0 here, not in a collective, which may time out.
            run.meet()
            self._error = None
            with self._counting_failures():
                run.saved.save(run.step, as_dict(run.state), info, metrics)
            # If process 0 failed, the other processes exit here, not within a step.
            cluster.current().barrier()
        self._step = run.step

    def look(self, *, wait: bool = False) -> None:
        """Warn if the last save failed.

        With several processes a call without `wait` has no effect: failures are raised
        only at synchronization points, never while other processes are in a step.

        Args:
          wait: Whether to wait for the last save.

        Raises:
          CheckpointError: Too many saves failed in a row.
        """
        if not wait and cluster.current().num > 1:
            return
        with self._counting_failures():
            if self._run.saved.committed(None if wait else 0):
                self._failures = 0

    def amend(self) -> None:
        """Add missing evaluation metrics of the current step to its checkpoint.

        A checkpoint has no metrics if a signal cancelled its evaluation. A checkpoint
        without metrics cannot become the best.
        """
        run, progress = self._run, self._run.progress
        if not (self.done() and self._evaluated()):
            return
        run.callbacks.on_save(run)
        if jax.process_index() != 0:
            return
        changes = {"metrics": self._metrics(), "progress": asdict(progress)}
        try:
            manifest.amend(self._run.saved.directory, run.step, changes)
        except (OSError, DamagedError) as error:
            run.warn(f"step {run.step} is saved without its metrics: {error}")

    def _evaluated(self) -> bool:
        return self._run.progress.evaluated_step == self._run.step

    def _metrics(self) -> dict[str, float] | None:
        """Validation metrics that rank the checkpoint; None if not ranked."""
        ranked = self._run.step >= self._run.trainer.timetable.ranked_from
        if not (ranked and self._evaluated()):
            return None
        return self._run.progress.eval_metrics

    def finish(self) -> None:
        """Save the last step and wait; verify the save unless a signal is pending.

        Raises:
          CheckpointError: The step could not be saved.
        """
        if not self.done():
            self.save()
        with self._saving():
            self._wait()
            self._run.meet()  # The other processes wait for the save, too.

    def _wait(self) -> None:
        saved = self._run.saved
        try:
            # After a signal, leave the verification to the next start, to save time.
            saved.finish() if self._run.signals.signum is None else saved.wait()
        except CheckpointError as error:
            self._record_error(error)
        if self._error is not None:
            raise CheckpointError(
                f"{self._error}: the final checkpoint is missing, so the run is not "
                f"finished. To fix the error: {self._remedy}; the same command resumes "
                "from the previous checkpoint"
            )

    @contextlib.contextmanager
    def _saving(self) -> Iterator[None]:
        """Show a save on the console, and measure its time as `checkpoint` time."""
        run = self._run
        doing = run.log.screen.doing("saving")
        with run.clock.timing("checkpoint"), run.watchdog.saving(), doing:
            yield

    def _record_error(self, error: CheckpointError) -> CheckpointError:
        """Record the error of the last save, with directory, free space and remedy."""
        folder = self._run.saved.directory
        place, self._remedy = str(folder), remedy_of(error)
        if is_of_space(error):
            place += f", {shown_size(shutil.disk_usage(folder).free)} free"
        self._error = CheckpointError(f"{error} ({place})")
        return self._error

    @contextlib.contextmanager
    def _counting_failures(self) -> Iterator[None]:
        """Count and log a failed save; re-raise after `MAX_FAILURES` in a row."""
        try:
            yield
        except CheckpointError as error:
            self._failures += 1
            count = f"failure {self._failures} of {MAX_FAILURES} in a row"
            message = f"{self._record_error(error)}: {count}"
            if self._failures < MAX_FAILURES:
                self._run.warn(
                    f"{message}; training continues, and the next save retries"
                )
                return
            self._run.warn(message)
            steps = self._run.saved.listed()
            raise CheckpointError(
                f"{message}. The last good checkpoint is "
                f"{steps[-1] if steps else 'none'}. To fix the error: {self._remedy}; "
                "the same command resumes from that checkpoint"
            ) from error
