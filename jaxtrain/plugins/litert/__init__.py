"""Export to LiteRT, for phones and edge devices."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="litert",
    subject="use elsewhere",
    # The LiteRT export of int8 models uses the ONNX export's intermediate graph.
    requires=("onnx",),
    exporters={"litert": "jaxtrain.plugins.litert.litert:LiteRTFile"},
    hints={"formats": "litert: for phones and edge devices"},
)
