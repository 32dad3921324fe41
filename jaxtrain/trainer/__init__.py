"""A training run, and the callbacks of plug-ins."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from jaxtrain.plugin import Table

if TYPE_CHECKING:
    from jaxtrain.trainer.attempt import Job

# Called in every process, one after another, once a run has reached its end.
CALLBACKS: "Table[Callable[[Job], None]]" = Table("callbacks", {})
