"""Hyperparameter search: training, pruning, resuming and comparing trials."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="sweep",
    subject="watching and comparing",
    requires=("report",),
    commands={"sweep": "jaxtrain.plugins.sweep.command"},
)
