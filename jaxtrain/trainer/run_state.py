"""Mutable state of a run."""

import contextlib
from dataclasses import astuple, dataclass, field
from itertools import chain
from pathlib import Path

import jax
import numpy as np

from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.console import print_stderr
from jaxtrain.data.defects import Unreadable
from jaxtrain.errors import UserError
from jaxtrain.processes import cluster
from jaxtrain.processes.signals import StopSignals
from jaxtrain.processes.watchdog import Watchdog
from jaxtrain.records.run_log import RunLog
from jaxtrain.trainer.callback import Callbacks
from jaxtrain.trainer.calls import CallQueue
from jaxtrain.trainer.clock import Clock
from jaxtrain.trainer.progress import Progress
from jaxtrain.trainer.trainer import StepBatch, Trainer
from jaxtrain.training.calls_ahead import MAX_IN_FLIGHT
from jaxtrain.training.state import TrainState, with_extra
from jaxtrain.training.transforms.base import Metrics
from jaxtrain.training.transforms.plateau import PLATEAU

# Machine metrics of a process and its devices, by metric name.
Telemetry = dict[str, float]


@dataclass(kw_only=True)
class RunState:
    """Mutable state of a run in this process.

    Attributes:
      trainer: Model, data and programs.
      workdir: Workdir of the run.
      saved: Checkpoints in the workdir.
      signals: Signals that stop the run.
      callbacks: Callbacks, with the core callbacks first.
      clock: Clock that measures the run's time by activity, such as `evaluation`.
      log: Log file, metric writers and console.
      watchdog: Watchdog that ends the process if a step hangs.
      versions: Versions of jaxtrain and its dependencies.
      own_parts: Digests of the custom code files, by file.
      step: Number of completed steps.
      state: Train state after `step` steps.
      progress: Host-side state, saved with `state`.
      calls: Dispatched calls whose metrics have not been passed to the callbacks yet.
      renewed: Step at which the batch-norm statistics of averaged weights were last
        recomputed.
      end_reason: Reason to stop the run early; None to continue.
      stop_asked: Reason for a stop requested by a callback of this process, or None.
      save_asked: Whether a callback requested a save of this step.
      telemetry: Machine metrics by process index; for other processes, the values at
        the last synchronization.
    """

    trainer: Trainer
    workdir: Path
    saved: Checkpoints
    signals: StopSignals
    callbacks: Callbacks
    clock: Clock
    log: RunLog
    watchdog: Watchdog
    versions: dict[str, str]
    own_parts: dict[str, str]
    step: int
    state: TrainState
    progress: Progress
    calls: CallQueue
    renewed: int
    end_reason: str | None = None
    stop_asked: str | None = None
    save_asked: bool = False
    telemetry: dict[int, Telemetry] = field(default_factory=dict)

    def request_stop(self, reason: str) -> None:
        """Stop and save after the current training-step call; skip the test evaluation.

        With several processes, a request of process 0 stops all processes after the
        next evaluation; requests of other processes are ignored.
        """
        self.stop_asked = reason
        if cluster.current().num == 1:
            self.end_reason = reason

    def request_save(self) -> None:
        """Request a save of the current step.

        With several processes, each process must call the method. The initial weights,
        before the first step, are not saved.
        """
        self.save_asked = True

    def set_rate_factor(self, factor: float) -> None:
        """Multiply the scheduled learning rate by a factor from the next step on.

        A resumed run restores the factor. With several processes, each process must
        call the method with the same factor.

        Raises:
          UserError: The train state has no learning-rate factor.
        """
        if PLATEAU not in self.state.extras:
            raise UserError(
                "the train state has no learning-rate factor: set sets_rate = True on "
                "the callback (docs/python.md)"
            )
        old = self.state.extras[PLATEAU]["factor"]
        new = jax.device_put(np.float32(factor), old.sharding)
        self.state = with_extra(self.state, PLATEAU, {"factor": new})
        if self.trainer.plateau is not None:
            self.progress.callbacks.setdefault(PLATEAU, {})["factor"] = float(factor)

    @property
    def complete(self) -> bool:
        """Whether all steps are done, or early stopping ended the run."""
        trained = self.step >= self.trainer.timetable.total_steps
        return trained or self.progress.stopped_early

    def ended(self) -> bool:
        """Whether no step follows: the run is complete, or a stop was requested."""
        stop = self.step >= self.trainer.timetable.stop_after_steps
        stop = stop or self.end_reason is not None
        return stop or self.signals.requested() or self.complete

    def advance(self, batch: StepBatch, state: TrainState, metrics: Metrics) -> None:
        """Record a dispatched call of the training step."""
        self.state, self.step = state, batch.stop
        self.signals.grace.step = self.step
        self.calls.add(batch.start, metrics)

    def throttle(self) -> None:
        """Limit the calls in flight, and pass metrics of finished calls to callbacks.

        Each process limits its calls by their measured duration. But all processes read
        the metrics of the same calls after the same step, so that a non-finite loss
        stops all processes at the same step.

        Raises:
          BadNumbersError: Too many non-finite steps in a row.
        """
        calls = self.calls
        calls.look()
        most = calls.most()
        self.signals.grace.call_seconds = calls.call_seconds() or 0.0
        calls.wait(most)
        self.drain(most if cluster.current().num == 1 else MAX_IN_FLIGHT)

    def drain(self, in_flight: int = 0) -> None:
        """Wait for all but the last `in_flight` calls; pass metrics to the callbacks.

        Args:
          in_flight: Number of calls that may remain in the queue.

        Raises:
          BadNumbersError: Too many non-finite steps in a row.
        """
        calls, finished = self.calls, []
        calls.look()
        while len(calls) > in_flight:
            finished.append(calls.pop())
            self.watchdog.step_done()
        if calls.done_step is not None:
            self.log.screen.done(calls.done_step)
        # Time for logging is training time only while dispatched calls are in flight.
        with contextlib.nullcontext() if calls else self.clock.timing("other"):
            for call in finished:
                self.callbacks.on_metrics(self, call)

    def renew_statistics(self) -> None:
        """Recompute the batch-norm statistics of the averaged weights.

        Called before evaluations and saves. Has no effect if the average includes the
        batch-norm statistics.
        """
        if self.renewed != self.step and self.trainer.programs.statistics is not None:
            with self.clock.timing("evaluation"), self.watchdog.saving():
                self.state = self.trainer.renewed(self.state, self.step)
            self.renewed = self.step

    def warn(self, message: str) -> None:
        """Log and print a warning."""
        self.log.record("event", self.step, event=message)
        if jax.process_index() == 0:
            print_stderr(f"warning: {message}")

    def log_unreadable(self) -> None:
        """Log newly detected unreadable images, in process 0."""
        if jax.process_index() != 0:
            return
        for dataset in self.trainer.data.datasets():
            for bad in dataset.defects.take_new():
                named = {"name": bad.name, "reason": bad.reason}
                event = {"event": "unreadable image", "split": dataset.defects.split}
                self.log.write("event", self.step, **event, **named)

    def meet(self) -> None:
        """Synchronize all processes; share unreadable images and machine metrics.

        Raises:
          UserError: All processes together have too many unreadable images.
        """
        here = cluster.current()
        if here.num > 1:
            defects = [one.defects for one in self.trainer.data.datasets()]
            new = [[astuple(bad) for bad in one.take_unshared()] for one in defects]
            told = here.gather([self.telemetry.get(here.index, {}), new])
            self.telemetry = {process: one[0] for process, one in enumerate(told)}
            for split, *found in zip(defects, *(one[1] for one in told), strict=True):
                for bad in chain(*found):
                    split.add([Unreadable(*bad)], shared=True)
                split.check()
        self.log_unreadable()
