"""Reports: HTML pages on a run, a comparison of runs, or a sweep."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="report",
    requires=("profiler",),  # The page shows the profiled times of the layers.
    subject="watching and comparing",
    callbacks={"report": "jaxtrain.plugins.report.callback:make_report"},
    report_sections={
        "classification": "jaxtrain.plugins.report.class_sections:class_sections",
        "multilabel": "jaxtrain.plugins.report.label_sections:label_sections",
        "regression": "jaxtrain.plugins.report.number_sections:number_sections",
    },
    commands={"report": "jaxtrain.plugins.report.command"},
)
