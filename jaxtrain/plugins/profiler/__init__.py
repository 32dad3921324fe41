"""Profiles of a run: a trace of some steps, and the time of each layer."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="profiler",
    requires=("plan",),  # The profiler uses the plan's HLO parser.
    subject="watching and comparing",
    callbacks={"profiler": "jaxtrain.plugins.profiler.callback:make_profiler"},
)
