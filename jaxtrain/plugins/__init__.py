"""Capabilities outside the core, one folder each; see `jaxtrain.plugin`.

The order is that of names in help, of tasks that `new` tries, and of metrics in pages.
"""

NAMES = (
    # What is learnt, and how.
    *("segmentation", "detection", "embedding", "self_supervised", "sound"),
    *("adversarial", "distillation", "pruning"),
    # On which devices.
    *("pipeline", "cpu_convolutions"),
    # Before and beside a run.
    *("doctor", "packed", "plan", "report", "sweep", "trackers", "profiler"),
    # With what was trained.
    *("robustness", "averaging", "compact", "quantization"),
    *("onnx", "litert", "serve"),
)
