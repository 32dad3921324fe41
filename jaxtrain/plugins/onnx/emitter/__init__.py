"""From a JAX function of images to an ONNX graph, over one of our own.

`trace` reads the jaxpr of the function into a graph whose images lie as in JAX (NHWC),
`simplify` folds and recognises what runtimes have operators for, `operators` decides
how each array lies (ONNX's convolutions take NCHW) and writes operators of ONNX.
`compute` makes it a function of JAX again, for LiteRT's converter.
"""
