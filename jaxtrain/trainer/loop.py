"""The loop of a run: steps, metrics, evaluations and checkpoints, one after another."""

import contextlib
import signal
from collections.abc import Generator, Iterator
from typing import Any

import jax

from jaxtrain import keys
from jaxtrain.data import loader
from jaxtrain.errors import CheckpointError, Interrupted
from jaxtrain.parallel import sharding
from jaxtrain.records import workdir as workdir_lib
from jaxtrain.trainer import evaluations
from jaxtrain.trainer.attempt import Attempt
from jaxtrain.trainer.reports import Reports
from jaxtrain.trainer.saves import Saves
from jaxtrain.trainer.summary import summarize


class Run:
    """Takes an attempt to its end: of training, by an early stop, or by a signal."""

    def __init__(self, attempt: Attempt):
        self.attempt, self.job, self.setup = attempt, attempt.job, attempt.job.setup
        self.timetable = self.setup.timetable
        self.reports = Reports(attempt)
        self.saves = Saves(attempt, self.reports)

    def loop(self) -> None:
        """Train until the run ends or is to stop; the state is saved."""
        clock, during = self.attempt.clock, self.job.hooks.during(self.attempt)
        with (
            during,
            contextlib.closing(self._feed()) as feed,
            clock.charging("step"),
        ):
            self._take_steps(feed)
        self.saves.finish()
        # The others have waited for the last save, too, and reported theirs before.
        self.attempt.tell_unreadable()

    def _take_steps(self, feed: Iterator[tuple[int, Any]]) -> None:
        attempt, hooks, programs = self.attempt, self.job.hooks, self.job.programs
        everywhere = sharding.replicated(self.setup.mesh)
        make_key = jax.jit(keys.root_key, static_argnums=0, out_shardings=everywhere)
        root = make_key(self.setup.config.seed)
        if attempt.step:
            attempt.log.write("event", attempt.step, event="resumed")
        while True:
            improved = False
            if evaluations.due(attempt):
                self.reports.settle(0)
                attempt.log.screen.trained(self.reports.mean_loss())
                improved = evaluations.validate(attempt)
                self.saves.amend()
            if (improved and not self.saves.done()) or self.saves.due():
                self.saves.save()
            if self._ended():
                break
            with attempt.clock.charging("data_wait"):
                num_steps, batches = next(feed)
            attempt.tell_unreadable()
            start, data = attempt.step, programs.train_set.on_device
            train = programs.train_at(start)
            hooks.before_call(start, num_steps)
            with jax.transfer_guard("disallow"):
                state, metrics = train(
                    attempt.state, root, data, batches, **programs.beside
                )
            attempt.state, attempt.step = state, start + num_steps
            self.job.signals.grace.step = attempt.step
            hooks.after_call(attempt.step, metrics)
            self.reports.add(start, metrics)
            self.reports.keep_near()
            attempt.watchdog.beat()
            self.saves.look()

    def finish(self) -> dict[str, Any]:
        """Test the best checkpoint and write the summary, if the run has ended.

        Raises:
          Interrupted: A signal came.
        """
        attempt, signals = self.attempt, self.job.signals
        complete = self._complete()
        if not complete and not signals.requested():
            reason = attempt.end_reason
            event = "stopped, as asked" if reason is None else f"stopped: {reason}"
            attempt.log.write("event", attempt.step, event=event, saved=True)
            return {"step": attempt.step}
        skipped_steps = attempt.state.skipped_steps
        found = evaluations.test(attempt) if complete else None
        if found is None:
            assert signals.signum is not None
            event = f"stopped by {signal.Signals(signals.signum).name}"
            attempt.log.record("event", attempt.step, event=event, saved=True)
            message = f"step {attempt.step} is saved; the same command goes on"
            raise Interrupted(signals.signum, message)
        step, validation, test = found
        self.reports.rest()
        attempt.log.write("eval", attempt.step, split="test", model_step=step, **test)
        attempt.clock.update(attempt.progress)
        summary = summarize(attempt, step, validation, test, skipped_steps)
        if jax.process_index() == 0:
            self._write(summary)
        attempt.log.finish(summary)
        return summary

    def _complete(self) -> bool:
        trained = self.attempt.step >= self.timetable.total_steps
        return trained or self.attempt.progress.stopped_early

    def _ended(self) -> bool:
        stop = self.attempt.step >= self.timetable.stop_after_steps
        stop = stop or self.attempt.end_reason is not None
        return stop or self.job.signals.requested() or self._complete()

    def _feed(self) -> Generator[tuple[int, Any], None, None]:
        config, mesh, step = self.setup.config, self.setup.mesh, self.attempt.step
        batches = loader.train_batches(
            config.data,
            self.job.programs.train_set,
            mesh,
            self.job.programs.order,
            step,
            self.timetable.total_steps,
        )
        call_sizes = self.timetable.call_sizes(step, config.train.steps_per_call)
        return loader.feed(batches, call_sizes, mesh, self.timetable.batch_size)

    def _write(self, summary: dict[str, Any]) -> None:
        path = self.job.workdir / workdir_lib.SUMMARY
        try:
            workdir_lib.write_digested(path, self.job.saved.run.stamp(summary))
        except OSError as error:
            raise CheckpointError(
                f"could not write {path} ({error.strerror}): the model is saved; the "
                "same command writes it"
            ) from error
