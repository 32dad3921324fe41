"""Commands by name: one module each, of the core or of a plug-in.

A module has a dataclass of the options, whose docstring is the command's line in the
help; `EXAMPLE`, a call for the help; and `run(arguments, signals)`, whose `arguments`
have that type. An optional `problems(arguments)` returns what a start would refuse in
addition to invalid values of the config. Invalid input and unwritable files raise
UserError; see `jaxtrain.cli.main` for other errors. Modules import what needs JAX
inside functions: JAX takes a second, and arguments are parsed first.
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
