"""Quality drop of a quantized model, in the main metric or in equal predictions."""

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
      before: Value of the float model.
      after: Value of the quantized model.
      higher: Whether higher is better.
      images: Description of the evaluated images.
    """

    name: str
    before: float
    after: float
    higher: bool
    images: str

    @property
    def drop(self) -> float:
        """Relative drop of the metric, negative if it improves."""
        worse = self.before - self.after if self.higher else self.after - self.before
        return worse / abs(self.before) if self.before else 0.0

    def describe(self) -> str:
        """Describe the metric before and after quantization."""
        return f"{self.before:.4f} -> {self.after:.4f} on {self.images}"


def rounding_loss(
    model: TrainedModel, found: Rounded, run: Path | None, most: int
) -> RoundingLoss | None:
    """Measure the quality drop of quantization; None without labels and classes.

    Args:
      model: The float model.
      found: The quantized model.
      run: Workdir of a run with labelled images for the evaluation; None uses
        `found.agreement`.
      most: Maximum number of labelled images.

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
      loss: Metric before and after quantization; None passes.
      allowed: Maximum relative drop.

    Raises:
      UserError: The drop is larger, or NaN.
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
    """Workdir of a run that supplies labels; None if neither argument is a run.

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
    """Main metric of the task on labelled images; None if the metric is undefined."""
    config = read_run(run)
    check_own(config, *code_of_model(), "data.source")
    for split in ("validation", "test"):
        try:
            subject, source = open_subject(model, config, config.data, split)
        except UntrustedError:
            raise
        except (OSError, ValueError):  # The split does not exist, or was deleted.
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
