"""Capabilities outside the core, one folder each; see `jaxtrain.plugin`."""

NAMES = (
    "report",
    "doctor",
    "compact",
    "quantization",
    "plan",
    "onnx",
    "litert",
    "serve",
)
