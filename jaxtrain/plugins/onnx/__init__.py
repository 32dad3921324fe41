"""ONNX files: a model as operators that other runtimes know."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="onnx",
    requires=("quantization",),  # It writes the integers of rounded numbers.
    subject="use elsewhere",
    exporters={"onnx": "jaxtrain.plugins.onnx.onnx_file:ONNXFile"},
    next_commands={"export": "jaxtrain.plugins.onnx.next_command:export"},
    hints={"formats": "onnx: for ONNX Runtime, TensorRT, OpenVINO and others"},
)
