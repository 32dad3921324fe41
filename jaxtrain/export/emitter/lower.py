"""Decide how each array lies, and write the operators of ONNX.

ONNX's convolutions and pools take (batch, channels, rows, columns). What follows one
stays in that order, and a transpose is written only where an operator needs another:
for a ResNet, once, at its input.
"""

from jaxtrain.export.emitter import operators
from jaxtrain.export.emitter.graph import Node, count_uses, ordered
from jaxtrain.export.emitter.layout import channels_first, straight
from jaxtrain.export.emitter.lowering import Lowering
from jaxtrain.export.emitter.write import Writer


def lower(images: Node, output: Node, names: tuple[str, str], writer: Writer) -> None:
    """Write a graph.

    Args:
      images: Input of the graph.
      output: Output of the graph, (batch, outputs).
      names: Names of the input and the output.
      writer: Writer that takes the operators.
    """
    lowering = Lowering(writer)
    count_uses(output)
    writer.input(names[0], images)
    lowering.put(images, straight(len(images.shape)), names[0])
    nodes = list(ordered(output))
    # Transposed as they come: as bytes, where they are.
    if any(node.op in ("Conv", "MaxPool", "AveragePool") for node in nodes):
        order = channels_first(len(images.shape))
        lowering.put(images, order, lowering.get(images, order), first=True)
    for node in nodes:
        if node is not images and not node.is_constant:
            rule = operators.RULES.get(node.op, operators.on_elements)
            name, order = rule(lowering, node)
            lowering.put(node, order, name)
    writer.output(names[1], lowering.get(output), output)
