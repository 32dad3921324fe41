"""ONNX export."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="onnx",
    requires=("quantization",),  # For the export of quantized models.
    subject="use elsewhere",
    exporters={"onnx": "jaxtrain.plugins.onnx.onnx_file:ONNXFile"},
    next_commands={"export": "jaxtrain.plugins.onnx.next_command:export"},
    hints={"formats": "onnx: for ONNX Runtime, TensorRT, OpenVINO and others"},
)
