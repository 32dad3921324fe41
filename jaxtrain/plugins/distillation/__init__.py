"""Training on the outputs of a trained model, beside the labels."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="distillation",
    subject="methods",
    methods={"distillation": "jaxtrain.plugins.distillation.distillation:Distillation"},
    weights_options=("teacher",),
)
