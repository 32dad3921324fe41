"""Interface of plug-ins that add prediction files and options to `main.py predict`.

Subclasses are imported before JAX: import JAX inside methods.
"""

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from jaxtrain.data.image_files import FileNames
    from jaxtrain.inference.model import TrainedModel
    from jaxtrain.inference.sinks import PredictionFile


class PredictionPart:
    """Optional prediction files of one kind, such as masks, and their options.

    Attributes:
      Options: Frozen dataclass of options added to `main.py predict`; all have
        defaults.
      paths: Names of the options whose values are output paths.
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
        """Whether `ImageBatch.results` must include the raw outputs of the model."""
        del arguments
        return False

    @staticmethod
    def prepare(
        arguments: Any, model: "TrainedModel", names: "FileNames"
    ) -> "list[PredictionFile]":
        """Create the writers of the requested files, before the first prediction.

        Args:
          arguments: Arguments of the command, with the fields of `Options`.
          model: Model that predicts.
          names: Paths of the images.

        Raises:
          UserError: The model does not support a requested file, or the file cannot be
            written for these images.
        """
        raise NotImplementedError
