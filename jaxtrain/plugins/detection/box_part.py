"""`main.py predict --coco`: a file of the boxes that a model finds."""

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
    """Options of `predict` on boxes."""

    coco: Path | None = field(
        None,
        help="Of a model of boxes: file, .json, for all boxes, as COCO's results.",
    )
    coco_images: Path | None = field(
        None,
        help="With --coco: file, .json, of a list as COCO's that has these images, "
        "and so their ids; None: those of the run's data, or numbers.",
    )


class Boxes(PredictionPart):
    """A file of COCO's results."""

    Options = BoxArguments
    paths = ("coco",)

    @staticmethod
    def check(arguments: BoxArguments) -> None:
        if arguments.coco is not None and arguments.coco.suffix != ".json":
            raise UserError(f"--coco {arguments.coco}: it is JSON, such as boxes.json")
        if arguments.coco_images is not None and arguments.coco is None:
            raise UserError(
                f"--coco-images {arguments.coco_images} has no effect without --coco: "
                "leave it out"
            )

    @staticmethod
    def prepare(
        arguments: Any, model: "TrainedModel", names: "FileNames"
    ) -> "list[PredictionFile]":
        if arguments.coco is None:
            return []
        from jaxtrain.plugins.detection import box_sinks

        model.decoder.check_boxes(
            f"--coco: task = {model.description.task!r} finds no boxes; leave it out"
        )
        listed_in = arguments.coco_images, arguments.workdir
        return [box_sinks.coco_results(arguments.coco, model, names, *listed_in)]
