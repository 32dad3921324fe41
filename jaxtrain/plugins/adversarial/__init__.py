"""Adversarial training, and TRADES."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="adversarial",
    subject="methods",
    methods={
        "adversarial": "jaxtrain.plugins.adversarial.adversarial:Adversarial",
        "trades": "jaxtrain.plugins.adversarial.trades:Trades",
    },
)
