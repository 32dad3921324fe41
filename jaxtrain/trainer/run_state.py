"""A run on its way: the one object of a run that changes."""

import contextlib
from dataclasses import astuple, dataclass, field
from itertools import chain
from pathlib import Path

import jax
import numpy as np

from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.console import tell
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

# Figures of a process and its devices, by name.
Telemetry = dict[str, float]


@dataclass(kw_only=True)
class RunState:
    """A run from one start on.

    Attributes:
      trainer: Model, data and programs.
      workdir: Folder of the run.
      saved: Checkpoints there.
      signals: Signals that stop the run.
      callbacks: Callbacks, those of the core first.
      clock: Seconds of the run by account.
      log: Records of the run, and the screen.
      watchdog: Ends the process if a step hangs.
      versions: Versions of the packages, as they were loaded.
      own_parts: Digests of the files of the user's own code, as they were loaded.
      step: Number of completed steps.
      state: State after these steps.
      progress: Memory of the host, which is saved with the state.
      calls: Calls whose metrics nobody has seen yet.
      renewed: Number of steps after which the statistics of averaged weights were last
        computed anew.
      end_reason: Reason to end the run here, before its time; None: it goes on.
      stop_asked: Reason of a callback of this process for it.
      save_asked: Whether this step is to be saved.
      telemetry: Last figures of each process, those of others as of the last meeting.
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
        """End the run, saved, after this call; nothing is tested.

        Several processes end after their next evaluation, by the word of the first.
        """
        self.stop_asked = reason
        if cluster.current().num == 1:
            self.end_reason = reason

    def request_save(self) -> None:
        """Save this step; of several processes, each must ask for it.

        The first weights of a run, before its first step, are not saved.
        """
        self.save_asked = True

    def set_rate_factor(self, factor: float) -> None:
        """Have the next steps multiply the learning rate of the schedule by a factor.

        It goes on with a run that is resumed. Of several processes, each must set it.

        Raises:
          UserError: The steps of this run read no factor.
        """
        if PLATEAU not in self.state.extras:
            raise UserError(
                "the learning rate has no factor to set: give the callback the "
                "attribute sets_rate = True (docs/python.md)"
            )
        old = self.state.extras[PLATEAU]["factor"]
        new = jax.device_put(np.float32(factor), old.sharding)
        self.state = with_extra(self.state, PLATEAU, {"factor": new})
        if self.trainer.plateau is not None:
            self.progress.callbacks.setdefault(PLATEAU, {})["factor"] = float(factor)

    @property
    def complete(self) -> bool:
        """Whether all steps are done, or the run has stopped early."""
        trained = self.step >= self.trainer.timetable.total_steps
        return trained or self.progress.stopped_early

    def ended(self) -> bool:
        """Whether to take no further step in this start."""
        stop = self.step >= self.trainer.timetable.stop_after_steps
        stop = stop or self.end_reason is not None
        return stop or self.signals.requested() or self.complete

    def advance(self, batch: StepBatch, state: TrainState, metrics: Metrics) -> None:
        """Take the result of a call that was sent to the devices."""
        self.state, self.step = state, batch.stop
        self.signals.grace.step = self.step
        self.calls.add(batch.start, metrics)

    def keep_near(self) -> None:
        """Wait until few calls are in flight; see the metrics of those before them.

        Each process measures for itself what a call takes. So several of them only wait
        by it, and look at the same calls after the same step: bad numbers must end all
        of them at the same place.

        Raises:
          BadNumbersError: See `settle`.
        """
        calls = self.calls
        calls.look()
        most = calls.most()
        self.signals.grace.call_seconds = calls.call_seconds() or 0.0
        calls.wait(most)
        self.settle(most if cluster.current().num == 1 else MAX_IN_FLIGHT)

    def settle(self, in_flight: int = 0) -> None:
        """Hand the metrics of all calls to the callbacks, but for the last few.

        They have long been computed: the loop waits for the device only to stay near
        it.

        Args:
          in_flight: Number of calls that may stay unseen.

        Raises:
          BadNumbersError: The limit of bad steps in a row is reached.
        """
        calls, finished = self.calls, []
        calls.look()
        while len(calls) > in_flight:
            finished.append(calls.pop())
            self.watchdog.step_done()
        if calls.done_step is not None:
            self.log.screen.done(calls.done_step)
        # Where the device has nothing left to do, telling is no part of training.
        with contextlib.nullcontext() if calls else self.clock.charging("other"):
            for call in finished:
                self.callbacks.on_metrics(self, call)

    def renew_statistics(self) -> None:
        """Have the averaged weights their own batch-norm statistics after this step.

        Before they are evaluated, or saved; those of an average that has them stay.
        """
        if self.renewed != self.step and self.trainer.programs.statistics is not None:
            with self.clock.charging("evaluation"), self.watchdog.saving():
                self.state = self.trainer.renewed(self.state, self.step)
            self.renewed = self.step

    def tell(self, message: str) -> None:
        """Record and print a warning; the run goes on."""
        self.log.record("event", self.step, event=message)
        if jax.process_index() == 0:
            tell(f"warning: {message}")

    def tell_unreadable(self) -> None:
        """Log the images newly found to be unreadable, in process 0."""
        if jax.process_index() != 0:
            return
        for dataset in self.trainer.data.datasets():
            for bad in dataset.defects.take_new():
                named = {"name": bad.name, "reason": bad.reason}
                event = {"event": "unreadable image", "split": dataset.defects.split}
                self.log.write("event", self.step, **event, **named)

    def meet(self) -> None:
        """Wait for all processes here; they share unreadable images and telemetry.

        Raises:
          UserError: Too many images are unreadable, of all that the processes met.
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
        self.tell_unreadable()
