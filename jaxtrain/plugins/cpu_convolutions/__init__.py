"""Convolutions with fast gradients on CPUs."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="cpu_convolutions",
    convolutions={
        "cpu": "jaxtrain.plugins.cpu_convolutions.convolution:use_cpu_convolutions"
    },
)
