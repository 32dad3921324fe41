"""`main.py predict --coco`: write the predicted boxes to a COCO results file."""

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
class BoxArguments:
    """Options of `predict` for detection models."""

    coco: Path | None = field(
        None,
        help="Output .json file for the boxes of a detection model, in COCO's results "
        "format.",
    )
    coco_images: Path | None = field(
        None,
        help="With --coco: COCO .json file that gives the image ids; None: the ids in "
        "the data set of the run, else numeric file names, else 1, 2, 3, ...",
    )


class Boxes(PredictionPart):
    """Writer of predicted boxes in COCO's results format."""

    Options = BoxArguments
    paths = ("coco",)

    @staticmethod
    def check(arguments: BoxArguments) -> None:
        if arguments.coco is not None and arguments.coco.suffix != ".json":
            raise UserError(f"--coco {arguments.coco}: expected a .json file")
        if arguments.coco_images is not None and arguments.coco is None:
            raise UserError(
                f"--coco-images {arguments.coco_images} has no effect without --coco: "
                "leave --coco-images out"
            )

    @staticmethod
    def prepare(
        arguments: Any, model: "TrainedModel", names: "FileNames"
    ) -> "list[PredictionFile]":
        if arguments.coco is None:
            return []
        from jaxtrain.plugins.detection import box_sinks

        model.decoder.check_boxes(
            f"--coco: task = {model.description.task!r} predicts no boxes; leave "
            "--coco out"
        )
        listed_in = arguments.coco_images, arguments.workdir
        return [box_sinks.coco_results(arguments.coco, model, names, *listed_in)]
