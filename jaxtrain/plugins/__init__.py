"""Built-in plug-ins, one subpackage each; see `jaxtrain.plugin`.

Help texts, task proposals and the metrics in the docs list plug-ins in this order.
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

# The config includes sections of plug-ins, whose modules import `jaxtrain.config`: it
# must be imported first.
import jaxtrain.config  # noqa: E402, F401
