"""Calls of the training step on their way: sent, done, and their metrics read."""

import collections
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from jaxtrain.training.calls_ahead import calls_ahead


@dataclass
class Call:
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


class CallQueue:
    """Calls in a row. The loop runs ahead of the device, and sees late what is done."""

    def __init__(self, seconds: Callable[[], float]):
        self._seconds = seconds
        self._calls = collections.deque[Call]()
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
        self._calls.append(Call(start, metrics))

    def look(self) -> None:
        """Note which calls the device has finished, without waiting for any.

        Several that are found at once are spread evenly over the time since the last.
        """
        running = [call for call in self._calls if call.finished == math.inf]
        done = list(itertools.takewhile(Call.is_done, running))
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

    def pop(self) -> Call:
        """Wait for the oldest call, and return it."""
        self.wait(len(self._calls) - 1)
        return self._calls.popleft()
