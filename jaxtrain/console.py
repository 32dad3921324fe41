"""Output of a run, which goes on when nobody reads it any more."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

import rich.console


def tell(message: str) -> None:
    """Write a line to standard error, if that still leads anywhere."""
    try:
        # One write: `print` makes two of it where Python does not buffer, and another
        # process that shares standard error may come between.
        sys.stderr.write(f"{printable(message)}\n")
        sys.stderr.flush()
    except BrokenPipeError:
        discard(sys.stderr)
    except OSError:
        pass


def printable(text: str) -> str:
    """Escape what a terminal would not show, or would obey: names of files hold any.

    New lines stay.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode()
        for c in text
    )


class Console(rich.console.Console):
    """Standard output, which a run outlives: Ctrl-C may end `| tee` before the save."""

    def on_broken_pipe(self) -> None:
        discard(sys.stdout)


def discard(stream: TextIO) -> None:
    """Let a stream of the process lead nowhere from now on.

    What could not be written is still in its buffer: Python would fail to write it at
    its end, with exit code 120.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def progress(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar, on a terminal alone; hand out what advances it."""
    # Here, as few commands need it, and all import this module.
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console()
    if not console.is_terminal:
        yield lambda num: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(),
    )
    # By default rich forgets what is older than 30 s: no estimate for slow steps.
    with Progress(*columns, console=console, speed_estimate_period=3600) as bar:
        task = bar.add_task(name, total=total)
        yield lambda num: bar.advance(task, num)
