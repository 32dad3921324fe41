"""Hyperparameter search: trials are trained, pruned, resumed and compared."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="sweep",
    subject="watching and comparing",
    requires=("report",),
    commands={"sweep": "jaxtrain.plugins.sweep.command"},
)
