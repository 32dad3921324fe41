"""Methods by name: how a step gets its gradients.

To add one, write a subclass of `Method` in a file of its own, and its row in `METHODS`.
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
    """Return the options of methods that name trained weights."""
    return [name for plugin in installed() for name in plugin.weights_options]
