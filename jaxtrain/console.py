"""Standard output and error, which a run outlives: full disks, closed pipes, ASCII."""

import contextlib
import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import Any

import rich.console

from jaxtrain.errors import OutputError


class _Descriptor(io.FileIO):
    """A standard stream below its buffer; what cannot be written is dropped.

    Everything that prints ends here: `print`, rich, logging, and Python at its exit.

    Attributes:
      error: First error of a write; None: nothing was lost.
      on_error: Called with it.
    """

    def __init__(self, number: int, on_error: Callable[[OSError], None]):
        super().__init__(number, "w", closefd=False)
        self.error: OSError | None = None
        self.on_error = on_error

    def write(self, data: Any, /) -> int:
        try:
            # None: the pipe is full, and whoever shares it has made it non-blocking.
            while (num := super().write(data)) is None:
                select.select([], [self], [])
            return num
        except OSError as error:
            if self.error is None:
                self.error = error
                self.on_error(error)
            return len(data)


# Whether lost output ends the command, as the output is its result.
_required = False


def require_output(required: bool = True) -> None:
    """Let lost output end the command, or let the command go on without it."""
    global _required
    _required = required


def guard() -> None:
    """Make standard output and error take any text, and outlive their reader or disk.

    Streams that were replaced, as in a notebook, stay as they are. Descriptors that are
    closed are opened, or the next file would get their number.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number; for reading, so that a write fails as before.
            os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _guarded(1, sys.stdout, _output_lost)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _guarded(2, sys.stderr, lambda error: None)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Guard the output of a block that goes on without it."""
    before = sys.stdout, sys.stderr
    guard()
    require_output(False)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream not in before:
                stream.flush()
        sys.stdout, sys.stderr = before


def lost_output() -> OSError | None:
    """Flush standard output; return why a result that belongs there was lost."""
    if not _required or not isinstance(sys.stdout, io.TextIOWrapper):
        return None
    with contextlib.suppress(OutputError):
        sys.stdout.flush()
    return getattr(getattr(sys.stdout.buffer, "raw", None), "error", None)


def tell(message: str) -> None:
    """Write a line to standard error, if that leads anywhere."""
    with contextlib.suppress(OSError):
        # One write: `print` makes two of it where Python does not buffer, and another
        # process that shares standard error may come between.
        sys.stderr.write(f"{printable(message)}\n")
        sys.stderr.flush()


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


def _guarded(
    number: int, stream: Any, on_error: Callable[[OSError], None]
) -> io.TextIOWrapper:
    if stream is not None:  # Python has none for a closed descriptor.
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Descriptor(number, on_error)),
        encoding=stream.encoding if stream is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=stream is not None
        and (stream.line_buffering or stream.write_through),
    )


def _output_lost(error: OSError) -> None:
    if _required:
        raise OutputError(error.strerror) from None
    tell(
        f"warning: standard output cannot be written ({error.strerror}): the command "
        "goes on without it"
    )


@contextlib.contextmanager
def progress(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar, on a terminal alone; hand out what advances it."""
    # Here, as few commands need it, and all import this module.
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = rich.console.Console()
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
