"""What a run carries on its way, from one start to the next."""

from dataclasses import dataclass, field
from pathlib import Path

import jax

from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.console import tell
from jaxtrain.data.image_source import Unreadable
from jaxtrain.processes import peers
from jaxtrain.processes.hooks import Hooks
from jaxtrain.processes.signals import StopSignals
from jaxtrain.processes.watchdog import Watchdog
from jaxtrain.records.run_log import RunLog
from jaxtrain.trainer.clock import Clock
from jaxtrain.trainer.programs import Programs
from jaxtrain.trainer.progress import Progress
from jaxtrain.trainer.setup import Setup
from jaxtrain.training.state import TrainState
from jaxtrain.weights.stored import Transfer

# Figures of a process and its devices, by name.
Telemetry = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What there is to carry out, whatever state it starts from.

    The versions, and the digests of files with parts of the user's own, are those that
    were loaded: what is there may change meanwhile.
    """

    setup: Setup
    start: Transfer | None
    programs: Programs
    workdir: Path
    versions: dict[str, str]
    own_parts: dict[str, str]
    saved: Checkpoints
    signals: StopSignals
    hooks: Hooks
    clock: Clock


@dataclass(kw_only=True)
class Attempt:
    """A job from one state on.

    Attributes:
      step: Number of completed steps; those of `state`.
      state: State after these steps.
      progress: What the host remembers.
      renewed: Number of steps after which the statistics of averaged weights were last
        computed anew.
      end_reason: Why a hook ends the run here; None lets it go on.
      telemetry: In process 0, what each of the others told of itself last.
    """

    job: Job
    log: RunLog
    watchdog: Watchdog
    step: int
    state: TrainState
    progress: Progress
    renewed: int = 0
    end_reason: str | None = None
    telemetry: dict[int, Telemetry] = field(default_factory=dict)

    @property
    def clock(self) -> Clock:
        """The clock of the run, which counts the seconds of `progress`."""
        return self.job.clock

    def renew_statistics(self) -> None:
        """Have the averaged weights their own batch-norm statistics after this step.

        Before they are evaluated, or saved; those of an average that has them stay.
        """
        statistics, average = self.job.programs.statistics, self.job.setup.average
        if statistics is None or average is None or self.renewed == self.step:
            return
        if average.recomputes(self.step):
            with self.clock.charging("evaluation"), self.watchdog.saving():
                self.state = statistics.of(self.state, self.step)
        self.renewed = self.step

    def tell(self, message: str) -> None:
        """Record and print a warning; the run goes on."""
        self.log.record("event", self.step, event=message)
        if jax.process_index() == 0:
            tell(f"warning: {message}")

    def tell_unreadable(self) -> None:
        """Name the images that were newly found to be unreadable.

        Process 0 names and counts those of all: the others report theirs, without
        waiting.

        Raises:
          UserError: There are too many.
        """
        found = {one.defects.split: one for one in self.job.programs.datasets()}
        for kind, *values in peers.reports():
            if kind == "telemetry":
                process, sample = values
                self.telemetry[process] = sample
            else:
                split, images = values
                found[split].defects.add([Unreadable(*image) for image in images])
        for split, dataset in found.items():
            new = dataset.defects.take_new()
            if jax.process_index() == 0:
                for bad in new:
                    named = {"split": split, "name": bad.name, "reason": bad.reason}
                    event = {"event": "unreadable image", **named}
                    self.log.write("event", self.step, **event)
            elif new and not dataset.on_device:  # There all have read all.
                images = [(bad.index, bad.name, bad.reason) for bad in new]
                peers.report(("unreadable", split, images))
