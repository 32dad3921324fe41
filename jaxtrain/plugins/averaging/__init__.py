"""Averages of the weights of finished runs: model soups."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="averaging", commands={"average": "jaxtrain.plugins.averaging.command"}
)
