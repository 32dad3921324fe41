"""Trained models in 8 bits, without training."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="quantization",
    commands={"quantize": "jaxtrain.plugins.quantization.command"},
)
