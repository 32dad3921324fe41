"""Evaluation of a trained model, and optional parts of plug-ins."""

from typing import TYPE_CHECKING

from jaxtrain.plugin import Table

if TYPE_CHECKING:
    from jaxtrain.tools.evaluation.parts import EvaluationPart

# Key of the result -> part, in order of execution.
PARTS: "Table[type[EvaluationPart]]" = Table("evaluations", {})
