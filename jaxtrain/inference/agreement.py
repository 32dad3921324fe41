"""How far one model tells the classes that another tells."""

import numpy as np

# Share of the pixels below which a class of pixels is left out: the last bit may decide
# over the few that it has.
RARE = 1e-3


def class_agreement(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the share of examples that get the same class by the largest outputs."""
    return float((ours.argmax(-1) == theirs.argmax(-1)).mean())


def pixel_agreement(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the share of its pixels that a class keeps, the mean over the classes.

    So a class counts as much as the one that most pixels have.

    Args:
      ours: Outputs of a model, (N, H, W, classes).
      theirs: Outputs of the model whose classes are kept, or not.
    """
    classes = theirs.argmax(-1).ravel()
    same = ours.argmax(-1).ravel() == classes
    pixels = np.bincount(classes)
    kept = np.bincount(classes, same, len(pixels))
    common = pixels >= max(1, RARE * len(classes))
    return float((kept[common] / pixels[common]).mean())
