"""Output of a run, which goes on when nobody reads it any more."""

import contextlib
import os
import sys

import rich.console


def tell(message: str) -> None:
    """Write a line to standard error, if that still leads anywhere."""
    with contextlib.suppress(OSError):
        print(printable(message), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Escape what a terminal would not show, or would obey: names of files hold any.

    New lines stay.
    """
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode()
        for c in text
    )


class Console(rich.console.Console):
    """Standard output, which a run outlives: Ctrl-C may end `| tee` before the save."""

    def on_broken_pipe(self) -> None:
        discard()


def discard() -> None:
    """Let standard output lead nowhere from now on."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
