"""Capabilities outside the core, one folder each; see `jaxtrain.plugin`."""

NAMES = ("compact", "quantization", "onnx", "litert", "serve")
