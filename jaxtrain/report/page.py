"""`report.html`: all that there is to see of a run, in one file."""

import numpy as np

from jaxtrain.pages.page import note, render, section
from jaxtrain.report import gallery, origin
from jaxtrain.report.classes import classes, counts
from jaxtrain.report.curves import curves
from jaxtrain.report.examples import Examples
from jaxtrain.report.history import History
from jaxtrain.report.matrix import confusion
from jaxtrain.report.overview import head
from jaxtrain.report.reliability import reliability


def make_page(history: History, examples: Examples) -> bytes:
    """Return the page of a run."""
    found = examples.predictions
    body = [
        head(history),
        _missing(history, examples),
        curves(history),
        _results(history),
        gallery.predictions(examples),
        reliability(found) if found is not None else "",
        gallery.augmented(examples.pairs),
        origin.data(history),
        origin.time(history),
        origin.system(history),
        origin.events(history),
        origin.config(history),
        origin.again(history),
    ]
    return render(f"Report: {history.name}", body)


def _missing(history: History, examples: Examples) -> str:
    notes = [*history.missing, *examples.notes, *examples.failed]
    return section("Left out", *map(note, notes)) if notes else ""


def _results(history: History) -> str:
    """Return what the summary has of each class."""
    names, test = history.class_names, history.test
    if names is None or not test:
        return ""
    parts = []
    matrix = counts(test, names)
    if matrix is not None:
        parts.append(confusion(np.array(matrix), names, "test"))
    parts.append(classes(test, names, "test"))
    return "\n".join(parts)
