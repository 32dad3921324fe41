"""Boxes that are found in an ONNX file: as `fcos.detect` finds them."""

from typing import Any

import jax
import numpy as np
import pytest

from jaxtrain.plugins.detection import fcos
from jaxtrain.plugins.onnx.onnx_file import emit

onnxruntime: Any = pytest.importorskip("onnxruntime")
LIMITS = {"num": 40, "keep": 12, "score_threshold": 0.3, "nms_threshold": 0.5}
RNG = np.random.default_rng(0)


def candidates(num: int, classes: int) -> np.ndarray:
    """Return boxes around a few places, and scores with ties, (5, num, 4 + classes)."""
    middles = RNG.integers(8, 56, (5, 6, 2))[:, RNG.integers(0, 6, num)]
    sides = RNG.integers(8, 24, (5, num, 2))
    middles = middles + RNG.integers(-3, 4, (5, num, 2))
    boxes = np.concatenate([middles - sides / 2, middles + sides / 2], -1)
    # In steps of 1/32, exact in float32; the last image has nothing that is enough.
    scores = RNG.integers(0, 33, (5, num, classes)) / 32
    scores[-1] /= 8
    return np.concatenate([boxes, scores], -1).astype(np.float32)


@pytest.mark.parametrize(
    ("num", "classes", "limits"),
    [
        (50, 3, LIMITS),
        # Of one class; fewer places than are wanted; nothing overlaps too much.
        (50, 1, {**LIMITS, "num": 300, "keep": 100}),
        (50, 3, {**LIMITS, "nms_threshold": 1.0}),
    ],
)
def test_onnx_finds_the_same_boxes(num: int, classes: int, limits: dict[str, Any]):
    given = candidates(num, classes)
    model = emit(
        lambda images: images[..., 0],
        (num, 4 + classes, 1),
        dtype=np.float32,
        names=("images", "detections"),
        limits=limits,
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    assert session.get_outputs()[0].shape == ["batch", limits["keep"], 6]
    (found,) = session.run(None, {"images": given[..., None]})
    expected = jax.jit(lambda x: fcos.detect(x[..., :4], x[..., 4:], **limits))(given)
    np.testing.assert_array_equal(found[..., :4], expected["boxes"])
    np.testing.assert_array_equal(found[..., 4], expected["scores"])
    np.testing.assert_array_equal(found[..., 5], expected["classes"])
    num_found = (found[..., 4] > 0).sum(1)
    assert num_found[-1] == 0 and (num_found[:-1] > 1).all()
    enough = (given[..., 4:] >= limits["score_threshold"]).sum((1, 2))
    assert (num_found <= np.minimum(enough, limits["keep"])).all()
    assert classes > 1 or (num_found[:-1] < enough[:-1]).all(), "some overlap"
