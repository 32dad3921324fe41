"""Evaluation of a trained model, and the parts that plug-ins add to it."""

from typing import TYPE_CHECKING

from jaxtrain.plugin import Table

if TYPE_CHECKING:
    from jaxtrain.tools.evaluation.parts import EvaluationPart

# Key of the result -> the part that computes it, in the order in which they run.
PARTS: "Table[type[EvaluationPart]]" = Table("evaluations", {})
