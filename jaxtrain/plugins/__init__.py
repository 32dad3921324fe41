"""Capabilities outside the core, one folder each; see `jaxtrain.plugin`."""

NAMES = (
    "adversarial",
    "robustness",
    "distillation",
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
