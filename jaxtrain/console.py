"""Standard streams that survive full disks and closed pipes, in any encoding."""

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
    """Raw standard stream; output that cannot be written is dropped.

    `print`, rich, logging and Python's shutdown write to this stream.

    Attributes:
      error: First write error, or None if no output was lost.
      on_error: Callback for the first error.
    """

    def __init__(self, number: int, on_error: Callable[[OSError], None]):
        super().__init__(number, "w", closefd=False)
        self.error: OSError | None = None
        self.on_error = on_error

    def write(self, data: Any, /) -> int:
        try:
            # `write` returns None if the stream is a full pipe that another process has
            # made non-blocking.
            while (num := super().write(data)) is None:
                select.select([], [self], [])
            return num
        except OSError as error:
            if self.error is None:
                self.error = error
                self.on_error(error)
            return len(data)


# Whether a failed write to standard output ends the command. True for commands that
# print their result.
_required = False


def require_output(required: bool = True) -> None:
    """Set whether a failed write to standard output ends the command."""
    global _required
    _required = required


def guard() -> None:
    """Make standard output and error accept any text and survive write errors.

    Streams that were replaced, as in notebooks, are left unchanged. If a descriptor
    from 0 to 2 is closed, it is opened on /dev/null: otherwise a file opened later
    would get its number.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # `open` returns the lowest free descriptor, here `number`. It is read-only,
            # so that writes still fail.
            os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _guarded(1, sys.stdout, _output_lost)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _guarded(2, sys.stderr, lambda error: None)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Guard the standard streams within a context; write errors only warn."""
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
    """Flush standard output; return the write error if a required result was lost."""
    if not _required or not isinstance(sys.stdout, io.TextIOWrapper):
        return None
    with contextlib.suppress(OutputError):
        sys.stdout.flush()
    return getattr(getattr(sys.stdout.buffer, "raw", None), "error", None)


def print_stderr(message: str) -> None:
    """Print a line to standard error, ignoring errors."""
    with contextlib.suppress(OSError):
        # A single write call: unbuffered `print` makes two calls, and another process
        # may write between the calls.
        sys.stderr.write(f"{printable(message)}\n")
        sys.stderr.flush()


def printable(text: str) -> str:
    """Escape non-printable characters, such as control codes, but not newlines."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode()
        for c in text
    )


def _guarded(
    number: int, stream: Any, on_error: Callable[[OSError], None]
) -> io.TextIOWrapper:
    if stream is not None:  # None if the descriptor was closed.
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
    print_stderr(
        f"warning: cannot write standard output ({error.strerror}): the command "
        "continues without output"
    )


@contextlib.contextmanager
def progress(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar in terminals; yield a function that advances it."""
    # Imported lazily: all commands import this module, and few show a bar.
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
    # rich's default window of 30 s gives no estimate for slow steps.
    with Progress(*columns, console=console, speed_estimate_period=3600) as bar:
        task = bar.add_task(name, total=total)
        yield lambda num: bar.advance(task, num)
