"""HTTP server of a trained model."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="serve",
    requires=("report",),  # Renders the front page, too.
    subject="use elsewhere",
    commands={"serve": "jaxtrain.plugins.serve.command"},
    next_commands={"serve": "jaxtrain.plugins.serve.next_command:serve"},
)
