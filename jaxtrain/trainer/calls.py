"""Queue of dispatched calls of the training step."""

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
    """A dispatched call of the training program: one or more steps.

    Attributes:
      start: Number of steps before the call.
      metrics: Metrics of the steps, arrays (steps,) on the devices.
      finished: Time at which the device finished the call, in seconds of the queue's
        clock; infinity for unfinished calls.
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
    """FIFO queue of dispatched calls, which the devices execute asynchronously."""

    def __init__(self, seconds: Callable[[], float]):
        self._seconds = seconds
        self._calls = collections.deque[Call]()
        # Finish time of the last finished call.
        self.finished = seconds()
        # Number of steps completed at `finished`; None before the first finished call.
        self.done_step: int | None = None
        # Seconds per step of the most recently finished calls.
        self._step_seconds: float | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, start: int, metrics: dict[str, jax.Array]) -> None:
        """Append a call that was just dispatched."""
        self._calls.append(Call(start, metrics))

    def look(self) -> None:
        """Poll for finished calls, without waiting.

        If several calls have finished, their finish times are interpolated, assuming
        equal step times.
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
        """Estimated seconds of the newest call; None before a call has finished."""
        if self._step_seconds is None or not self._calls:
            return None
        return self._step_seconds * self._calls[-1].num_steps

    def most(self) -> int:
        """Maximum number of calls in flight; depends on `call_seconds`."""
        return calls_ahead(self.call_seconds())

    def wait(self, most: int) -> None:
        """Wait until at most `most` calls are in flight."""
        for call in list(self._calls)[: max(0, len(self._calls) - most)]:
            if call.finished == math.inf:
                # Waiting in `device_get` would take a tenth of the CPU time of a step.
                call.metrics["bad_steps"].block_until_ready()
                self.look()

    def pop(self) -> Call:
        """Wait for the oldest call; remove and return it."""
        self.wait(len(self._calls) - 1)
        return self._calls.popleft()
