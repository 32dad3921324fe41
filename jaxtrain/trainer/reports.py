"""The metrics of the steps: read once the device has done them, looked at and told."""

import collections
import contextlib
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxtrain.processes import peers
from jaxtrain.records.run_log import Interval
from jaxtrain.trainer import bad_numbers
from jaxtrain.trainer.attempt import Attempt
from jaxtrain.trainer.telemetry import MachineSampler
from jaxtrain.training.calls_ahead import MAX_IN_FLIGHT, calls_ahead


@dataclass
class CallInFlight:
    """Some steps that the device carries out together.

    Attributes:
      start: Number of steps done before it.
      metrics: Metrics of its steps, (steps,) each.
      finished: Seconds at which the device had done it; infinity while it has not.
    """

    start: int
    metrics: dict[str, jax.Array]
    finished: float = math.inf

    @property
    def num_steps(self) -> int:
        return self.metrics["bad_steps"].shape[0]

    @property
    def stop(self) -> int:
        return self.start + self.num_steps

    def is_done(self) -> bool:
        array: Any = self.metrics["bad_steps"]
        return array.is_ready()


class InFlight:
    """Calls in a row. The loop runs ahead of the device, and sees late what is done."""

    def __init__(self, seconds: Callable[[], float]):
        self._seconds = seconds
        self._calls = collections.deque[CallInFlight]()
        # When the last call that is known to be done was.
        self.finished = seconds()
        # Completed steps after it, as far as we have seen.
        self.done_step: int | None = None
        # What a step took, among those that were seen done last.
        self._step_seconds: float | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, start: int, metrics: dict[str, jax.Array]) -> None:
        """Take a call that was just sent to the device."""
        self._calls.append(CallInFlight(start, metrics))

    def look(self) -> None:
        """Note which calls the device has finished, without waiting for any.

        Several that are found at once are spread evenly over the time since the last.
        """
        running = [call for call in self._calls if call.finished == math.inf]
        done = list(itertools.takewhile(CallInFlight.is_done, running))
        last, now = self.finished, self._seconds()
        num_steps, steps = sum(call.num_steps for call in done), 0
        for call in done:
            steps += call.num_steps
            call.finished = self.finished = last + (now - last) * steps / num_steps
        if done:
            self._step_seconds = (now - last) / num_steps
            self.done_step = done[-1].stop

    def call_seconds(self) -> float | None:
        """Return what the last call takes by the measure; None until there is one."""
        if self._step_seconds is None or not self._calls:
            return None
        return self._step_seconds * self._calls[-1].num_steps

    def most(self) -> int:
        """Return the number of calls that may be in flight, by what they take."""
        return calls_ahead(self.call_seconds())

    def wait(self, most: int) -> None:
        """Wait until the device has finished all but the last `most` calls."""
        for call in list(self._calls)[: max(0, len(self._calls) - most)]:
            if call.finished == math.inf:
                # To wait in device_get takes a tenth of the CPU from the step itself.
                call.metrics["bad_steps"].block_until_ready()
                self.look()

    def pop(self) -> CallInFlight:
        """Wait for the oldest call, and return it."""
        self.wait(len(self._calls) - 1)
        return self._calls.popleft()


class Reports:
    """Writes a line of metrics every so many steps."""

    def __init__(self, attempt: Attempt):
        self._attempt, self._timetable = attempt, attempt.job.setup.timetable
        self._interval = Interval(attempt.progress.interval)
        # Full intervals whose line is still to be written, and their last steps.
        self._due = collections.deque[tuple[int, Interval]]()
        self._machine = MachineSampler(attempt)
        self._in_flight = InFlight(attempt.clock.step_seconds)
        # Sum and number of the losses that were told, and those up to `mean_loss`.
        self._told, self._counted = np.zeros(2), np.array(self._interval.losses())

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
        by it, and look at the same calls after the same step: bad numbers must end all
        of them at the same place.

        Raises:
          BadNumbersError: See `settle`.
        """
        calls = self._in_flight
        calls.look()
        most = calls.most()
        self._attempt.job.signals.grace.call_seconds = calls.call_seconds() or 0.0
        calls.wait(most)
        self.settle(most if peers.current() is None else MAX_IN_FLIGHT)

    def settle(self, in_flight: int) -> None:
        """Wait until at most so many calls are in flight; tell what the others did.

        So the metrics that are read have long been computed: the loop waits for the
        device only to stay near it.

        Raises:
          BadNumbersError: The limit of bad steps in a row is reached.
        """
        attempt, calls = self._attempt, self._in_flight
        calls.look()
        finished = []
        while len(calls) > in_flight:
            finished.append(calls.pop())
            attempt.watchdog.step_done()
        if calls.done_step is not None:
            attempt.log.screen.done(calls.done_step)
        if finished and attempt.log.screen.wants_loss:
            losses = jax.device_get(finished[-1].metrics["loss"])
            attempt.log.screen.first_loss(float(losses[-1]))
        # Where the device has nothing left to do, telling is no part of training.
        with contextlib.nullcontext() if calls else attempt.clock.charging("other"):
            for call in finished:
                while self._due and self._due[0][0] <= call.stop:
                    self._report(*self._due.popleft(), call.finished)
                bad_numbers.look(attempt, call.start, call.metrics)

    def mean_loss(self) -> float | None:
        """Return the mean loss of the steps since the last time that this was called.

        The steps must be settled. None if no step was taken.
        """
        before, num_before = self._counted
        with self._attempt.clock.charging("other"):
            self._counted = total, num = np.add(self._told, self._interval.losses())
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
            "train",
            step,
            **interval.summary(),
            examples_per_second=speed,
            **self._machine.sample(step - 1, speed),
        )
        self._told = self._told + interval.losses()
