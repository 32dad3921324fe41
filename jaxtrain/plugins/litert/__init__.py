"""LiteRT files, for phones and small devices."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="litert",
    subject="use elsewhere",
    # For the traced and simplified graph of an int8 model.
    requires=("onnx",),
    exporters={"litert": "jaxtrain.plugins.litert.litert:LiteRTFile"},
    hints={"formats": "litert: for phones and small devices"},
)
