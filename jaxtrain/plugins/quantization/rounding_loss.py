"""The cost of 8 bits: in the metric of a task on labelled images, or in classes."""

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
    """A number of a model in floats, and of the same model in 8 bits.

    Attributes:
      name: Name of the number.
      before: Its value of the model in floats.
      after: Its value of the model in 8 bits.
      higher: Whether larger values are better.
      images: Images that it is of, in words.
    """

    name: str
    before: float
    after: float
    higher: bool
    images: str

    @property
    def drop(self) -> float:
        """How much worse the value becomes, as a part of the one before."""
        worse = self.before - self.after if self.higher else self.after - self.before
        return worse / abs(self.before) if self.before else 0.0

    def describe(self) -> str:
        """Return both values in words."""
        return f"{self.before:.4f} -> {self.after:.4f} on {self.images}"


def rounding_loss(
    model: TrainedModel, found: Rounded, run: Path | None, most: int
) -> RoundingLoss | None:
    """Return what rounding has cost; None: the model tells no classes, without labels.

    Args:
      model: Model in floats.
      found: The model in 8 bits.
      run: Folder of a run whose labelled images they are evaluated on; None: there is
        none, and `found.agreement` counts.
      most: Number of labelled images at most.

    Raises:
      UntrustedError: the run names code that nobody has allowed to run.
    """
    measured = None if run is None else _on_labels(model, found.model, run, most)
    if measured is None and found.agreement is not None:
        images = "the images that were compared"
        return RoundingLoss("classes kept", 1.0, found.agreement, True, images)
    return measured


def check_loss(loss: RoundingLoss | None, allowed: float) -> None:
    """Refuse a model that has lost too much.

    Args:
      loss: What rounding has cost.
      allowed: Drop that is allowed at most.

    Raises:
      UserError: it has lost more, or its value is not a number.
    """
    if loss is None or loss.drop <= allowed:  # NaN is not.
        return
    raise UserError(
        f"--max-drop {allowed:g}: {loss.name} {loss.describe()}, from floats to 8 "
        f"bits, is {loss.drop:.1%} worse, and nothing was written: train on with "
        "rounding (--model.quantize int8 --model.pretrained RUN), choose another "
        "--calibration or --images, or a larger --max-drop"
    )


def labelled_run(workdir: Path, given: Path | None) -> Path | None:
    """Return the run whose labels judge: that of `--images`, or the model's own."""
    places = (place for place in (given, workdir) if place is not None)
    runs = (p for p in places if (p / CONFIG).is_file() and is_run(p))
    return next(runs, None)


def _on_labels(
    model: TrainedModel, rounded: TrainedModel, run: Path, most: int
) -> RoundingLoss | None:
    """Return the main metric of the task; None: no labels can be had, or it is none."""
    config = read_run(run)
    check_own(config, *code_of_model(), "data.source")
    for split in ("validation", "test"):
        try:
            subject, source = open_subject(model, config, config.data, split)
        except UntrustedError:
            raise
        except (OSError, ValueError):  # There is no such split, or it is gone.
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
