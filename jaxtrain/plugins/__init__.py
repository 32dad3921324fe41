"""Capabilities outside the core, one folder each; see `jaxtrain.plugin`."""

NAMES = (
    "report",
    "sweep",
    "doctor",
    "compact",
    "quantization",
    "plan",
    "profiler",
    "trackers",
    "onnx",
    "litert",
    "serve",
)
