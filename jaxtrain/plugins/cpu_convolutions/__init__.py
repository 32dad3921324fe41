"""Convolutions with fast gradients on CPUs."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="cpu_convolutions",
    subject="devices",
    convolutions={
        "cpu": "jaxtrain.plugins.cpu_convolutions.convolution:use_cpu_convolutions"
    },
)
