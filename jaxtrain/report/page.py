"""`report.html`: all that there is to see of a run, in one file."""

from jaxtrain import tasks
from jaxtrain.pages.templates import render
from jaxtrain.report import origin, overview
from jaxtrain.report.again import write_recipe
from jaxtrain.report.curves import curves
from jaxtrain.report.examples import Examples
from jaxtrain.report.gallery import GROUPS, looked_at
from jaxtrain.report.history import History
from jaxtrain.report.reliability import reliability


def make_page(history: History, examples: Examples) -> bytes:
    """Return the page of a run."""
    config, predictions, test = history.config, examples.predictions, history.test
    task = tasks.kind("classification" if config is None else config.task)
    return render(
        "report/report.html.j2",
        name=history.name,
        model=config and config.model.name,
        subject=overview.subject(history),
        verdict=overview.verdict(history),
        tiles=overview.tiles(history),
        left_out=[*history.missing, *examples.notes, *examples.failed],
        curves=curves(history),
        task_sections=task.report_sections(test, history.class_names or ()),
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
