"""Detection: boxes of things in an image, and their classes."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="detection",
    models={"fcos": "jaxtrain.plugins.detection.model:FCOS"},
    tasks={"detection": "jaxtrain.plugins.detection.task:Detection"},
)
