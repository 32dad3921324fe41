"""Smaller models: whole channels are cut out of a trained one."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="compact",
    subject="changing a trained model",
    requires=("onnx",),  # It times the files of both models.
    model_changes={"channels": "jaxtrain.plugins.compact.channels.cut:with_channels"},
    commands={"compact": "jaxtrain.plugins.compact.command"},
)
