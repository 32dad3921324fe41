"""The loop of a run: steps, metrics, evaluations and checkpoints, one after another."""

import collections
import contextlib
import time
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

from jaxtrain import keys
from jaxtrain.checkpoints.saver import Saver
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.console import tell
from jaxtrain.data import loader
from jaxtrain.data.loader import Dataset
from jaxtrain.errors import CheckpointError, Interrupted
from jaxtrain.parallel import sharding
from jaxtrain.processes.faults import Faults
from jaxtrain.processes.signals import StopSignals
from jaxtrain.processes.watchdog import Watchdog
from jaxtrain.records import workdir as workdir_lib
from jaxtrain.records.run_log import Interval, RunLog
from jaxtrain.run.bad_numbers import BadNumbers
from jaxtrain.run.in_flight import InFlight
from jaxtrain.run.programs import Programs
from jaxtrain.run.progress import Clock, Progress
from jaxtrain.run.rewind import Rewinds
from jaxtrain.run.setup import Setup
from jaxtrain.run.summary import summarize
from jaxtrain.training.evaluate import MAX_IN_FLIGHT, evaluate
from jaxtrain.training.state import TrainState, as_dict


@dataclass(frozen=True, kw_only=True)
class Job:
    """What there is to carry out, whatever state it starts from.

    The versions are those that were loaded: what is installed may change meanwhile.
    """

    setup: Setup
    programs: Programs
    workdir: Path
    versions: dict[str, str]
    saved: Checkpoints
    rewinds: Rewinds
    signals: StopSignals
    faults: Faults


class Run:
    """The loop, and what it carries from step to step."""

    def __init__(
        self,
        job: Job,
        log: RunLog,
        watchdog: Watchdog,
        state: TrainState,
        progress: Progress,
    ):
        setup, steps, saved = job.setup, job.programs, job.saved
        self.setup, self.config, self.plan = setup, setup.config, setup.timetable
        self.programs, self.workdir, self.versions = steps, job.workdir, job.versions
        self.saver = Saver(saved, self.tell, job.faults)
        self.log, self.signals = log, job.signals
        self.watchdog, self.faults = watchdog, job.faults
        self.state, self.progress = state, progress
        self.step = self.saved_step = int(state.step)
        self.saved_at = time.monotonic()
        self.interval = Interval(progress.interval)
        # Full intervals whose line is still to be written, and their last steps.
        self.due = collections.deque[tuple[int, Interval]]()
        everywhere = sharding.replicated(setup.mesh)
        self.key = jax.jit(keys.root_key, static_argnums=0, out_shardings=everywhere)(
            setup.config.seed
        )
        self.clock = Clock(progress, self.programs.compile_seconds)
        self.in_flight = InFlight(self.clock.step_seconds)
        self.bad_numbers = BadNumbers(self.config, self.plan, saved, log, progress)

    def loop(self) -> None:
        """Run to the end of training, an early stop or a signal; the state is saved."""
        with contextlib.closing(self._feed()) as feed:
            self._take_steps(feed)
        if self.saved_step != self.step:
            self._save()
        with self.clock.paused(), self.watchdog.saving():
            # A stop has little time; the next start reads what was saved.
            self.saver.finish(read_back=self.signals.signum is None)

    def _take_steps(self, feed: Iterator[tuple[int, Any]]) -> None:
        plan = self.plan
        if self.step:
            self.log.write("event", self.step, event="resumed")
        while True:
            improved = False
            if self._eval_due():
                self._settle(0)
                with self.clock.paused():
                    improved = self._evaluate()
            if (improved and self.saved_step != self.step) or self._save_due():
                self._save()
            if self._ended():
                break
            num_steps, batches = next(feed)
            data, batches = self.faults.before_call(
                self.step, num_steps, self.programs.train_set.on_device, batches
            )
            with jax.transfer_guard("disallow"):
                self.state, metrics = self.programs.train(
                    self.state, self.key, data, batches
                )
            self.in_flight.add(self.step, metrics)
            self.step += num_steps
            self.interval.add(metrics)
            if self.step % plan.log_every_steps == 0:
                self.due.append((self.step, self.interval))
                self.interval = Interval()
            self._settle(MAX_IN_FLIGHT)
            self.watchdog.beat()
            self.saver.look()

    def finish(self) -> dict[str, Any]:
        """Test the trained model and write the summary, unless the run stopped before.

        Raises:
          Interrupted: a signal came.
        """
        if not self._complete() and not self.signals.requested():
            self.log.write("event", self.step, event="stopped, as asked", saved=True)
            return {"step": self.step}
        test = None
        if self._complete():
            with self.clock.paused():
                test = self._pass_over(self.programs.test_set)
        if test is None:
            signum = self.signals.signum
            assert signum is not None
            message = f"stopped at step {self.step}, saved; the same command goes on"
            raise Interrupted(signum, message)
        if self.interval.values():
            self._report(self.step, self.interval, self.in_flight.finished)
        self.log.write("eval", self.step, split="test", **test)
        self.clock.update()
        summary = {
            **summarize(self.setup, self.programs, self.state, self.progress, test),
            "versions": self.versions,
        }
        if jax.process_index() == 0:
            self._write_summary(summary)
        return summary

    def _write_summary(self, summary: dict[str, Any]) -> None:
        path = self.workdir / workdir_lib.SUMMARY
        try:
            workdir_lib.write_json(path, summary)
        except OSError as error:
            raise CheckpointError(
                f"could not write {path} ({error.strerror}): the model is saved; the "
                "same command writes it"
            ) from error

    def _complete(self) -> bool:
        return self.progress.stopped_early or self.step >= self.plan.total_steps

    def _ended(self) -> bool:
        stopped = self.step >= self.plan.stop_after_steps or self.signals.requested()
        return stopped or self._complete()

    def _feed(self) -> Generator[tuple[int, Any], None, None]:
        setup, position = self.setup, self.progress.data_position
        batches = loader.train_batches(
            self.config.data,
            self.programs.train_set,
            setup.mesh,
            self.config.seed,
            position(self.step),
            position(self.plan.total_steps),
        )
        sizes = self.plan.call_sizes(self.step, self.config.train.steps_per_call)
        return loader.feed(batches, sizes, setup.mesh, self.plan.batch_size)

    def _eval_due(self) -> bool:
        every = self.plan.eval_every_steps
        due = every and (self.step % every == 0 or self.step == self.plan.total_steps)
        return bool(due) and self.progress.evaluated_step != self.step

    def _evaluate(self) -> bool:
        """Evaluate on the validation split; return whether it is the best so far."""
        assert self.programs.validation_set is not None
        metrics = self._pass_over(self.programs.validation_set)
        if metrics is None:
            return False
        self.log.write("eval", self.step, split="validation", **metrics)
        improved = self.progress.record(
            self.step, self.plan.epoch(self.step), metrics, self.config
        )
        if self.progress.stopped_early:
            name = self.config.train.early_stop_metric
            self.log.write("event", self.step, event=f"early stop on {name}")
        return improved and self.config.checkpoint.keep_best > 0

    def _pass_over(self, dataset: Dataset) -> dict[str, float | int] | None:
        """Evaluate on a split; None if a signal came."""

        def should_stop() -> bool:
            self.watchdog.beat()
            return self.signals.requested()

        return evaluate(
            self.programs.eval,
            self.state,
            dataset,
            self.config.data,
            self.setup.mesh,
            self.setup.policy.output_dtype,
            should_stop,
        )

    def _save_due(self) -> bool:
        plan = self.plan
        if self.step == self.saved_step:
            return False
        if plan.save_every_seconds is not None:
            return time.monotonic() - self.saved_at >= plan.save_every_seconds
        return (
            plan.save_every_steps is not None and self.step % plan.save_every_steps == 0
        )

    def _save(self) -> None:
        self._settle(0)
        progress = self.progress
        progress.interval = self.interval.values()
        self.clock.update()
        with self.clock.paused(), self.watchdog.saving():
            evaluated = progress.evaluated_step == self.step
            self.saver.save(
                self.step,
                as_dict(self.state),
                {
                    "config": asdict(self.config),
                    "versions": self.versions,
                    "statistics": {
                        "mean": self.programs.mean,
                        "std": self.programs.std,
                    },
                    "progress": asdict(progress),
                },
                progress.eval_metrics if evaluated else None,
            )
        self.saved_step, self.saved_at = self.step, time.monotonic()

    def tell(self, message: str) -> None:
        """Tell of trouble that the run goes on with."""
        self.log.write("event", self.step, event=message)
        if jax.process_index() == 0:
            tell(f"warning: {message}")

    def _report(self, step: int, interval: Interval, finished: float) -> None:
        summary = interval.summary()
        speed = self.clock.speed(interval.num_new * self.plan.batch_size, finished)
        self.log.write("train", step, **summary, examples_per_second=speed)

    def _settle(self, in_flight: int) -> None:
        """Wait until at most so many calls are in flight; tell what the others did.

        So the metrics that are read have long been computed: the loop waits for the
        device only to stay near it.

        Raises:
          BadNumbersError: the limit of bad steps in a row is reached.
          LossSpike: there is one to go back for.
        """
        self.in_flight.look()
        finished = []
        while len(self.in_flight) > in_flight:
            finished.append(self.in_flight.pop())
            self.watchdog.step_done()
        # Where the device has nothing left to do, telling is no part of training.
        with contextlib.nullcontext() if self.in_flight else self.clock.paused():
            for call in finished:
                while self.due and self.due[0][0] <= call.stop:
                    self._report(*self.due.popleft(), call.finished)
                self.bad_numbers.look(call.start, call.metrics)
