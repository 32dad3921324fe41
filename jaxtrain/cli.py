"""The command line: `main.py [COMMAND] --config FILE [--section.field VALUE ...]`.

Every way a run can end has its exit code here (see `main`); what a command does is in
`jaxtrain/commands/`.
"""

import importlib
import inspect
import sys
import traceback
from collections.abc import Sequence
from typing import Any, get_type_hints

import tyro

from jaxtrain import own
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
from jaxtrain.processes import peers
from jaxtrain.processes.signals import StopSignals

# Name -> module, which is imported when it is asked for.
COMMANDS = {
    "train": "jaxtrain.commands.train",
    "new": "jaxtrain.commands.new",
    "data": "jaxtrain.commands.data",
    "models": "jaxtrain.commands.models",
    "find-lr": "jaxtrain.commands.find_lr",
    "scale": "jaxtrain.commands.scale",
    "plan": "jaxtrain.commands.plan",
    "evaluate": "jaxtrain.commands.evaluate",
    "predict": "jaxtrain.commands.predict",
    "export": "jaxtrain.commands.export",
    "report": "jaxtrain.commands.report",
    "serve": "jaxtrain.commands.serve",
    "checkpoint": "jaxtrain.commands.checkpoint",
}
DEFAULT = "train"


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
        try:
            code, message = _carry_out(words, signals)
        except Interrupted as error:
            code, message = 128 + error.signum, error
        signals.defer = True
        if code:
            _fail(code, message)
        return code


def parse(name: str, words: list[str]) -> Any:
    """Read the words that follow the name of a command into its dataclass.

    Raises:
      UserError: the config file is missing or wrong, or a value is.
    """
    kind, text = options_of(_load(name)), _describe(name)
    if name == DEFAULT:
        text += "\n\nCommands (without one: train), whose options main.py COMMAND "
        text += "--help shows:"
        for other in COMMANDS:
            text += f"\n  {other:<12}{options_of(_load(other)).__doc__}"
    prog = "main.py" if name == DEFAULT else f"main.py {name}"
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


def _load(name: str) -> Any:
    """Import the module of a command.

    Raises:
      UserError: there is no such command.
    """
    if name not in COMMANDS:
        meant = nearest(name, COMMANDS, "; did you mean {!r}?")
        raise UserError(
            f"unknown command {name!r}: there is {', '.join(COMMANDS)}{meant}"
        )
    return importlib.import_module(COMMANDS[name])


def _describe(name: str) -> str:
    """Return what help says of a command: a line, and an example."""
    command = _load(name)
    call = "main.py" if name == DEFAULT else f"main.py {name}"
    meaning = options_of(command).__doc__
    return f"{meaning}\n\nExample:\n  python {call} {command.EXAMPLE}"


def options_of(command: Any) -> type:
    """Return the dataclass of options that the `run` of a command takes."""
    return get_type_hints(command.run)["arguments"]


def _carry_out(words: list[str], signals: StopSignals) -> tuple[int, object]:
    """Run a command; return its exit code and, if that is not 0, why."""
    try:
        name = words.pop(0) if words and not words[0].startswith("-") else DEFAULT
        command = _load(name)
        command.run(parse(name, words), signals)
        return 0, None
    except UserError as error:
        return 2, error
    except BadNumbersError as error:
        return 5, error
    except (CheckpointError, IncompleteError) as error:
        _ask_others()
        return 1, error
    except ExportError as error:
        return 1, error
    except StartAgainError as error:
        return START_AGAIN, error
    except Exception as error:
        if peers.current() is None:
            raise
        _ask_others()
        traceback.print_exc()
        return 1, f"{type(error).__name__}: {error}"


def _ask_others() -> None:
    """End as another process did, if that is where an error comes from."""
    others = peers.current()
    if others is not None:
        others.explain()


def _fail(code: int, message: object) -> None:
    """Print why the command failed; the other processes then end, too."""
    prefix = "error" if code < 128 else "stopped"
    tell(f"{prefix}: {message}")
    others = peers.current()
    # If all have stopped at the same step, none needs to be told: each goes on to the
    # end of Python, where they wait for each other (`distributed.start`).
    if others is not None and code - 128 != others.stopped:
        others.leave(code, str(message))
