"""`main.py evaluate --ood`: detection of out-of-distribution images."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from jaxtrain.config.metadata import field
from jaxtrain.errors import UserError
from jaxtrain.tools.evaluation.parts import Evaluated, EvaluationPart, check_classes

if TYPE_CHECKING:
    from jaxtrain.data.sources import Source
    from jaxtrain.tools.evaluation.passes import Subject


@dataclass(frozen=True, kw_only=True)
class OutlierArguments:
    """Options of `evaluate` for out-of-distribution detection."""

    ood: str | None = field(
        None,
        help="data.source of out-of-distribution images. The command measures how well "
        "the confidence separates these images from the images of the split.",
    )


class Outliers(EvaluationPart):
    """Out-of-distribution detection; outliers are the images of another data set."""

    Options = OutlierArguments

    def __init__(self, name: str):
        self._name = name
        self._source: Source | None = None

    @classmethod
    def requested(cls, arguments: OutlierArguments) -> Self | None:
        return None if arguments.ood is None else cls(arguments.ood)

    def check(self, subject: "Subject", tta: str | None) -> None:
        from jaxtrain.tools.evaluation.subject import open_other

        check_classes(f"--ood {self._name}", subject)
        if tta is not None:
            raise UserError(
                f"--ood {self._name} with test-time augmentation ({tta}): the energy "
                "score needs logits, but test-time augmentation averages "
                "probabilities; give --tta plain"
            )
        self._source = open_other(self._name, subject.model, subject.data)

    def keep(self, outputs: Any) -> dict[str, Any]:
        from jaxtrain.plugins.robustness import outliers

        return outliers.ordinary(outputs)

    def measure(self, evaluated: Evaluated) -> dict[str, Any]:
        from jaxtrain.plugins.robustness import outliers

        assert self._source is not None, "`check` has opened it"
        key, name = "out_of_distribution", f"--ood {self._name}"
        other = evaluated.evaluate(self._source, name).checked(name).kept.values[key]
        return {
            "source": self._name,
            "num_examples": len(other["energy"]),
            **{
                score: outliers.separation(ours, other[score])
                for score, ours in evaluated.result.kept.values[key].items()
            },
        }

    @staticmethod
    def describe(result: dict[str, Any]) -> dict[str, str]:
        rows = {}
        for score in ("max_softmax", "energy"):
            found = result[score]
            rows[f"{result['source']} by {score}"] = (
                f"AUROC {found['auroc']:.4f}, AUPR {found['aupr_in']:.4f} in, "
                f"{found['aupr_out']:.4f} out, FPR at 95 % TPR "
                f"{found['fpr_at_95_tpr']:.4f}"
            )
        return rows
