"""Console output of a run: a progress bar or status lines, and permanent lines."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from jaxtrain.console import printable
from jaxtrain.errors import counted
from jaxtrain.records.progress_bar import (
    BarState,
    Remaining,
    duration,
    make_bar,
    short_duration,
)
from jaxtrain.tasks.base import Values
from jaxtrain.tasks.metrics import formatted

# Without a progress bar, a status line is printed after this time without output.
QUIET_SECONDS = 60.0
# Format strings of GPU telemetry.
MACHINE = {
    "mfu": "MFU {:.0%}",
    "gpu_utilization": "GPU {:.0%}",
    "gpu_power_watts": "{:.0f} W",
    "gpu_temperature": "{:.0f} C",
}
# `data_wait` (a fraction of the time) is shown only if it is at least this large.
LONG_WAIT = 0.05
FIRST_STEP = "compiling, first step"
# Maximum number of earlier evaluations to show when a run resumes.
NUM_EARLIER = 10


class Screen:
    """A progress bar on interactive consoles, and status lines elsewhere.

    The training loop only updates the state; in terminals a thread draws the bar.

    Args:
      step: Completed steps at the start.
      total_steps: Number of steps of the run.
      epoch: Function that converts steps to epochs.
      shown: Names of the metrics to show.
      earlier_seconds: Duration of the run before a resume, in seconds.
      evaluated_after: Function from a step to the (fractional) number of batches in all
        later evaluations.
      console: Console to print to. Defaults to standard output.
      seconds: Clock in seconds.
    """

    def __init__(
        self,
        step: int,
        total_steps: int,
        epoch: Callable[[int], float],
        shown: Sequence[str],
        *,
        earlier_seconds: float = 0.0,
        evaluated_after: Callable[[int], float] = lambda step: 0.0,
        console: Console | None = None,
        seconds: Callable[[], float] = time.perf_counter,
    ):
        self._total_steps, self._epoch, self._shown = total_steps, epoch, shown
        self._seconds, self._started_at = seconds, seconds() - earlier_seconds
        self._remaining = Remaining(step, total_steps, seconds, evaluated_after)
        # Text of the bar: the latest metrics, or the first loss before any metrics.
        self._metrics = self._first_loss = ""
        # Activity other than training, its start time, and the time of the last line.
        self._doing: str | None = FIRST_STEP
        self._doing_since = self._line_at = seconds()
        self._train_loss: float | None = None
        self._console = Console() if console is None else console
        self._bar = make_bar(self._console, self._state)
        if self._bar is None:
            self._print(FIRST_STEP)

    def write(self, kind: str, step: int, values: Values) -> None:
        """Print a record as a line; if there is a bar, show training metrics in it."""
        if kind == "event":
            self._line(step, _describe_event(values))
        elif kind == "eval":
            self._line(step, self._describe_evaluation(step, values))
        else:
            self._metrics = self._describe_steps(values)
            if self._bar is None:
                self._line(step, f"{self._metrics}  {self._left()}")

    def show(self, table: Table, text: str) -> None:
        """Print a table and a line below it."""
        self._console.print(table)
        self._print(text)

    def earlier(self, read: Callable[[], Sequence[dict[str, Any]]]) -> None:
        """Print the last evaluations before a resume, if there is a progress bar.

        Args:
          read: Function that reads the evaluations from `metrics.jsonl`.
        """
        if self._bar is None or not (evaluations := read()):
            return
        text = f"{counted(len(evaluations), 'evaluation')} so far (metrics.jsonl)"
        more = len(evaluations) > NUM_EARLIER
        self._print(text + (f"; the last {NUM_EARLIER}:" if more else ":"))
        for values in evaluations[-NUM_EARLIER:]:
            self.trained(values.get("train_loss"))
            self.write("eval", values["step"], values)

    def done(self, step: int) -> None:
        """Record that the device has completed `step` steps."""
        if step <= self._remaining.step:
            return
        first = not self._remaining.started
        self._remaining.done(step)
        if first:
            self._set_doing(None)
        if self._bar is not None:
            self._bar.refresh()
        elif not first and self._seconds() - self._line_at >= QUIET_SECONDS:
            self._line(step, self._left())

    @property
    def wants_loss(self) -> bool:
        """Whether a progress bar is shown, and shows no metrics yet."""
        return self._bar is not None and not self._metrics

    def first_loss(self, loss: float) -> None:
        """Show a training loss in the bar until the first metrics are logged."""
        self._first_loss = f"loss {loss:.4f}"

    @contextlib.contextmanager
    def evaluating(
        self, split: str, num_batches: float, seconds: Callable[[], float]
    ) -> Iterator[None]:
        """Context manager: show an evaluation; exclude its duration from step times.

        Args:
          split: Name of the split.
          num_batches: Number of examples of the split, divided by the batch size.
          seconds: Function that returns the total time of evaluations so far, without
            compilation, in seconds.
        """
        start, before = self._seconds(), seconds()
        with self.doing(f"evaluating on the {split} split"):
            yield
        pause = self._seconds() - start
        self._remaining.evaluated(num_batches, seconds() - before, pause)

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Context manager: show an activity other than training."""
        self._set_doing(what)
        yield
        self._set_doing(None)

    def trained(self, loss: float | None) -> None:
        """Set the mean training loss to print with the next evaluation."""
        self._train_loss = loss

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _set_doing(self, what: str | None) -> None:
        self._doing, self._doing_since = what, self._seconds()

    def _state(self) -> BarState:
        step, doing = self._remaining.step, self._doing
        metrics = self._metrics or self._first_loss
        text = f"epoch {self._epoch(step):.1f}  {metrics}"
        if doing is not None:
            text = f"{doing} {duration(self._seconds() - self._doing_since)}"
        times = f"{duration(self._seconds() - self._started_at)} so far  {self._left()}"
        return BarState(step, self._total_steps, text, times)

    def _describe_steps(self, values: Values) -> str:
        shown = [f"{n} {text}" for n, text in formatted(values, self._shown).items()]
        shown.append(f"{values['examples_per_second']:.0f} images/s")
        known = [name for name in MACHINE if name in values]
        shown += [MACHINE[name].format(values[name]) for name in known]
        if values.get("data_wait", 0.0) >= LONG_WAIT:
            shown.append(f"data wait {values['data_wait']:.0%}")
        if values.get("skipped_steps"):
            shown.append(f"{values['skipped_steps']} skipped")
        return "  ".join(shown)

    def _describe_evaluation(self, step: int, values: Values) -> str:
        metrics = formatted(values, self._shown).items()
        model_step = values.get("model_step", step)
        of = "" if model_step == step else f" (weights of step {model_step})"
        shown = [f"{values['split']}{of}:", *(f"{n} {text}" for n, text in metrics)]
        if self._train_loss is not None:
            shown.insert(0, f"train: loss {self._train_loss:.4f} ")
            self._train_loss = None
        one, epochs = self._remaining.step_seconds(), self._epoch(step)
        if one is not None and epochs and values["split"] == "validation":
            shown.append(f" {short_duration(one * step / epochs)} an epoch")
        return " ".join(shown)

    def _left(self) -> str:
        return f"{duration(self._remaining.left())} left"

    def _line(self, step: int, text: str) -> None:
        self._line_at = self._seconds()
        where = f"epoch {self._epoch(step):.2f}  step {step}/{self._total_steps}"
        self._print(f"{where}  {text}")

    def _print(self, text: str) -> None:
        text = fold(printable(text), self._console.width)
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def fold(text: str, width: int) -> str:
    """Wrap a line to `width` columns at double spaces; indent continuation lines."""
    first, *others = text.split("  ")
    lines = [first]
    for part in others:
        if len(lines[-1]) + 2 + len(part) <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(f"  {part}")
    return "\n".join(lines)


def _describe_event(values: Values) -> str:
    details = [
        name if value is True else f"{name} {value}"
        for name, value in values.items()
        if name not in ("epoch", "event") and not isinstance(value, list)
    ]
    return "  ".join([str(values["event"]), *details])
