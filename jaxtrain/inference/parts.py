"""Interface of optional prediction files with command-line options.

Parts are imported before JAX: import JAX inside methods.
"""

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from jaxtrain.data.image_files import FileNames
    from jaxtrain.inference.model import TrainedModel
    from jaxtrain.inference.sinks import PredictionFile


class PredictionPart:
    """Optional prediction files of some models.

    Attributes:
      Options: Frozen dataclass of the options added to `main.py predict`, all with
        defaults.
      paths: Names of the options that are output paths.
    """

    Options: ClassVar[type]
    paths: ClassVar[tuple[str, ...]]

    @staticmethod
    def check(arguments: Any) -> None:
        """Check the options before the model is loaded.

        Args:
          arguments: Arguments of the command, with the fields of `Options`.

        Raises:
          UserError: The options contradict each other.
        """

    @staticmethod
    def needs_outputs(arguments: Any) -> bool:
        """Whether batches must include `outputs`, the raw outputs of the model."""
        del arguments
        return False

    @staticmethod
    def prepare(
        arguments: Any, model: "TrainedModel", names: "FileNames"
    ) -> "list[PredictionFile]":
        """Return the requested files before any image is predicted.

        Raises:
          UserError: The model has no such predictions, or a file cannot be written for
            these images.
        """
        raise NotImplementedError
