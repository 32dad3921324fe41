"""The command line: `main.py [COMMAND] --config FILE [--section.field VALUE ...]`.

All exit codes are assigned here (see `main`); commands are in `jaxtrain/commands/`.
"""

import inspect
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any, get_type_hints

import tyro

from jaxtrain import console, invocation, own
from jaxtrain.commands import COMMANDS, DEFAULT
from jaxtrain.config import help as help_lib, recipe
from jaxtrain.console import print_stderr
from jaxtrain.errors import (
    START_AGAIN,
    BadNumbersError,
    CheckpointError,
    ExportError,
    IncompleteError,
    Interrupted,
    StartAgainError,
    UserError,
    nearest,
)
from jaxtrain.problems import ProblemsError
from jaxtrain.processes import cluster
from jaxtrain.processes.signals import StopSignals
from jaxtrain.system_errors import as_user_error

# Exit codes of exceptions; all other exceptions are bugs.
EXIT_CODES = {
    UserError: 2,
    BadNumbersError: 5,
    CheckpointError: 1,
    IncompleteError: 1,
    ExportError: 1,
    StartAgainError: START_AGAIN,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    - 0: Success.
    - 1: A checkpoint could not be saved or read, an input failed (with --strict), the
      outputs of an exported file differ from the model's, or writing to standard output
      failed.
    - 2: Invalid input.
    - 5: Too many non-finite steps.
    - 75: The run hung or lost a process; the same command resumes it.
    - 128 + signal number: A signal stopped the run; its state is saved.

    Exceptions that the function raises are bugs. If a process of a run fails, all
    processes exit with its code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    with StopSignals() as signals, own.allowing_nothing():
        code, message = 0, None
        try:
            name = words.pop(0) if words and not words[0].startswith("-") else DEFAULT
            command = load(name)
            try:
                given = parse(name, words)
            except recipe.WrongValuesError as error:
                raise _with_command_problems(command, error) from None
            console.require_output(False)
            with own.no_exit():
                command.run(given, signals)
        except Interrupted as error:
            code, message = 128 + error.signum, error
        except KeyboardInterrupt:  # From custom code: `StopSignals` handles SIGINT.
            code = 128 + signal.SIGINT
            message = "interrupted; the same command resumes from the last checkpoint"
        except Exception as error:
            code, message = _exit_code_and_message(error)
        signals.defer = True
        if code:
            _fail(code, message, signals)
        return code


def parse(name: str, words: list[str]) -> Any:
    """Parse the arguments of a command into the command's dataclass.

    Raises:
      UserError: Missing or invalid config file, or an invalid value.
    """
    command = load(name)
    kind = options_of(command)
    prog = invocation.command(*([] if name == DEFAULT else [name]))
    text = f"{kind.__doc__}\n\nExample:\n  {prog} {command.EXAMPLE}"
    if name == DEFAULT:
        text += "\n\nCommands (default: train); "
        text += f"{prog} COMMAND --help shows the options of a command:"
        for heading, names in _by_subject().items():
            text += f"\n{heading}:" if heading else ""
            for other in names:
                text += f"\n  {other:<12}{_summary(other)}"
    fields = inspect.signature(kind).parameters
    if "data" in fields and "workdir" in fields:
        arguments = recipe.parse_of_run(kind, words, prog=prog, description=text)
    elif "overrides" in fields:
        arguments = recipe.parse(kind, words, prog=prog, description=text)
    else:
        # Without a recipe, --help already lists all options.
        words = ["--help" if word == help_lib.ALL else word for word in words]
        arguments = tyro.cli(kind, args=words, prog=prog, description=text)
    # Allow the custom code that text options name, such as --source and --ood.
    own.allow(value for value in vars(arguments).values() if isinstance(value, str))
    return arguments


def _with_command_problems(command: Any, error: recipe.WrongValuesError) -> UserError:
    """Add the problems found by `command.problems` to an error for invalid values.

    `problems(arguments)` checks valid arguments against data, model and devices. In
    `error.arguments` the invalid values are replaced by valid values, so problems of
    these fields are omitted.
    """
    if error.arguments is None or not hasattr(command, "problems"):
        return error
    replaced = {field for problem in error.problems for field in problem.fields}
    more = [
        problem
        for problem in command.problems(error.arguments)
        if replaced.isdisjoint(problem.fields)
    ]
    return ProblemsError([*error.problems, *more])


def _by_subject() -> dict[str, list[str]]:
    found = {"": [*COMMANDS.core]}
    for plugin, names in COMMANDS.rows_by_plugin():
        found.setdefault(plugin.subject, []).extend(names)
    return found


def _summary(name: str) -> str | None:
    """Return the summary of a command, or the error message if its import fails."""
    try:
        return options_of(load(name)).__doc__
    except UserError as error:
        return f"({error})"


def load(name: str) -> Any:
    """Import the module of a command."""
    if name not in COMMANDS:
        meant = nearest(name, COMMANDS, "; did you mean {!r}?")
        raise UserError(
            f"unknown command {name!r}: expected {', '.join(COMMANDS)}{meant}"
        )
    return COMMANDS[name]


def options_of(command: Any) -> type:
    """Return the dataclass of a command's options."""
    return get_type_hints(command.run)["arguments"]


def _exit_code_and_message(error: Exception) -> tuple[int, object]:
    """Exit code and message of a failed command.

    Called in an `except` block. A bug is re-raised, unless the run has several
    processes.
    """
    codes = [code for kind, code in EXIT_CODES.items() if isinstance(error, kind)]
    here = cluster.current()
    if not codes and (of_system := as_user_error(error)) is not None:
        codes, error = [EXIT_CODES[UserError]], of_system
    if not codes and here.num == 1:
        raise
    if codes:
        return codes[0], error
    reason = f"{type(error).__name__}: {error}"
    # Collectives fail as soon as another process exits.
    if here.confirm_lost(reason):
        lost = (
            "lost connection to another process; the same command resumes from the last"
        )
        return START_AGAIN, f"{lost} checkpoint ({reason.splitlines()[0]})"
    traceback.print_exc()
    return 1, reason


def _fail(code: int, message: object, signals: StopSignals) -> None:
    """Print an error message, and exit all processes of the run."""
    prefix = "error" if code < 128 else "stopped"
    print_stderr(f"{prefix}: {message}")
    # If all processes stopped at the same step, this process exits normally: JAX
    # synchronizes all processes at interpreter exit.
    if not (signals.agreed and code - 128 == signals.signum):
        cluster.current().leave(code, str(message))
