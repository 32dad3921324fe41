"""Trained models in 8 bits, without training."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="quantization",
    subject="changing a trained model",
    commands={"quantize": "jaxtrain.plugins.quantization.command"},
)
