"""Table of the commands. A command is a module of the core or of a plug-in.

The module defines a dataclass of the options, with the command's summary as its
docstring; `run(arguments, signals)`, where `arguments` is an instance of the dataclass;
and `EXAMPLE`, a command line for the help. The optional `problems(arguments)` returns
problems other than invalid config values. Invalid input and unwritable files raise
UserError; see `jaxtrain.cli.main` for other errors. Modules import JAX only inside
functions, because the import takes a second, and neither the help nor messages about
invalid arguments need JAX.
"""

from types import ModuleType

from jaxtrain.plugin import Table

DEFAULT = "train"
COMMANDS: Table[ModuleType] = Table(
    "commands",
    {
        "train": "jaxtrain.commands.train",
        "models": "jaxtrain.commands.models",
        "find-lr": "jaxtrain.commands.find_lr",
        "evaluate": "jaxtrain.commands.evaluate",
        "predict": "jaxtrain.commands.predict",
        "export": "jaxtrain.commands.export",
        "checkpoint": "jaxtrain.commands.checkpoint",
        "ensemble": "jaxtrain.commands.ensemble",
    },
)
