"""`report.html`: the self-contained page of a run."""

from jaxtrain.errors import first_of
from jaxtrain.invocation import command
from jaxtrain.plugins.report import origin, overview
from jaxtrain.plugins.report.again import write_recipe
from jaxtrain.plugins.report.curves import curves
from jaxtrain.plugins.report.examples import GROUPS, Examples
from jaxtrain.plugins.report.history import History
from jaxtrain.plugins.report.pages.templates import render
from jaxtrain.plugins.report.reliability import reliability
from jaxtrain.plugins.report.sections import task_sections

# Maximum number of class names to list.
MAX_NAMES = 30


def make_page(history: History, examples: Examples) -> bytes:
    """Render the page of a run."""
    config, predictions = history.config, examples.predictions
    names, sample = history.class_names or (), predictions or examples.sample
    task = "" if config is None else config.task.name
    return render(
        "plugins/report/report.html.j2",
        name=history.name,
        model=config and config.model.name,
        subject=overview.subject(history),
        verdict=overview.verdict(history),
        tiles=overview.tiles(history),
        left_out=[*history.missing, *examples.notes, *examples.failed],
        curves=curves(history),
        task_sections=task_sections(task, history.test, names or history.column_names),
        sample_description=sample and sample.describe(),
        groups=GROUPS,
        examples=examples,
        reliability=predictions and reliability(predictions),
        data=origin.data(history),
        class_names=first_of(names, MAX_NAMES),
        moments=origin.moments(history),
        train_seconds=history.train_seconds,
        times=origin.times(history),
        advice=origin.advice(history),
        profile=history.profile,
        sparsity=history.summary.get("sparsity"),
        system=origin.system(history),
        events=origin.events(history),
        fields=config and origin.fields(config),
        recipe=config and write_recipe(config),
        make_again=command("--config", "again.py", "--workdir", "runs/again"),
    )
