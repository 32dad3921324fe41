"""Reports: one page on a run, on several, or on a sweep."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="report",
    subject="watching and comparing",
    callbacks={"report": "jaxtrain.plugins.report.at_end:write_report"},
    commands={"report": "jaxtrain.plugins.report.command"},
)
