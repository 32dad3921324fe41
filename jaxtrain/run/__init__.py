"""A training run; the callbacks of plug-ins, and the ways of execution by name."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from jaxtrain.plugin import Table

if TYPE_CHECKING:
    from jaxtrain.run.attempt import Job
    from jaxtrain.run.setup import Execution

# Called in every process, one after another, once a run has reached its end.
CALLBACKS: "Table[Callable[[Job], None]]" = Table("callbacks", {})
# What holds the model and runs its steps: one mesh that holds all of it, or stages.
EXECUTIONS: "Table[type[Execution]]" = Table(
    "executions", {"whole": "jaxtrain.run.programs:Whole"}
)
