"""LiteRT files, for phones and small devices."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="litert",
    subject="use elsewhere",
    # The traced and simplified program of a model in 8 bits.
    requires=("onnx",),
    exporters={"litert": "jaxtrain.plugins.litert.litert:LiteRTFile"},
    hints={"formats": "litert: for phones and small devices"},
)
