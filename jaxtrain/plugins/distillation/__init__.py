"""Knowledge distillation from a trained model."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="distillation",
    subject="methods",
    methods={"distillation": "jaxtrain.plugins.distillation.distillation:Distillation"},
    weights_options=("teacher",),
)
