"""Entry point: `python -m jaxtrain`, `jaxtrain` or `python main.py`."""

import errno
import signal
import sys
from typing import Any, NoReturn

from jaxtrain import console, invocation, system_errors
from jaxtrain.errors import OutputError, UserError
from jaxtrain.processes import signals


def run() -> NoReturn:
    """Run the command, and exit with its exit code."""
    invocation.note(sys.argv[0], sys.orig_argv[0])
    console.guard()
    console.require_output()
    system_errors.raise_file_limit()
    code: Any = 0
    try:
        from jaxtrain.cli import main  # Imports plug-ins.

        code = main()
        signals.ignore()
    except SystemExit as end:  # tyro exits after help or an error.
        code = end.code
    except OutputError:
        pass
    except UserError as error:  # Importing a plug-in failed.
        console.print_stderr(f"error: {error}")
        code = 2
    sys.exit(code or _exit_code_of_output())


def _exit_code_of_output() -> int:
    """Return a nonzero exit code if output was lost, else 0."""
    error = console.lost_output()
    if error is None:
        return 0
    # A closed pipe, as with `| head -1`, needs no message.
    if error.errno == errno.EPIPE:
        return 128 + signal.SIGPIPE
    console.print_stderr(
        f"error: cannot write standard output ({error.strerror}): free disk space, or "
        "redirect the output"
    )
    return 1


if __name__ == "__main__":
    run()
