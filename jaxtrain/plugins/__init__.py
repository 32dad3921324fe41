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
    "packed",
    "embedding",
    "self_supervised",
    "averaging",
    "onnx",
    "litert",
    "serve",
)
