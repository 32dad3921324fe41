"""The program: `python -m jaxtrain`, `jaxtrain` or `python main.py`."""

import atexit
import os
import select
import signal
import sys
import threading
from typing import NoReturn

from jaxtrain import console
from jaxtrain.cli import main
from jaxtrain.processes import signals


def run() -> NoReturn:
    """Run the command line, and end the process with its exit code.

    A save that failed leaves threads of Orbax, which wait up to five minutes for the
    folder that it could not make. Python would wait for them, but nothing depends on
    them: the saves that did not fail are committed by now.
    """
    code = 0
    try:
        try:
            code = main()
            signals.ignore()
        finally:
            _flush()
    except BrokenPipeError:
        if not _nobody_reads():
            raise
        console.discard()  # Python would write what is left at its end, and complain.
        sys.exit(code or 128 + signal.SIGPIPE)
    if not any(_is_of_orbax(thread) for thread in threading.enumerate()):
        sys.exit(code)
    atexit._run_exitfuncs()
    _flush()
    sys.stderr.flush()
    os._exit(code)


def _flush() -> None:
    print(end="", flush=True)  # There may be no sys.stdout.


def _nobody_reads() -> bool:
    """Tell whether the reader of our output, such as `head -1`, has gone."""
    poll = select.poll()
    poll.register(sys.stdout, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _is_of_orbax(thread: threading.Thread) -> bool:
    return type(thread).__module__.startswith("orbax.")


if __name__ == "__main__":
    run()
