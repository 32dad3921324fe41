"""What is asked of an evaluation, and what does not go together."""

from dataclasses import dataclass
from pathlib import Path

from jaxtrain.errors import UserError
from jaxtrain.evaluation import robustness
from jaxtrain.evaluation.attacks import Attack
from jaxtrain.evaluation.corruptions.corrupt import check_shape
from jaxtrain.evaluation.corruptions.levels import levels
from jaxtrain.evaluation.passes import Subject
from jaxtrain.evaluation.views import VIEWS, View, plain


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is wanted of an evaluation.

    Attributes:
      split: which images.
      tta: the views that are averaged; None: plain images.
      calibrate: fit a temperature on the run's validation split.
      corruptions: go over the split under each corruption, too.
      baseline: an evaluation whose errors under corruptions are divided by.
      attack: go over the split under this attack, too.
      ood: a source of images of something else.
    """

    split: str = "test"
    tta: str | None = None
    calibrate: bool = False
    corruptions: bool = False
    baseline: Path | None = None
    attack: Attack | None = None
    ood: str | None = None

    @property
    def view(self) -> View:
        """What the model is shown of an image."""
        return plain if self.tta is None else VIEWS[self.tta]


def check(asked: Asked, subject: Subject) -> None:
    """Refuse what needs classes of a task without, and what does not go together.

    Raises:
      UserError: something of it is asked for.
    """
    needs = {
        f"--tta {asked.tta}": asked.tta is not None,
        "--calibrate": asked.calibrate,
        "--corruptions": asked.corruptions,
        f"--attack {asked.attack.name if asked.attack else ''}": asked.attack,
        f"--ood {asked.ood}": asked.ood is not None,
    }
    given = [option for option, is_given in needs.items() if is_given]
    task = subject.model.description.task
    if given and not subject.task.one_class_an_image:
        raise UserError(
            f"{given[0]}: task = {task!r} has no classes that it would be about; leave "
            "the option out"
        )
    if asked.ood is not None and asked.tta is not None:
        raise UserError(
            f"--ood {asked.ood} with --tta {asked.tta}: the energy is one of logits, "
            "which averaged probabilities have not; leave one of them out"
        )
    if asked.calibrate and asked.split in ("validation", "all"):
        raise UserError(
            f"--calibrate with --split {asked.split}: the temperature is fitted on the "
            "validation split, and would be judged by it; evaluate another split"
        )
    if asked.baseline is not None and not asked.corruptions:
        raise UserError(
            f"--baseline {asked.baseline} has no effect without --corruptions"
        )
    if asked.corruptions:
        check_shape(subject.model.image_shape)
    if asked.baseline is not None:
        table = levels(*subject.model.image_shape[:2])[0]
        robustness.read_baseline(asked.baseline, table)
