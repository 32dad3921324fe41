"""Quality drop of a quantized model: drop of a metric, or changed predictions."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from jaxtrain.config import check_own, code_of_model
from jaxtrain.config.recipe import CONFIG, is_run, read_run
from jaxtrain.errors import UntrustedError, UserError
from jaxtrain.export.images import spread
from jaxtrain.inference.model import TrainedModel
from jaxtrain.plugins.quantization.quantize import Rounded
from jaxtrain.tasks.task_metrics import main_goal
from jaxtrain.tools.evaluation.passes import Pass
from jaxtrain.tools.evaluation.subject import open_subject


@dataclass(frozen=True)
class RoundingLoss:
    """Metric before and after quantization.

    Attributes:
      name: Name of the metric.
      before: Metric of the float model.
      after: Metric of the quantized model.
      higher: Whether higher values are better.
      images: Description of the evaluated images.
    """

    name: str
    before: float
    after: float
    higher: bool
    images: str

    @property
    def drop(self) -> float:
        """Relative drop of the metric, negative if the metric improves."""
        worse = self.before - self.after if self.higher else self.after - self.before
        return worse / abs(self.before) if self.before else 0.0

    def describe(self) -> str:
        """Describe the metric before and after quantization."""
        return f"{self.before:.4f} -> {self.after:.4f} on {self.images}"


def rounding_loss(
    model: TrainedModel, found: Rounded, run: Path | None, most: int
) -> RoundingLoss | None:
    """Measure the quality drop of quantization.

    Args:
      model: The float model.
      found: The quantized model.
      run: Workdir of a run with labelled images to evaluate; None uses
        `found.agreement`.
      most: Maximum number of labelled images.

    Returns:
      The main metric on labelled images, else the agreement of the models; None if
      neither is available.

    Raises:
      UntrustedError: The run names custom code that is not trusted.
    """
    measured = None if run is None else _on_labels(model, found.model, run, most)
    if measured is None and found.agreement is not None:
        images = "the compared images"
        return RoundingLoss("unchanged classes", 1.0, found.agreement, True, images)
    return measured


def check_loss(loss: RoundingLoss | None, allowed: float) -> None:
    """Check the quality drop of a quantized model.

    Args:
      loss: Metric before and after quantization; None passes the check.
      allowed: Maximum relative drop.

    Raises:
      UserError: The relative drop exceeds `allowed`, or is NaN.
    """
    if loss is None or loss.drop <= allowed:  # NaN fails the comparison.
        return
    raise UserError(
        f"--max-drop {allowed:g}: {loss.name} {loss.describe()} is {loss.drop:.1%} "
        "worse in int8 than in floating point, so no model was written. Fine-tune with "
        "quantization (--model.quantize int8 --model.pretrained RUN), choose another "
        "--calibration or --images, or increase --max-drop"
    )


def labelled_run(workdir: Path, given: Path | None) -> Path | None:
    """Return the workdir of a run with labels; None if neither argument is a run.

    Args:
      workdir: Path in `--workdir`, a run or a model.
      given: Path in `--images`, which takes precedence, or None.
    """
    places = (place for place in (given, workdir) if place is not None)
    runs = (p for p in places if (p / CONFIG).is_file() and is_run(p))
    return next(runs, None)


def _on_labels(
    model: TrainedModel, rounded: TrainedModel, run: Path, most: int
) -> RoundingLoss | None:
    """Evaluate the main metric on a run's labelled images; None if unavailable."""
    config = read_run(run)
    check_own(config, *code_of_model(), "data.source")
    for split in ("validation", "test"):
        try:
            subject, source = open_subject(model, config, config.data, split)
        except UntrustedError:
            raise
        except (OSError, ValueError):  # The split is missing.
            continue
        source = source.subset(spread(len(source), most))
        goal, values = main_goal(subject.task), []
        for one in (model, rounded):
            one_pass = Pass(subject=dataclasses.replace(subject, model=one))
            values.append(one_pass(source, split).values.get(goal.metric))
        if any(not isinstance(x, int | float) for x in values):
            return None
        images = f"{len(source):,} {split} images"
        before, after = map(float, values)
        return RoundingLoss(goal.metric, before, after, goal.higher, images)
    return None
