"""Training methods, which compute the gradients of a training step.

To add a method, subclass `Method` in a new file, and add an entry to `METHODS`.
"""

from typing import TYPE_CHECKING

from jaxtrain.plugin import Table, installed

if TYPE_CHECKING:
    from jaxtrain.training.methods.base import Method

METHODS: "Table[type[Method]]" = Table(
    "methods",
    {
        "plain": "jaxtrain.training.methods.plain:Plain",
        "sam": "jaxtrain.training.methods.sam:Sam",
    },
)


def weights_options() -> list[str]:
    """Names of the method options that are paths to trained weights."""
    return [name for plugin in installed() for name in plugin.weights_options]
