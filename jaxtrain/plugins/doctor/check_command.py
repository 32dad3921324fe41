"""`main.py data --check`: selection of the data, and console output."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxtrain.config import Config, check_own, code_of_model, differences, replace
from jaxtrain.config.recipe import is_saved
from jaxtrain.console import printable
from jaxtrain.errors import UserError

if TYPE_CHECKING:
    from jaxtrain.plugins.doctor.data_command import DataArguments
    from jaxtrain.plugins.doctor.report import Diagnosis

OUT = Path("data_report")
COLOURS = {"error": "red", "warning": "yellow", "note": "blue"}


def run(arguments: "DataArguments") -> None:
    """Check the data, write the reports, and print the findings."""
    from jaxtrain.plugins.doctor.check import JSON, PAGE, check
    from jaxtrain.trainer.data_checks import judge

    if arguments.trust:
        _trust(arguments)
    config = _config(arguments)
    _check_clean_list(arguments, config)
    predicted = None
    if arguments.workdir is not None:
        from jaxtrain.tools.evaluation.predictions import predict_splits

        check_own(config, *code_of_model(), "data.source", "data.augment")
        predicted = predict_splits(config, arguments.workdir)
    out = arguments.out or OUT
    diagnosis = check(
        config,
        out,
        sized=arguments.source is None,
        judge=partial(judge, with_recipe=arguments.source is None),
        predicted=predicted,
        clean_list=arguments.write_clean,
    )
    _show(diagnosis)
    print(f"{out / JSON} and {out / PAGE} have the details")
    if diagnosis.errors:
        told = "\n  ".join(
            printable(f"{finding.title}. {finding.advice}")
            for finding in diagnosis.errors
        )
        raise UserError(f"a run on {printable(diagnosis.source)} would fail:\n  {told}")


def _trust(arguments: "DataArguments") -> None:
    """Trust the custom code of a run's config."""
    from jaxtrain.weights.trust import trust, trust_recipe

    recipe, workdir = arguments.config, arguments.workdir
    of_run = recipe is not None and is_saved(recipe)
    if workdir is None and not of_run:
        raise UserError(
            "--trust has no effect without --workdir, as custom code named by the "
            "recipe and the command line is always loaded: leave --trust out"
        )
    if workdir is not None:
        trust(workdir)
    if of_run or arguments.overrides.model.pretrained is not None:
        trust_recipe(recipe, arguments.overrides)


def _check_clean_list(arguments: "DataArguments", config: Config) -> None:
    """Reject `--write-clean` with slices of a data set: the list would be incomplete.

    Raises:
      UserError: The config uses slices of a data set.
    """
    from jaxtrain.data.sources import sliced_splits

    found = sliced_splits(config.data)
    if arguments.write_clean is not None and found:
        raise UserError(
            f"--write-clean {arguments.write_clean}: the recipe uses slices, such as "
            f"{found[0]}, so only some images are checked; give --source "
            f"{config.data.source} instead of --config"
        )


def _config(arguments: "DataArguments") -> Config:
    """Return the config of the data to check."""
    recipe, source, workdir = arguments.config, arguments.source, arguments.workdir
    given, data_dir = arguments.overrides, arguments.data_dir
    if source is not None:
        if recipe is not None or workdir is not None:
            other = "--config" if recipe is not None else "--workdir"
            raise UserError(
                f"--source {source} with {other}: give only one of the two options; "
                "--data.source overrides the source of a recipe"
            )
        from jaxtrain.data.opening import complete

        config = replace(given, "data.source", complete(source))
        return replace(config, "data.data_dir", str(data_dir)) if data_dir else config
    if data_dir is not None:
        raise UserError(
            f"--data-dir {data_dir} has no effect without --source: give "
            "--data.data-dir instead"
        )
    if workdir is not None:
        return _config_of_run(workdir, given, with_recipe=recipe is not None)
    if recipe is None:
        raise UserError(
            "--check requires a data set: give --config FILE, --source SOURCE or "
            "--workdir DIR"
        )
    return given


def _config_of_run(workdir: Path, given: Config, *, with_recipe: bool) -> Config:
    """Return the config of a run; `--config`, if given, must have the same data.

    Raises:
      UserError: The run was trained on other data, or options have no effect.
    """
    from jaxtrain.config.recipe import read_run
    from jaxtrain.trainer.resolve import resolve_config

    config = read_run(workdir)
    if not with_recipe:
        if given != Config():
            raise UserError(
                f"--workdir {workdir}: config options have no effect, as the data are "
                "read from the config.json of the run: give --config, or leave the "
                "options out"
            )
        return config
    other = differences(config, resolve_config(given, workdir).config)
    if other := [text for text in other if text.startswith("data.")]:
        raise UserError(
            f"--workdir {workdir}: the data of the run and of --config differ "
            f"({'; '.join(other)}): give a recipe with the data of the run, or leave "
            "--config out"
        )
    return config


def _show(diagnosis: "Diagnosis") -> None:
    """Print a summary, and a line per finding."""
    counts, noun = diagnosis.scan.count_examples(), diagnosis.scan.noun
    speed = len(diagnosis.scan) / max(diagnosis.seconds, 1e-9)
    table = Table(title="data", title_justify="left", show_header=False)
    # Names may contain rich's markup; `Text` prints it unchanged.
    table.add_row("source", Text(printable(diagnosis.source)))
    if diagnosis.task is not None:
        table.add_row("task", Text(printable(diagnosis.task)))
    table.add_row(
        f"{noun}s", ", ".join(f"{num:,} {name}" for name, num in counts.items())
    )
    table.add_row("time", f"{diagnosis.seconds:.1f} s, {speed:,.0f} {noun}s/s")
    table.add_section()
    for finding in diagnosis.findings:
        level = Text(finding.level, COLOURS[finding.level])
        table.add_row(level, Text(printable(finding.title)))
    if not diagnosis.findings:
        table.add_row(Text("good", "green"), "no problems were found")
    Console().print(table)
