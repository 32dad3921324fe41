"""The program: `python -m jaxtrain`, `jaxtrain` or `python main.py`."""

import atexit
import os
import sys
import threading
from typing import NoReturn

from jaxtrain.cli import main


def run() -> NoReturn:
    """Run the command line, and end the process with its exit code.

    A save that failed leaves threads of Orbax, which wait up to five minutes for the
    folder that it could not make. Python would wait for them, but nothing depends on
    them: the saves that did not fail are committed by now.
    """
    code = main()
    if not any(_is_of_orbax(thread) for thread in threading.enumerate()):
        sys.exit(code)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _is_of_orbax(thread: threading.Thread) -> bool:
    return type(thread).__module__.startswith("orbax.")


if __name__ == "__main__":
    run()
