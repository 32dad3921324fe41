"""Optional parts of an evaluation: their command-line options, and what they compute.

A part is imported before JAX is: it imports what needs JAX inside its methods.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from jaxtrain.errors import UserError

if TYPE_CHECKING:
    from jaxtrain.config import Config, DataConfig
    from jaxtrain.data.sources import Source
    from jaxtrain.tools.evaluation.passes import Pass, PassResult, Subject


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """A split after its pass, for the parts that follow.

    Attributes:
      subject: Model, its task, and how images are read.
      config: Config of the run.
      data: Config of the images as it was given.
      split: Name of the split, or `all`.
      tta: Name of the views that are averaged; None means plain images.
      source: Examples of the split.
      whole: The pass, compiled, with what every part keeps.
      found: Its result.
      tell: Function that takes lines on what takes long.
    """

    subject: "Subject"
    config: "Config"
    data: "DataConfig"
    split: str
    tta: str | None
    source: "Source"
    whole: "Pass"
    found: "PassResult"
    tell: Callable[[str], None]


class EvaluationPart:
    """Part of an evaluation, with a key of its own in the result.

    Attributes:
      Options: Frozen dataclass with its options of `main.py evaluate`, all with
        defaults.
    """

    Options: ClassVar[type]

    @classmethod
    def requested(cls, arguments: Any) -> Self | None:
        """Return the part that the command line asks for; None: it does not.

        Args:
          arguments: Arguments of the command, with the fields of `Options`.

        Raises:
          UserError: The options contradict each other.
        """
        raise NotImplementedError

    def check(self, subject: "Subject", tta: str | None) -> None:
        """Check that the part suits a model, and open what it needs.

        Raises:
          UserError: It does not.
        """

    def keep(self, outputs: Any) -> dict[str, Any] | None:
        """Return arrays to keep, (B, ...) each, traced; None keeps nothing."""
        return None

    def check_values(self, subject: "Subject", values: dict[str, Any]) -> None:
        """Check the metrics of the split, before all that takes long.

        Raises:
          UserError: The part can make nothing of them.
        """

    def measure(self, evaluated: Evaluated) -> dict[str, Any]:
        """Return the value of its key of the result."""
        raise NotImplementedError

    @staticmethod
    def describe(result: dict[str, Any]) -> dict[str, str]:
        """Return the rows that a person is shown of what `measure` returned."""
        raise NotImplementedError


def with_interval(value: float, pair: list[float] | None) -> str:
    """Return a metric, and its interval if there is one, as people are shown it."""
    return f"{value:.4f}" + (f"  ({pair[0]:.4f} to {pair[1]:.4f})" if pair else "")


def check_pictures(option: str, subject: "Subject") -> None:
    """Refuse an option that is made for pictures to a model of other inputs."""
    kind = subject.model.description.input
    if not kind.are_pictures:
        raise UserError(
            f"{option}: it is made for pictures, and the model {kind.taken}; leave "
            "the option out"
        )


def check_classes(option: str, subject: "Subject") -> None:
    """Refuse an option that needs classes of images to a task without them."""
    if not subject.task.one_class_an_image:
        raise UserError(
            f"{option}: task = {subject.model.description.task!r} has no classes that "
            "it would be about; leave the option out"
        )
