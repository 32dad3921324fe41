"""Metric writers for experiment trackers: TensorBoard and Weights & Biases."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="trackers",
    subject="watching and comparing",
    writers={
        "wandb": "jaxtrain.plugins.trackers.weights_and_biases:WandbWriter",
        "tensorboard": "jaxtrain.plugins.trackers.tensorboard:TensorBoardWriter",
    },
)
