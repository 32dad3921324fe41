"""Capabilities outside the core, one folder each; see `jaxtrain.plugin`.

The order is also used for names in help, for proposed tasks, and for metrics in docs.
"""

NAMES = (
    *("segmentation", "detection", "embedding", "self_supervised"),
    *("adversarial", "distillation", "pruning"),
    *("pipeline", "cpu_convolutions"),
    *("sound", "doctor", "packed", "plan"),
    *("report", "sweep", "trackers", "profiler", "robustness"),
    *("averaging", "compact", "quantization"),
    *("onnx", "litert", "serve"),
)

# Its sections are part of the config, and import modules of it.
import jaxtrain.config  # noqa: E402, F401
