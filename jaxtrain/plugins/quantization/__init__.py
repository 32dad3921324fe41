"""Post-training quantization to 8 bits."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="quantization",
    subject="changing a trained model",
    model_changes={"quantize": "jaxtrain.plugins.quantization.quantized:quantized"},
    commands={"quantize": "jaxtrain.plugins.quantization.command"},
)
