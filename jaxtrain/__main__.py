"""The program: `python -m jaxtrain`, `jaxtrain` or `python main.py`."""

import select
import signal
import sys
from typing import NoReturn

from jaxtrain import console
from jaxtrain.cli import main
from jaxtrain.processes import signals


def run() -> NoReturn:
    """Run the command line, and end the process with its exit code."""
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
        console.discard(sys.stdout)
        sys.exit(code or 128 + signal.SIGPIPE)
    sys.exit(code)


def _flush() -> None:
    print(end="", flush=True)  # There may be no sys.stdout.


def _nobody_reads() -> bool:
    """Whether the reader of our output, such as `head -1`, has gone."""
    poll = select.poll()
    poll.register(sys.stdout, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


if __name__ == "__main__":
    run()
