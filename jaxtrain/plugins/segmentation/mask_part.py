"""`main.py predict --masks`: a mask file per image."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtrain.config.metadata import field
from jaxtrain.errors import UserError
from jaxtrain.inference.parts import PredictionPart

if TYPE_CHECKING:
    from jaxtrain.data.image_files import FileNames
    from jaxtrain.inference.model import TrainedModel
    from jaxtrain.inference.sinks import PredictionFile


@dataclass(frozen=True, kw_only=True)
class MaskArguments:
    """Options of `predict` for segmentation models."""

    masks: Path | None = field(
        None,
        help="Segmentation models: new directory for the predicted masks. Each image "
        "has two files of its size: the mask (.png, with a palette), and the image "
        "with the mask drawn over it (.overlay.png).",
    )


class PredictedMasks(PredictionPart):
    """Output of `predict --masks`: a directory with the mask of each image."""

    Options = MaskArguments
    paths = ("masks",)

    @staticmethod
    def needs_outputs(arguments: MaskArguments) -> bool:
        return arguments.masks is not None

    @staticmethod
    def prepare(
        arguments: Any, model: "TrainedModel", names: "FileNames"
    ) -> "list[PredictionFile]":
        if arguments.masks is None:
            return []
        from jaxtrain.plugins.segmentation.decoder import MaskDecoder
        from jaxtrain.plugins.segmentation.mask_sink import mask_files

        if not isinstance(model.decoder, MaskDecoder):
            raise UserError(
                f"--masks: task = {model.description.task!r} predicts no masks; leave "
                "--masks out"
            )
        assert model.decoder.facts.fit is not None
        return [mask_files(arguments.masks, names, model.decoder.facts.fit)]
