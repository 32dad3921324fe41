"""HTTP server of a trained model."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="serve",
    requires=("report",),  # Its pages module also renders the server's front page.
    subject="use elsewhere",
    commands={"serve": "jaxtrain.plugins.serve.command"},
    next_commands={"serve": "jaxtrain.plugins.serve.next_command:serve"},
)
