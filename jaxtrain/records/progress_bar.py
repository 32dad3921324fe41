"""How far a run is: a bar on a terminal and in a notebook."""

import html
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import rich.console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

# Seconds between two pictures of a bar.
EVERY_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class BarState:
    """What a bar shows.

    Attributes:
      step: Completed steps.
      total_steps: Steps of the run.
      text: What the run does, and its latest metrics.
      times: The time so far and the time left.
    """

    step: int
    total_steps: int
    text: str
    times: str


class Bar(Protocol):
    """Shows what its function returns, about every second."""

    def refresh(self) -> None:
        """Give a bar that has no thread of its own the time to show what is new."""
        ...

    def close(self) -> None: ...


def make_bar(console: rich.console.Console, look: Callable[[], BarState]) -> Bar | None:
    """Return a bar that fits where the output goes; None where there is no terminal.

    Args:
      console: Console of the output.
      look: Returns what to show; called from another thread too.
    """
    if console.is_jupyter:
        return _NotebookBar(look)
    return _TerminalBar(console, look) if console.is_terminal else None


class _TerminalBar:
    """Drawn by a thread of its own, so that it moves while the loop waits."""

    def __init__(self, console: rich.console.Console, look: Callable[[], BarState]):
        self._look = look
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
        state = self._look()
        row = Table.grid(expand=True, padding=(0, 2, 0, 0))
        row.add_column(ratio=1)
        row.add_column(no_wrap=True)
        row.add_column(no_wrap=True)
        bar = ProgressBar(total=state.total_steps, completed=state.step)
        row.add_row(bar, f"{state.step}/{state.total_steps}", state.times)
        text = Text(state.text, no_wrap=True, overflow="ellipsis")
        return rich.console.Group(text, row)


class _NotebookBar:
    """The browser's own element: rich's bar needs widgets that few have installed."""

    def __init__(self, look: Callable[[], BarState]):
        # There wherever this is made.
        from IPython.display import display  # pyright: ignore[reportMissingImports]

        self._look, self._at = look, time.monotonic()
        self._handle = display(self._shown(), display_id=True)

    def refresh(self) -> None:
        now = time.monotonic()
        if now - self._at >= EVERY_SECONDS:
            self._at = now
            self._handle.update(self._shown())

    def close(self) -> None:
        self._handle.update(self._shown())

    def _shown(self) -> Any:
        from IPython.display import HTML  # pyright: ignore[reportMissingImports]

        state = self._look()
        step, total = state.step, state.total_steps
        text = html.escape(f"{state.text}  {state.times}")
        bar = f'<progress value="{step}" max="{total}"></progress>'
        return HTML(f"{bar} {step}/{total} {text}")
