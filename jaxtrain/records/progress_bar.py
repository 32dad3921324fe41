"""How far a run is: a bar on a terminal and in a notebook."""

import html
from typing import Any, Protocol

import rich.console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

BEGINNING = "compiling"


class Bar(Protocol):
    """Shows the steps that are done, and a text beside them."""

    def update(self, step: int, text: str) -> None: ...

    def close(self) -> None: ...


def make_bar(console: rich.console.Console, step: int, total: int) -> Bar | None:
    """Return a bar that fits where the output goes; None: it is no place for one."""
    if console.is_jupyter:
        return _NotebookBar(step, total)
    return _TerminalBar(console, step, total) if console.is_terminal else None


class _TerminalBar:
    def __init__(self, console: rich.console.Console, step: int, total: int):
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed}/{task.total}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._progress.add_task(BEGINNING, total=total, completed=step)
        self._progress.start()

    def update(self, step: int, text: str) -> None:
        self._progress.update(self._task, completed=step, description=text)

    def close(self) -> None:
        self._progress.stop()


class _NotebookBar:
    """The browser's own element: rich's bar needs widgets that few have installed."""

    def __init__(self, step: int, total: int):
        # There wherever this is made.
        from IPython.display import display  # pyright: ignore[reportMissingImports]

        self._total = total
        self._handle = display(self._shown(step, BEGINNING), display_id=True)

    def update(self, step: int, text: str) -> None:
        self._handle.update(self._shown(step, text))

    def close(self) -> None:
        pass

    def _shown(self, step: int, text: str) -> Any:
        from IPython.display import HTML  # pyright: ignore[reportMissingImports]

        bar = f'<progress value="{step}" max="{self._total}"></progress>'
        return HTML(f"{bar} {step}/{self._total} {html.escape(text)}")
