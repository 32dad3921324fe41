"""Box decoding in ONNX operators, equivalent to `fcos.detect`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxtrain.plugins.onnx.emitter.graph import Node
from jaxtrain.plugins.onnx.emitter.write import Order, Writer, straight

DETECT = "Detect"


def detected(candidates: Node, limits: Mapping[str, Any]) -> Node:
    """Create a node of detections, float32 (batch, keep, 6): box, score and class.

    Args:
      candidates: Boxes and scores of all positions, (batch, positions, 4 + classes).
      limits: `Finder.limits` of the model.
    """
    shape = candidates.shape[0], limits["keep"], 6
    return Node(DETECT, (candidates,), shape, np.dtype(np.float32), dict(limits))


def write_detect(to: Writer, node: Node) -> tuple[str, Order]:
    """Write a `DETECT` node as TopK, NonMaxSuppression, and a second TopK."""
    (x,), limits = node.inputs, node.attributes
    _, places, size = x.shape
    num_classes = size - 4
    num = min(limits["num"], places * num_classes)
    keep = min(limits["keep"], num)
    add, number = to.add, to.constant

    def floats(values: Any) -> str:
        return number(values, np.float32)

    def part(start: int, stop: int) -> str:
        return add("Slice", [to.get(x), number([start]), number([stop]), number([2])])

    def unsqueezed(name: str, dim: int) -> str:
        return add("Unsqueeze", [name, number([dim])])

    scores = to.reshape(part(4, size), (None, places * num_classes))
    best, place = to.add_pair("TopK", [scores, number([num])])
    kind = add("Mod", [place, number(num_classes)])
    place = unsqueezed(add("Div", [place, number(num_classes)]), 2)
    boxes = add("GatherND", [part(0, 4), place], batch_dims=1)
    # Suppression is within a class, in descending order of scores.
    kinds = number(np.arange(num_classes)[:, None])
    is_kind = add("Equal", [unsqueezed(kind, 1), kinds])
    ranks = add("Where", [is_kind, floats(np.arange(num, 0, -1)), floats(0)])
    given = [boxes, ranks, number([num]), floats([limits["nms_threshold"]])]
    stays = add("NonMaxSuppression", [*given, floats([0.5])])
    rows = add("Gather", [stays, number([0, 2])], axis=1)
    count = add("Gather", [add("Shape", [stays]), number([0])])
    ones = add("Expand", [floats(1), count])
    there = add("ScatterND", [add("Mul", [best, floats(0)]), rows, ones])
    enough = add("GreaterOrEqual", [best, floats(limits["score_threshold"])])
    best = add("Where", [enough, add("Mul", [best, there]), floats(0)])
    best, order = to.add_pair("TopK", [best, number([keep])])
    boxes = add("GatherND", [boxes, unsqueezed(order, 2)], batch_dims=1)
    kind = add("GatherElements", [kind, order], axis=1)
    kind = unsqueezed(add("Cast", [kind], to=to.type_of(np.float32)), 2)
    best = unsqueezed(best, 2)
    rows = add("Concat", [boxes, best, kind], axis=2)
    none = np.array([0, 0, 0, 0, 0, -1])
    found = add("Where", [add("Greater", [best, floats(0)]), rows, floats(none)])
    missing = limits["keep"] - keep
    if missing:
        batch = add("Gather", [add("Shape", [found]), number([0])])
        shape = add("Concat", [batch, number([missing, 6])], axis=0)
        found = add("Concat", [found, add("Expand", [floats(none), shape])], axis=1)
    return found, straight(3)
