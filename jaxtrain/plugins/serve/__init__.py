"""A trained model behind HTTP."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="serve",
    requires=("report",),  # Its front page is made as a report is.
    subject="use elsewhere",
    commands={"serve": "jaxtrain.plugins.serve.command"},
    next_commands={"serve": "jaxtrain.plugins.serve.next_command:serve"},
)
