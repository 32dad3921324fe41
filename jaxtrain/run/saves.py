"""The checkpoints of a run: when, and what is in them."""

import time
from dataclasses import asdict

import jax

from jaxtrain.checkpoints import manifest
from jaxtrain.checkpoints.saver import Saver
from jaxtrain.errors import DamagedError
from jaxtrain.run import moved
from jaxtrain.run.attempt import Attempt
from jaxtrain.run.reports import Reports
from jaxtrain.training.state import as_dict


class Saves:
    """Saves the state with all that the host needs to go on."""

    def __init__(self, attempt: Attempt, reports: Reports):
        self._attempt, self._job, self._reports = attempt, attempt.job, reports
        self.saver = Saver(self._job.saved, attempt.tell, self._job.hooks.before_save)
        self._step, self._at = attempt.step, time.monotonic()

    def done(self) -> bool:
        """Whether this very step is saved, or being saved."""
        return self._step == self._attempt.step

    def due(self) -> bool:
        """Whether this step is to be saved by the timetable."""
        timetable = self._job.setup.timetable
        if self.done():
            return False
        if timetable.save_every_seconds is not None:
            return time.monotonic() - self._at >= timetable.save_every_seconds
        every = timetable.save_every_steps
        return every is not None and self._attempt.step % every == 0

    def save(self) -> None:
        """Start to save this step, and tell of the steps up to it before.

        Raises:
          CheckpointError: Too many saves have failed.
          MovedError: The workdir was moved; the step is saved there if that can be.
        """
        self._reports.settle(0)
        attempt, job, progress = self._attempt, self._job, self._attempt.progress
        followed = moved.follow(job, self._step)
        progress.interval = self._reports.open_interval()
        attempt.clock.update()
        doing = attempt.log.screen.doing("saving")
        with attempt.clock.paused(), attempt.watchdog.saving(), doing:
            info = {
                "config": asdict(job.setup.config),
                "versions": job.versions,
                "own_parts": job.own_parts,
                "statistics": {"mean": job.programs.mean, "std": job.programs.std},
                "progress": asdict(progress),
            }
            metrics = progress.eval_metrics if self._evaluated() else None
            self.saver.save(attempt.step, as_dict(attempt.state), info, metrics)
            if followed:
                moved.end(job)
        self._step, self._at = attempt.step, time.monotonic()

    def amend(self) -> None:
        """Add the evaluation of this step to its checkpoint if that was saved without.

        A signal had interrupted the evaluation; the checkpoint could not be kept as the
        best otherwise.
        """
        attempt, progress = self._attempt, self._attempt.progress
        if not (self.done() and self._evaluated() and jax.process_index() == 0):
            return
        changes = {"metrics": progress.eval_metrics, "progress": asdict(progress)}
        try:
            manifest.amend(self._job.saved.directory, attempt.step, changes)
        except (OSError, DamagedError) as error:
            attempt.tell(f"step {attempt.step} is saved without its metrics: {error}")

    def _evaluated(self) -> bool:
        return self._attempt.progress.evaluated_step == self._attempt.step

    def finish(self) -> None:
        """Save the last step, and wait for it; read it back unless a signal waits."""
        attempt, job = self._attempt, self._job
        if not self.done() or moved.lacks(job, attempt.step):
            self.save()
        doing = attempt.log.screen.doing("saving")
        with attempt.clock.paused(), attempt.watchdog.saving(), doing:
            # A stop has little time; the next start reads what was saved.
            try:
                self.saver.finish(read_back=job.signals.signum is None)
            finally:
                moved.check(job)
