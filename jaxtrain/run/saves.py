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
        self._attempt, self._reports = attempt, reports
        job = attempt.job
        self.saver = Saver(job.saved, attempt.tell, job.hooks.before_save)
        self._step, self._at = attempt.step, time.monotonic()

    def done(self) -> bool:
        """Whether this very step is saved, or being saved."""
        return self._step == self._attempt.step

    def due(self) -> bool:
        """Whether this step is to be saved by the timetable."""
        timetable = self._attempt.job.setup.timetable
        if self.done():
            return False
        if timetable.save_every_seconds is not None:
            return time.monotonic() - self._at >= timetable.save_every_seconds
        every = timetable.save_every_steps
        return every is not None and self._attempt.step % every == 0

    def save(self) -> None:
        """Start to save this step, and tell of the steps up to it before.

        Raises:
          CheckpointError: too many saves have failed.
          MovedError: the workdir was moved; the step is saved there if that can be.
        """
        self._reports.settle(0)
        attempt, job = self._attempt, self._attempt.job
        followed = moved.follow(job, self._step)
        progress = attempt.progress
        progress.interval = self._reports.open_interval()
        attempt.clock.update()
        doing = attempt.log.doing("saving")
        with attempt.clock.paused(), attempt.watchdog.saving(), doing:
            evaluated = progress.evaluated_step == attempt.step
            self.saver.save(
                attempt.step,
                as_dict(attempt.state),
                {
                    "config": asdict(job.setup.config),
                    "versions": job.versions,
                    "own_parts": job.own_parts,
                    "statistics": {"mean": job.programs.mean, "std": job.programs.std},
                    "progress": asdict(progress),
                },
                progress.eval_metrics if evaluated else None,
            )
            if followed:
                moved.end(job)
        self._step, self._at = attempt.step, time.monotonic()

    def amend(self) -> None:
        """Add the evaluation of this step to its checkpoint if that was saved without.

        A signal had interrupted the evaluation; the checkpoint could not be kept as the
        best otherwise.
        """
        attempt, progress = self._attempt, self._attempt.progress
        evaluated = progress.evaluated_step == attempt.step
        if not (self.done() and evaluated and jax.process_index() == 0):
            return
        changes = {"metrics": progress.eval_metrics, "progress": asdict(progress)}
        try:
            manifest.amend(attempt.job.saved.directory, attempt.step, changes)
        except (OSError, DamagedError) as error:
            attempt.tell(f"step {attempt.step} is saved without its metrics: {error}")

    def finish(self) -> None:
        """Save the last step, and wait for it; read it back unless a signal waits."""
        if not self.done() or moved.lacks(self._attempt.job, self._attempt.step):
            self.save()
        attempt, doing = self._attempt, self._attempt.log.doing("saving")
        with attempt.clock.paused(), attempt.watchdog.saving(), doing:
            # A stop has little time; the next start reads what was saved.
            try:
                self.saver.finish(read_back=self._attempt.job.signals.signum is None)
            finally:
                moved.check(self._attempt.job)
