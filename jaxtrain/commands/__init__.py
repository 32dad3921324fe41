"""Commands by name: one module each, of the core or of a plug-in.

Each has a dataclass of its options, whose docstring is its line in the help; `EXAMPLE`,
a call that the help shows; and `run(arguments, signals)`, whose type of `arguments` is
that dataclass. `problems(arguments)`, where there is one, returns what else a start
would refuse if values of the config are wrong. Wrong input, and files that cannot be
written, raise UserError; what else `run` may raise stands in `jaxtrain.cli.main`. A
command imports what needs JAX inside its functions: JAX takes a second, and the words
are parsed before.
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
