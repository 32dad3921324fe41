"""Profiles of a run: a trace of some steps, and the time of each layer."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="profiler",
    hooks={"profiler": "jaxtrain.plugins.profiler.hooks:make_profiler"},
)
