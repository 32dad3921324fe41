"""Capabilities outside the core, one folder each; see `jaxtrain.plugin`.

The order is that of names in help, of tasks that `new` tries, and of metrics in pages.
"""

NAMES = (
    # What is learnt.
    *("segmentation", "detection", "embedding", "self_supervised"),
    # Before and beside a run.
    *("doctor", "packed", "plan", "report", "sweep"),
    # With what was trained.
    *("averaging", "compact", "quantization", "onnx", "litert", "serve"),
)
