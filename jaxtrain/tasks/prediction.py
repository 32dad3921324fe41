"""Prediction for one image: table row, JSON response, drawing."""

from typing import Any, NamedTuple

import numpy as np

SEPARATOR = ";"  # Separator of several labels in one table cell.
Row = dict[str, Any]


class AnswerParts(NamedTuple):
    """Description of the responses of `serve`.

    Attributes:
      kind: Plural noun for the items of a response, such as "classes".
      names: Names of the items; () if items have no names.
      health: JSON values in the response to `GET /health`, by name.
      num_ranked: Largest `topk` of a request; 0 if classes are not ranked.
    """

    kind: str
    names: tuple[str, ...]
    health: dict[str, Any]
    num_ranked: int = 0


class Prediction:
    """Base class of predictions for one image, on the host.

    Attributes:
      boxes: Predicted boxes; None for models without boxes.
    """

    boxes: Any = None

    def row(self) -> Row:
        """Values of the table columns (`OutputDecoder.columns`), by name."""
        return {}

    def cells(self) -> tuple[str, ...]:
        """Texts for the columns of the console table (`OutputDecoder.heads`)."""
        return ()

    def json(self, topk: int) -> dict[str, Any]:
        """Server response as JSON values.

        Args:
          topk: Number of classes to return, if classes are ranked.
        """
        raise NotImplementedError

    def draw(self, image: np.ndarray) -> np.ndarray | None:
        """Draw the prediction on the image; None if it cannot be drawn.

        Args:
          image: Image at the size of its file, uint8 (H, W, 3).
        """
        del image
        return None

    def caption(self) -> str:
        """One-line caption of a Grad-CAM heatmap for the most likely class."""
        raise NotImplementedError


def plain(x: Any) -> float:
    """Convert a NumPy scalar to the Python float with the same shortest repr."""
    return float(str(x))
