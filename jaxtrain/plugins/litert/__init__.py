"""LiteRT files, for phones and small devices."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="litert",
    subject="use elsewhere",
    # An int8 model is exported from the intermediate graph of the ONNX export.
    requires=("onnx",),
    exporters={"litert": "jaxtrain.plugins.litert.litert:LiteRTFile"},
    hints={"formats": "litert: for phones and edge devices"},
)
