"""Interface of optional parts of an evaluation, such as robustness to attacks.

Modules with subclasses are imported before JAX, so they import JAX inside methods.
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
    """An evaluated split, the input of `EvaluationPart.measure`.

    Attributes:
      subject: Model, task and preprocessing.
      config: Config of the run.
      data: Data config of the evaluation, as passed by the user.
      split: Name of the split, or `all`.
      tta: Name of the test-time augmentation; None for plain images.
      source: Examples of the split.
      evaluate: Compiled evaluation, which retains the arrays that the parts request.
      result: Result of this evaluation on the split.
      progress: Function that prints a progress message.
    """

    subject: "Subject"
    config: "Config"
    data: "DataConfig"
    split: str
    tta: str | None
    source: "Source"
    evaluate: "Pass"
    result: "PassResult"
    progress: Callable[[str], None]


class EvaluationPart:
    """Base class of optional parts of an evaluation, which add a key to the result.

    Attributes:
      Options: Frozen dataclass of the part's `main.py evaluate` options, with defaults.
    """

    Options: ClassVar[type]

    @classmethod
    def requested(cls, arguments: Any) -> Self | None:
        """Create the part if the command line requests it, or return None.

        Args:
          arguments: Arguments of the command, with the fields of `Options`.

        Raises:
          UserError: The options contradict each other.
        """
        raise NotImplementedError

    def check(self, subject: "Subject", tta: str | None) -> None:
        """Check that the part supports a model, and open required files.

        Args:
          subject: Model, task and preprocessing.
          tta: Name of the test-time augmentation. None for plain images.

        Raises:
          UserError: The part does not support the model.
        """

    def keep(self, outputs: Any) -> dict[str, Any] | None:
        """Return per-example arrays to retain for `measure`, or None. Traced.

        Args:
          outputs: Outputs of the model for a batch.

        Returns:
          Arrays by name, (B, ...) each.
        """
        return None

    def check_values(self, subject: "Subject", values: dict[str, Any]) -> None:
        """Check the metrics of the split. Called before `measure`, which may be slow.

        Raises:
          UserError: The part does not support the metrics.
        """

    def measure(self, evaluated: Evaluated) -> dict[str, Any]:
        """Compute the part's entry in the evaluation result, as JSON values."""
        raise NotImplementedError

    @staticmethod
    def describe(result: dict[str, Any]) -> dict[str, str]:
        """Format the result of `measure` as rows of the console table."""
        raise NotImplementedError


def with_interval(value: float, pair: list[float] | None) -> str:
    """Format a metric, and `pair`, its confidence interval (low, high), if any."""
    return f"{value:.4f}" + (f"  ({pair[0]:.4f} to {pair[1]:.4f})" if pair else "")


def check_takes_images(option: str, subject: "Subject") -> None:
    """Raise UserError about `option` if the inputs of the model are not images."""
    kind = subject.model.description.input
    if not kind.are_images:
        raise UserError(
            f"{option} requires a model of images, but the model takes {kind.noun}s; "
            f"leave {option} out"
        )


def check_classes(option: str, subject: "Subject") -> None:
    """Raise UserError about `option` unless the task has one class per image."""
    if not subject.task.one_class_an_image:
        raise UserError(
            f"{option}: task = {subject.model.description.task!r} does not predict one "
            f"class per image; leave {option} out"
        )
