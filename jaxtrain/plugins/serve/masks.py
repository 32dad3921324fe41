"""What a request gets of the classes of the pixels of an image."""

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxtrain.inference.class_maps import in_colours


def mask_answer(
    mask: np.ndarray, names: Sequence[str], num_shown: int
) -> dict[str, Any]:
    """Return JSON values: the mask as PNG, and the shares of its largest classes.

    Args:
      mask: Class of each pixel, as the model saw the image, uint8 (rows, columns).
      names: Names of the classes.
      num_shown: Number of classes at most.
    """
    counts = np.bincount(mask.ravel(), minlength=len(names))
    order = np.argsort(-counts, kind="stable")[:num_shown]
    file = io.BytesIO()
    in_colours(mask).save(file, "PNG", compress_level=1)
    return {
        "size": [*mask.shape],
        "mask_png": base64.b64encode(file.getvalue()).decode(),
        "classes": [
            {"index": i, "label": names[i], "share": counts[i].item() / mask.size}
            for i in order.tolist()
            if counts[i]
        ],
    }
