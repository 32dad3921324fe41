"""The command line: `main.py [COMMAND] --config FILE [--section.field VALUE ...]`.

Every way a run can end has its exit code here (see `main`); what a command does is in
`jaxtrain/commands/`.
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
from jaxtrain.config import help as help_lib
from jaxtrain.config import recipe
from jaxtrain.console import tell
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

# Any other exception is a bug.
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

    0: done; 2: the input is wrong; 5: the numbers went bad; 128 + the signal's number:
    stopped, and saved; 1: a checkpoint could not be written or read, or an image with
    --strict, or an exported file is not the model; 75: start again, as the run hung or
    lost a process. An exception is a bug. Several processes end together, with the code
    of the one that failed.
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
                raise _with_problems_of_start(command, error) from None
            console.require_output(False)
            with own.no_exit():
                command.run(given, signals)
        except Interrupted as error:
            code, message = 128 + error.signum, error
        except KeyboardInterrupt:  # Raised by a user's own part: the signal is ours.
            code = 128 + signal.SIGINT
            message = "interrupted; the same command goes on from the last checkpoint"
        except Exception as error:
            code, message = _explained(error)
        signals.defer = True
        if code:
            _fail(code, message, signals)
        return code


def parse(name: str, words: list[str]) -> Any:
    """Read the words that follow the name of a command into its dataclass.

    Raises:
      UserError: the config file is missing or wrong, or a value is.
    """
    command = load(name)
    kind = options_of(command)
    prog = invocation.command(*([] if name == DEFAULT else [name]))
    text = f"{kind.__doc__}\n\nExample:\n  {prog} {command.EXAMPLE}"
    if name == DEFAULT:
        text += "\n\nCommands (without one: train), whose options "
        text += f"{prog} COMMAND --help shows:"
        for heading, names in _by_subject().items():
            text += f"\n{heading}:" if heading else ""
            for other in names:
                text += f"\n  {other:<12}{_meaning(other)}"
    fields = inspect.signature(kind).parameters
    if "data" in fields and "workdir" in fields:
        arguments = recipe.parse_of_run(kind, words, prog=prog, description=text)
    elif "overrides" in fields:
        arguments = recipe.parse(kind, words, prog=prog, description=text)
    else:
        # A command without a recipe has one help.
        words = ["--help" if word == help_lib.ALL else word for word in words]
        arguments = tyro.cli(kind, args=words, prog=prog, description=text)
    # Such as --source and --ood. Lists of files, which a folder may name, are not.
    own.allow(value for value in vars(arguments).values() if isinstance(value, str))
    return arguments


def _with_problems_of_start(command: Any, error: recipe.WrongValuesError) -> UserError:
    """Return all problems of a command: those of its words, and of its start.

    A start that would tell more has `problems(arguments)`. It goes on with other values
    in the place of the wrong ones, whose consequences are left out.
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
    for plugin, names in COMMANDS.brought():
        found.setdefault(plugin.subject, []).extend(names)
    return found


def _meaning(name: str) -> str | None:
    """Return the summary of a command, or the reason why it cannot be imported."""
    try:
        return options_of(load(name)).__doc__
    except UserError as error:
        return f"({error})"


def load(name: str) -> Any:
    """Import the module of a command."""
    if name not in COMMANDS:
        meant = nearest(name, COMMANDS, "; did you mean {!r}?")
        raise UserError(
            f"unknown command {name!r}: there is {', '.join(COMMANDS)}{meant}"
        )
    return COMMANDS[name]


def options_of(command: Any) -> type:
    """Return the dataclass of options that the `run` of a command takes."""
    return get_type_hints(command.run)["arguments"]


def _explained(error: Exception) -> tuple[int, object]:
    """Return the exit code of a command that failed, and the reason.

    Called while the error is handled; a bug in a single process is raised again.
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
    # A collective fails as soon as another process is gone.
    if here.confirm_lost(reason):
        lost = "another process was lost; the same command goes on from the last"
        return START_AGAIN, f"{lost} checkpoint ({reason.splitlines()[0]})"
    traceback.print_exc()
    return 1, reason


def _fail(code: int, message: object, signals: StopSignals) -> None:
    """Print why the command failed; the other processes then end, too."""
    prefix = "error" if code < 128 else "stopped"
    tell(f"{prefix}: {message}")
    # If all have stopped at the same step, none needs to be told: each goes on to the
    # end of Python, where JAX waits for all.
    if not (signals.agreed and code - 128 == signals.signum):
        cluster.current().leave(code, str(message))
