"""Prediction for one image: table row, JSON response, drawing."""

from typing import Any, NamedTuple

import numpy as np

SEPARATOR = ";"  # Separator of several labels in one table cell.
Row = dict[str, Any]


class AnswerParts(NamedTuple):
    """Description of a server's responses.

    Attributes:
      kind: Plural noun of the parts, such as "classes".
      names: Names of the parts; () without names.
      health: JSON values of `GET /health`.
      num_ranked: Largest `topk` of a request; 0 without ranked classes.
    """

    kind: str
    names: tuple[str, ...]
    health: dict[str, Any]
    num_ranked: int = 0


class Prediction:
    """Prediction for one image, on the host; by default without row and JSON.

    Attributes:
      boxes: Boxes in the image; None for other decoders.
    """

    boxes: Any = None

    def row(self) -> Row:
        """Values of the decoder's `columns`."""
        return {}

    def cells(self) -> tuple[str, ...]:
        """Texts below the decoder's `heads`."""
        return ()

    def json(self, topk: int) -> dict[str, Any]:
        """Server response as JSON values.

        Args:
          topk: Number of classes, for ranked classes.
        """
        raise NotImplementedError

    def draw(self, image: np.ndarray) -> np.ndarray | None:
        """Draw the prediction on the image; None if it cannot be drawn.

        Args:
          image: Image in its stored size, uint8 (H, W, 3).
        """
        del image
        return None

    def caption(self) -> str:
        """Caption of a Grad-CAM of the most likely class, one line."""
        raise NotImplementedError


def plain(x: Any) -> float:
    """Shortest Python number that equals a NumPy scalar in its dtype."""
    return float(str(x))
