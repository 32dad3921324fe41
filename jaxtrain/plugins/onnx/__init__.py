"""ONNX files: a model as operators that other runtimes know."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="onnx",
    requires=("quantization",),  # It writes the integers of rounded numbers.
    exporters={"onnx": "jaxtrain.plugins.onnx.onnx_file:ONNXFile"},
)
