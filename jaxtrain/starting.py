"""Console display of slow start-up phases, such as loading JAX.

Terminals show the current phase and its duration; elsewhere, each phase is printed as a
line.
"""

import contextlib
import time
from collections.abc import Iterator

from jaxtrain.console import printable

# Refreshes per second in terminals.
PER_SECOND = 4


class _Shown:
    def __init__(self, part: str):
        # rich is imported lazily: few commands need it.
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        def draw() -> Text:
            seconds = int(time.monotonic() - self._since)
            return Text(f"{self._part}, {seconds} s", no_wrap=True, overflow="ellipsis")

        self._part, self._since = "", time.monotonic()
        console = Console()
        self._live = Live(
            get_renderable=draw,
            console=console,
            refresh_per_second=PER_SECOND,
            transient=True,
        )
        self._is_live = console.is_terminal and not console.is_jupyter
        self.begin(part)
        if self._is_live:
            self._live.start(refresh=True)

    def begin(self, part: str) -> None:
        part = printable(part)
        if part == self._part:
            return
        self._part, self._since = part, time.monotonic()
        if not self._is_live:
            print(self._part, flush=True)

    def end(self) -> None:
        if self._is_live:
            self._live.stop()


_shown: _Shown | None = None


@contextlib.contextmanager
def showing(part: str) -> Iterator[None]:
    """Context manager: show start-up phases, beginning with `part`."""
    global _shown
    end()
    _shown = _Shown(part)
    try:
        yield
    finally:
        end()


def begin(part: str) -> None:
    """Show `part` as the current phase; no effect outside `showing`."""
    if _shown is not None:
        _shown.begin(part)


def end() -> None:
    """Stop showing phases. Called before other output."""
    global _shown
    if _shown is not None:
        _shown.end()
    _shown = None
