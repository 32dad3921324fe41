"""Magnitude pruning: sets the smallest weights of kernels to 0 during training."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="pruning",
    subject="methods",
    sections={"prune": "jaxtrain.plugins.pruning.config:PruneConfig"},
    transforms={"pruning": "jaxtrain.plugins.pruning.transform:make_pruning"},
)
