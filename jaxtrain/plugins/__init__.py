"""Capabilities outside the core, one folder each; see `jaxtrain.plugin`."""

NAMES = (
    "segmentation",
    "detection",
    "report",
    "sweep",
    "doctor",
    "compact",
    "quantization",
    "plan",
    "onnx",
    "litert",
    "serve",
)
