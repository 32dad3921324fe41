"""Averaging of the weights of finished runs: model soups."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="averaging",
    subject="changing a trained model",
    commands={"average": "jaxtrain.plugins.averaging.command"},
)
