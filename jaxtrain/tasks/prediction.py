"""Predictions for one image: a row, an answer, a picture."""

from typing import Any, NamedTuple

import numpy as np

SEPARATOR = ";"  # Between the labels of an image in one cell of a table.
Row = dict[str, Any]


class AnswerParts(NamedTuple):
    """Parts of the answers of a server.

    Attributes:
      kind: Plural noun of the parts, such as "classes".
      names: Names of the parts; () where they have none.
      health: JSON values of `GET /health`.
      num_ranked: Number of classes of which a request may ask for the first; 0 where
        none are ranked.
    """

    kind: str
    names: tuple[str, ...]
    health: dict[str, Any]
    num_ranked: int = 0


class Prediction:
    """Prediction for one image, on the host. By default it has no row and no answer.

    Attributes:
      boxes: Boxes in the image, of a decoder that finds any; else None.
    """

    boxes: Any = None

    def row(self) -> Row:
        """Return the values of the decoder's `columns`."""
        return {}

    def cells(self) -> tuple[str, ...]:
        """Return the texts below the decoder's `heads`."""
        return ()

    def json(self, topk: int) -> dict[str, Any]:
        """Return the server's answer as JSON values.

        Args:
          topk: Number of classes, where the prediction ranks any.
        """
        raise NotImplementedError

    def draw(self, image: np.ndarray) -> np.ndarray | None:
        """Return the image with the prediction on it; None: it has no place there.

        Args:
          image: Image in its own size, uint8 (H, W, 3).
        """
        del image
        return None

    def caption(self) -> str:
        """Return one line below a Grad-CAM of the likeliest class."""
        raise NotImplementedError


def plain(x: Any) -> float:
    """Return the shortest number that is a NumPy scalar in its own dtype."""
    return float(str(x))
