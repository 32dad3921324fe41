"""`report.html`: all that there is to see of a run, in one file."""

import numpy as np

from jaxtrain.pages.templates import render
from jaxtrain.report import classes, origin, overview
from jaxtrain.report.again import write_recipe
from jaxtrain.report.curves import curves
from jaxtrain.report.examples import Examples
from jaxtrain.report.gallery import GROUPS, looked_at
from jaxtrain.report.history import History
from jaxtrain.report.matrix import confusion
from jaxtrain.report.reliability import reliability


def make_page(history: History, examples: Examples) -> bytes:
    """Return the page of a run."""
    config, predictions, test = history.config, examples.predictions, history.test
    names = history.class_names or ()
    counts = classes.counts(test, names)
    return render(
        "report/report.html.j2",
        name=history.name,
        model=config and config.model.name,
        subject=overview.subject(history),
        verdict=overview.verdict(history),
        tiles=overview.tiles(history),
        left_out=[*history.missing, *examples.notes, *examples.failed],
        curves=curves(history),
        confusion=counts and confusion(np.array(counts), names),
        classes=classes.classes(test, names),
        looked_at=predictions and looked_at(predictions),
        groups=GROUPS,
        examples=examples,
        reliability=predictions and reliability(predictions),
        data=origin.data(history),
        class_names=origin.class_names(history),
        moments=origin.moments(history),
        train_seconds=overview.train_seconds(history),
        times=origin.times(history),
        system=origin.system(history),
        events=origin.events(history),
        fields=config and origin.fields(config),
        recipe=config and write_recipe(config),
    )
