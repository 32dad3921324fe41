"""Evaluation of a trained model, and the registry of optional evaluation parts."""

from typing import TYPE_CHECKING

from jaxtrain.plugin import Table

if TYPE_CHECKING:
    from jaxtrain.tools.evaluation.parts import EvaluationPart

# Key in the evaluation result -> part that computes its value, in order of execution.
PARTS: "Table[type[EvaluationPart]]" = Table("evaluations", {})
