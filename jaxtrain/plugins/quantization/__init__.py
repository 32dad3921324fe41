"""Trained models in 8 bits, without training."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="quantization",
    model_changes={"quantize": "jaxtrain.plugins.quantization.quantized:quantized"},
    commands={"quantize": "jaxtrain.plugins.quantization.command"},
)
