"""The metrics of the steps: read once the device has done them, looked at and told."""

import collections
import contextlib
from typing import Any

from jaxtrain.processes import peers
from jaxtrain.records.run_log import Interval
from jaxtrain.run.attempt import Attempt
from jaxtrain.run.bad_numbers import BadNumbers
from jaxtrain.run.in_flight import InFlight
from jaxtrain.training.calls_ahead import MAX_IN_FLIGHT


class Reports:
    """Writes a line of metrics every so many steps."""

    def __init__(self, attempt: Attempt):
        self._attempt, job = attempt, attempt.job
        config, self._timetable = job.setup.config, job.setup.timetable
        self._interval = Interval(attempt.progress.interval)
        # Full intervals whose line is still to be written, and their last steps.
        self._due = collections.deque[tuple[int, Interval]]()
        self._in_flight = InFlight(attempt.clock.step_seconds)
        # Sum and number of the losses that were told, and those up to `mean_loss`.
        self._told, self._counted = (0.0, 0), self._interval.losses()
        self._bad_numbers = BadNumbers(
            config.train,
            job.programs.order,
            job.saved,
            attempt.log,
            attempt.progress,
        )

    def add(self, start: int, metrics: dict[str, Any]) -> None:
        """Take the metrics, (steps,) each, of a call that began after `start` steps."""
        self._in_flight.add(start, metrics)
        self._interval.add(metrics)
        if self._attempt.step % self._timetable.log_every_steps == 0:
            self._due.append((self._attempt.step, self._interval))
            self._interval = Interval()

    def keep_near(self) -> None:
        """Wait until few calls are in flight; tell what those before them did.

        Each process measures for itself what a call takes. So several of them only wait
        by it, and look at the same calls after the same step: a spike must lead all of
        them back from the same place.

        Raises:
          BadNumbersError: the limit of bad steps in a row is reached.
          LossSpike: there is one to go back for.
        """
        self._in_flight.look()
        most = self._in_flight.most()
        self._attempt.job.signals.grace.call_seconds = self._in_flight.call_seconds()
        self._in_flight.wait(most)
        self.settle(most if peers.current() is None else MAX_IN_FLIGHT)

    def settle(self, in_flight: int) -> None:
        """Wait until at most so many calls are in flight; tell what the others did.

        So the metrics that are read have long been computed: the loop waits for the
        device only to stay near it.

        Raises:
          BadNumbersError: the limit of bad steps in a row is reached.
          LossSpike: there is one to go back for.
        """
        self._in_flight.look()
        finished = []
        while len(self._in_flight) > in_flight:
            finished.append(self._in_flight.pop())
            self._attempt.watchdog.step_done()
        if self._in_flight.done_step is not None:
            self._attempt.log.done(self._in_flight.done_step)
        # Where the device has nothing left to do, telling is no part of training.
        clock = self._attempt.clock
        with contextlib.nullcontext() if self._in_flight else clock.paused():
            for call in finished:
                while self._due and self._due[0][0] <= call.stop:
                    self._report(*self._due.popleft(), call.finished)
                self._bad_numbers.look(call.start, call.metrics)

    def mean_loss(self) -> float | None:
        """Return the mean loss of the steps since the last time that this was called.

        The steps must be settled. None if no step was taken.
        """
        with self._attempt.clock.paused():
            losses = _add(self._told, self._interval.losses())
        (before, num_before), self._counted = self._counted, losses
        total, num = losses
        return (total - before) / (num - num_before) if num > num_before else None

    def rest(self) -> None:
        """Report the last steps, which fill no interval."""
        if self._interval.values():
            self._report(self._attempt.step, self._interval, self._in_flight.finished)

    def open_interval(self) -> dict[str, list[float]]:
        """Return the metrics since the last line, one value a step."""
        return self._interval.values()

    def _report(self, step: int, interval: Interval, finished: float) -> None:
        examples = interval.num_new * self._timetable.batch_size
        speed = self._attempt.clock.speed(examples, finished)
        self._attempt.log.write(
            "train", step, **interval.summary(), examples_per_second=speed
        )
        self._told = _add(self._told, interval.losses())


def _add(one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
    return one[0] + other[0], one[1] + other[1]
