"""Progress bars for terminals and notebooks, and estimates of the remaining time."""

import html
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import rich.console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

# Seconds between refreshes of a bar.
EVERY_SECONDS = 1.0
# Half-life of the moving average of step times, as a fraction of `total_steps`.
HALF_LIFE = 0.1
# Forward time / step time: the backward pass has twice the FLOPs of the forward pass.
FORWARD_SHARE = 1 / 3


class BarState(NamedTuple):
    """Contents of a progress bar; `text` shows the metrics or the current activity."""

    step: int
    total_steps: int
    text: str
    times: str


class TerminalBar:
    """Progress bar in a terminal, refreshed by a background thread."""

    def __init__(
        self, console: rich.console.Console, get_state: Callable[[], BarState]
    ):
        self._get_state = get_state
        self._live = Live(
            get_renderable=self._draw,
            console=console,
            refresh_per_second=1 / EVERY_SECONDS,
        )
        self._live.start(refresh=True)

    def refresh(self) -> None:
        pass

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> rich.console.Group:
        state = self._get_state()
        row = Table.grid(expand=True, padding=(0, 2, 0, 0))
        row.add_column(ratio=1)
        row.add_column(no_wrap=True)
        row.add_column(no_wrap=True)
        bar = ProgressBar(total=state.total_steps, completed=state.step)
        row.add_row(bar, f"{state.step}/{state.total_steps}", state.times)
        text = Text(state.text, no_wrap=True, overflow="ellipsis")
        return rich.console.Group(text, row)


class NotebookBar:
    """HTML progress bar for notebooks; rich's bar would require ipywidgets."""

    def __init__(self, get_state: Callable[[], BarState]):
        # Imported lazily, as IPython is installed only with notebooks.
        from IPython.display import display  # pyright: ignore[reportMissingImports]

        self._get_state, self._completed_at = get_state, time.monotonic()
        self._handle = display(self._shown(), display_id=True)

    def refresh(self) -> None:
        """Redraw the bar, at most once in `EVERY_SECONDS`."""
        now = time.monotonic()
        if now - self._completed_at >= EVERY_SECONDS:
            self._completed_at = now
            self._handle.update(self._shown())

    def close(self) -> None:
        self._handle.update(self._shown())

    def _shown(self) -> Any:
        from IPython.display import HTML  # pyright: ignore[reportMissingImports]

        step, total, text, times = self._get_state()
        bar = f'<progress value="{step}" max="{total}"></progress>'
        return HTML(f"{bar} {step}/{total} {html.escape(f'{text}  {times}')}")


def make_bar(
    console: rich.console.Console, get_state: Callable[[], BarState]
) -> TerminalBar | NotebookBar | None:
    """Return a progress bar, or None if the console is not interactive.

    Args:
      console: Console to draw on.
      get_state: Thread-safe function that returns the contents of the bar.
    """
    if console.is_jupyter:
        return NotebookBar(get_state)
    return TerminalBar(console, get_state) if console.is_terminal else None


class Remaining:
    """Estimates the time per step and the remaining time of a run.

    The time per step, an exponential moving average, includes checkpoint saves, but not
    the compilation of the first step. The time of later evaluations is estimated from
    the number of examples.

    Args:
      step: Completed steps at the start.
      total_steps: Number of steps of the run.
      seconds: Clock in seconds.
      evaluated_after: Function from a step to the (fractional) number of batches in all
        later evaluations.
    """

    def __init__(
        self,
        step: int,
        total_steps: int,
        seconds: Callable[[], float] = time.perf_counter,
        evaluated_after: Callable[[int], float] = lambda step: 0.0,
    ):
        self.step = step
        self._total_steps, self._seconds = total_steps, seconds
        self._evaluated_after = evaluated_after
        # Seconds per evaluation batch; None before the first evaluation.
        self._batch_seconds: float | None = None
        self._completed_at: float | None = None  # Time at which `step` was completed.
        self._num_steps = self._num_seconds = 0.0  # Sums with exponential decay.

    @property
    def started(self) -> bool:
        """Whether a step was completed since the start."""
        return self._completed_at is not None

    def done(self, step: int) -> None:
        """Record that `step` steps are completed."""
        if step <= self.step:
            return
        now, num_new = self._seconds(), step - self.step
        if self._completed_at is not None:
            decay = 0.5 ** (num_new / (HALF_LIFE * self._total_steps))
            self._num_steps = self._num_steps * decay + num_new
            self._num_seconds = self._num_seconds * decay + now - self._completed_at
        self.step, self._completed_at = step, now

    def evaluated(self, num_batches: float, seconds: float, pause: float) -> None:
        """Record an evaluation between two steps.

        Args:
          num_batches: Number of evaluated examples, divided by the batch size.
          seconds: Duration of the evaluation without compilation, in seconds.
          pause: Duration of the evaluation with compilation, in seconds.
        """
        self._batch_seconds = seconds / num_batches
        if self._completed_at is not None:
            self._completed_at += pause

    def step_seconds(self) -> float | None:
        """Return the average seconds per step; None until two steps are completed."""
        return self._num_seconds / self._num_steps if self._num_steps else None

    def left(self) -> float | None:
        """Return the remaining seconds of the run; None if `step_seconds` is None."""
        one = self.step_seconds()
        if one is None or self._completed_at is None:
            return None
        # Elapsed seconds of the current step, limited to the average step time.
        started = min(self._seconds() - self._completed_at, one)
        batch = FORWARD_SHARE * one
        if self._batch_seconds is not None:
            batch = self._batch_seconds
        evaluations = batch * self._evaluated_after(self.step)
        return max(0.0, one * (self._total_steps - self.step) - started) + evaluations


def duration(seconds: float | None) -> str:
    """Format seconds as H:MM:SS, and None as -:--:--."""
    if seconds is None:
        return "-:--:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def short_duration(seconds: float) -> str:
    """Format seconds as `S.S s` if less than a minute, else as H:MM:SS."""
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)
