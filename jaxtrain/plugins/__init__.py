"""Built-in plug-ins, one subpackage each; see `jaxtrain.plugin`.

The order of `NAMES` is the order of plug-ins in help texts, task proposals and docs.
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

# Import `jaxtrain.config` before modules of plug-ins: it imports config sections of
# plug-ins, and modules of plug-ins import `jaxtrain.config`.
import jaxtrain.config  # noqa: E402, F401
