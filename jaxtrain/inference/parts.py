"""Optional files of `predict`: their command-line options, and who writes them.

A part is imported before JAX is: it imports what needs JAX inside its methods.
"""

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from jaxtrain.data.image_files import FileNames
    from jaxtrain.inference.model import TrainedModel
    from jaxtrain.inference.sinks import PredictionFile


class PredictionPart:
    """Files of predictions that some models have.

    Attributes:
      Options: Frozen dataclass with its options of `main.py predict`, all with
        defaults.
      paths: Those that name a file or a folder to write.
    """

    Options: ClassVar[type]
    paths: ClassVar[tuple[str, ...]]

    @staticmethod
    def check(arguments: Any) -> None:
        """Check the options, before the model is loaded.

        Args:
          arguments: Arguments of the command, with the fields of `Options`.

        Raises:
          UserError: They contradict each other.
        """

    @staticmethod
    def needs_outputs(arguments: Any) -> bool:
        """Whether batches must hold `outputs`, the raw outputs of the model."""
        del arguments
        return False

    @staticmethod
    def prepare(
        arguments: Any, model: "TrainedModel", names: "FileNames"
    ) -> "list[PredictionFile]":
        """Return the files that are asked for, before any image is predicted.

        Raises:
          UserError: The model has no such predictions, or a file cannot be written for
            these images.
        """
        raise NotImplementedError
