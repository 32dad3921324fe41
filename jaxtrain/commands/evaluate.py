"""`main.py evaluate`: metrics and calibration of a trained model."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from jaxtrain.config import DataConfig
from jaxtrain.config.command_options import platform_option, trust_option
from jaxtrain.config.metadata import field
from jaxtrain.errors import UserError
from jaxtrain.inference.temperature import TEMPERATURE
from jaxtrain.processes import collector
from jaxtrain.processes.signals import StopSignals
from jaxtrain.system_errors import remedy
from jaxtrain.tools.evaluation import PARTS
from jaxtrain.tools.evaluation.parts import with_interval

if TYPE_CHECKING:
    from jaxtrain.tasks.base import Task

EXAMPLE = "--workdir runs/digits --calibrate"


@dataclass(frozen=True, kw_only=True)
class ModelArguments:
    """Options of `evaluate`, without the options that `PARTS` add."""

    workdir: Path = field(
        help="Directory of a run; or, with --data.source and --out, any model that "
        "`predict` supports.",
    )
    checkpoint: str = field(
        "best",
        help="Checkpoint of the run: best (by validation), latest, or a step number.",
    )
    split: Literal["test", "validation", "train", "all"] = field(
        "test",
        help="Split to evaluate; all: all examples of the data source.",
    )
    tta: Literal["plain", "flip", "five_crop", "ten_crop"] | None = field(
        None,
        help="Test-time augmentation, averaged over views: flip (horizontal flips), "
        "five_crop (four corners and the centre), ten_crop (five_crop and flips), or "
        "plain (none). None: train.tta of the run.",
    )
    calibrate: bool = field(
        False,
        help="Fit a temperature on the validation split of the run, and write "
        "temperature.json.",
    )
    out: Path | None = field(
        None,
        help="Output file; None: evaluation.json in the workdir, overwritten.",
    )
    trust: bool = trust_option()
    platform: Literal["auto", "cpu", "gpu", "tpu"] = platform_option()
    data: Annotated[DataConfig, tyro.conf.FlagConversionOff] = field(
        default_factory=DataConfig,
        help="Data options; an option that is not given keeps its value in the run.",
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateArguments(*(part.Options for part in PARTS.values()), ModelArguments):
    """Evaluate a trained model: metrics with intervals, and calibration."""


def run(arguments: EvaluateArguments, signals: StopSignals) -> None:
    """Evaluate, write the result, and print a summary."""
    requested = {key: part.requested(arguments) for key, part in PARTS.items()}
    with collector.held_back():
        from jaxtrain.config.recipe import is_run, read_run
        from jaxtrain.records.run_log import show_table
        from jaxtrain.tools.evaluation.evaluated_model import open_model
        from jaxtrain.tools.evaluation.result import Asked, evaluate, views_of
        from jaxtrain.training.sparsity import describe_sparsity
        from jaxtrain.weights.spec import check_is_model

    workdir = arguments.workdir
    check_is_model(str(workdir))
    run = is_run(workdir)
    if not run:
        _check_model_options(arguments)
    recipe = read_run(workdir) if run else None
    out = _check_out(arguments)
    model, config, data = open_model(
        workdir,
        arguments.checkpoint,
        recipe,
        arguments.data,
        trust=arguments.trust,
        platform=arguments.platform,
    )
    asked = Asked(
        split=arguments.split,
        tta=views_of(arguments.tta, config),
        calibrate=arguments.calibrate,
        parts={key: part for key, part in requested.items() if part is not None},
    )
    result = evaluate(model, config, data, asked)
    # Print the result first: writing it may fail, after hours of evaluation.
    show_table("evaluation", describe(result, model.task))
    if result["sparsity"] is not None:
        show_table("sparsity", describe_sparsity(result["sparsity"]))
    _write(result, out, workdir)
    print(f"wrote {out}")


def _write(result: dict[str, Any], out: Path, workdir: Path) -> None:
    """Write the result, and, if a temperature was fitted, `temperature.json`."""
    from jaxtrain.json_files.write import write_digested

    files = {out: result}
    if result["temperature"] is not None:
        fitted = {k: v for k, v in result["temperature"].items() if k != "calibration"}
        files[workdir / TEMPERATURE] = fitted
    try:
        for path, values in files.items():
            write_digested(path, values)
    except OSError as error:
        raise UserError(
            f"cannot write {' and '.join(map(str, files))} "
            f"({error.strerror or error}); {remedy(error.errno)}, or write the result, "
            "which is shown above, to another path with --out FILE"
        ) from None


def _check_model_options(arguments: EvaluateArguments) -> None:
    """Check the options for a `--workdir` that is a model without a run."""
    given = f"--workdir {arguments.workdir} is"
    if arguments.calibrate:
        raise UserError(
            "--calibrate fits a temperature on the validation split of a run, but "
            f"{given} a model without a run: leave --calibrate out"
        )
    if not arguments.data.source:
        raise UserError(f"{given} a model without a data set: give --data.source")
    if arguments.out is None:
        raise UserError(
            f"{given} a model without a run, so the result has no default path: give "
            "the output file with --out"
        )


def _check_out(arguments: EvaluateArguments) -> Path:
    """Return the path of the output file; check that it is writable."""
    from jaxtrain import atomic_file
    from jaxtrain.records.workdir import EVALUATION

    out = arguments.out or arguments.workdir / EVALUATION
    if os.path.isdir(out):
        raise UserError(
            f"--out {out} is a directory: give a file, such as {out}/evaluation.json"
        )
    paths = {f"--out {out}: ": out}
    if arguments.calibrate:
        paths["--calibrate writes into --workdir: "] = arguments.workdir / TEMPERATURE
    for what, path in paths.items():
        try:
            atomic_file.check_writable(path)
        except OSError as error:
            raise UserError(
                f"{what}cannot write in {path.parent} ({error.strerror}): choose "
                "another path"
            ) from None
    return out


def describe(result: dict[str, Any], task: "type[Task]") -> dict[str, str]:
    """Return the rows of the summary table."""
    from jaxtrain.data.hold_out import describe_absent
    from jaxtrain.tasks.metrics import lowest_class

    names, metrics = result["class_names"], result["metrics"]
    data, intervals = result["data"], result["intervals"]["metrics"]
    images = f"{data['source']}, {data['split']}: {data['num_examples']:,}"
    if data["num_unreadable"]:
        images += f", {data['num_unreadable']} unreadable"
    rows = {"checkpoint": f"step {result['run']['step']}", "images": images}
    if absent := data["absent_classes"]:
        rows["no images"] = describe_absent(absent)
    rows |= data["remarks"]
    if result["tta"]:
        rows["views"] = result["tta"]
    for name, value in metrics.items():
        if isinstance(value, float):
            rows[name] = with_interval(value, intervals.get(name))
    name, title = task.lowest
    lowest = lowest_class(metrics, name)
    if names and lowest is not None:
        pairs = intervals.get(name)
        value = with_interval(metrics[name][lowest], pairs and pairs[lowest])
        rows[title] = f"{value}  {names[lowest]}"
    rows |= _describe_calibration(result)
    for key, part in PARTS.items():
        if part_result := result.get(key):
            rows |= part.describe(part_result)
    return rows


def _describe_calibration(result: dict[str, Any]) -> dict[str, str]:
    def text(found: dict[str, Any]) -> str:
        return (
            f"{found['expected_calibration_error']:.4f} expected, "
            f"{found['maximum_calibration_error']:.4f} largest; Brier "
            f"{found['brier_score']:.4f}, NLL {found['negative_log_likelihood']:.4f}"
        )

    rows = {}
    if result["calibration"]:
        rows["calibration error"] = text(result["calibration"])
    if fitted := result["temperature"]:
        rows["temperature"] = (
            f"{fitted['temperature']:.4f}, of {fitted['num_examples']:,} images of the "
            f"{fitted['split']} split"
        )
        rows["calibrated error"] = text(fitted["calibration"])
    return rows
