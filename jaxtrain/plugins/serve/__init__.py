"""HTTP server of a trained model."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="serve",
    requires=("report",),  # The front page uses the HTML templates of the report.
    subject="use elsewhere",
    commands={"serve": "jaxtrain.plugins.serve.command"},
    next_commands={"serve": "jaxtrain.plugins.serve.next_command:serve"},
)
