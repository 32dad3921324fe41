"""Conversion of a JAX function of images to ONNX, by way of an intermediate graph.

`trace` converts the jaxpr to a graph in JAX's layout (NHWC), `simplify` folds constants
and fuses operators, `operators` chooses the layout of each array (ONNX's convolutions
are NCHW) and writes ONNX operators. `compute` converts the graph back to a JAX
function, for LiteRT's converter.
"""
