"""Profiles of training steps: a trace, and the time of each layer."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="profiler",
    requires=("plan",),  # The profiler uses the plan plug-in's HLO parser.
    subject="watching and comparing",
    callbacks={"profiler": "jaxtrain.plugins.profiler.callback:make_profiler"},
)
