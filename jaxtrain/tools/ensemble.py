"""Ensembles of finished runs, saved as the workdir of a new run.

Deep ensembles (Lakshminarayanan et al. 2017, arXiv:1612.01474) average the
probabilities of models that were trained with different seeds.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrain import tasks
from jaxtrain.checkpoints import CHECKPOINTS, manifest
from jaxtrain.checkpoints.digest import digests
from jaxtrain.checkpoints.orbax import write
from jaxtrain.config import Config, own_parts
from jaxtrain.errors import UserError
from jaxtrain.inference.ensemble import join
from jaxtrain.inference.model import TrainedModel
from jaxtrain.json_files.run_id import RunId, read_of_run
from jaxtrain.records import workdir as workdir_lib
from jaxtrain.records.atomic_output import atomic_output, reported
from jaxtrain.tasks.base import Task, Values
from jaxtrain.tools.evaluation.passes import Pass, PassResult
from jaxtrain.tools.evaluation.subject import open_subject
from jaxtrain.tools.joinable import check_alike, have_common_validation
from jaxtrain.trainer.progress import Progress
from jaxtrain.trainer.records import versions
from jaxtrain.training.state import num_params
from jaxtrain.weights.description import MODEL


@dataclass(frozen=True)
class Ensembled:
    """An ensemble and its metrics.

    Attributes:
      model: Ensemble, with the weights of all members.
      config: Config of the first run, for the new workdir.
      validation: Metrics of the ensemble on the validation split. None unless the runs
        share a validation split that none of them was trained on.
      test: Metrics of the ensemble on the test split.
      each: Metrics of each member on the test split.
    """

    model: TrainedModel
    config: Config
    validation: Values | None
    test: Values
    each: tuple[Values, ...]


def ensemble(models: Sequence[TrainedModel], configs: Sequence[Config]) -> Ensembled:
    """Combine the models of several runs, and evaluate the ensemble.

    Args:
      models: Two or more models that differ only in their weights.
      configs: Configs of the runs, one per model. The first config defines the data.

    Raises:
      UserError: The models differ in more than weights, or the task does not support
        ensembles.
    """
    check_alike(models, "join")
    about = models[0].description
    reason = models[0].decoder.refuses_mean()
    if reason is not None:
        raise UserError(
            f"task = {about.task!r}: {reason}; use a single run instead of an ensemble"
        )
    model, config = join(models), configs[0]
    each = tuple(_evaluate(one, config, "test")[1].values for one in models)
    validation = None
    if have_common_validation(configs):
        task, found = _evaluate(model, config, "validation")
        validation, chosen = found.values, task.choose(found.values)
        about = model.description.with_chosen(chosen, "the ensemble")
        model = dataclasses.replace(model, description=about)
    test = _evaluate(model, config, "test")[1].values
    return Ensembled(model, config, validation, test, each)


def _evaluate(
    model: TrainedModel, config: Config, split: str
) -> tuple[Task, PassResult]:
    subject, source = open_subject(model, config, config.data, split)
    if split == "validation":  # With None, thresholds are fitted to the ensemble.
        subject.task.chosen = None
    return subject.task, Pass(subject=subject)(source, split).checked(split)


def save(made: Ensembled, runs: Sequence[Path], out: Path) -> None:
    """Save an ensemble as the workdir of a finished run.

    All commands but training accept this workdir; its checkpoint has no optimizer
    state.

    Args:
      made: Ensemble to write.
      runs: Workdirs of the members.
      out: New workdir to create.

    Raises:
      UserError: A run is not finished, or `out` cannot be written.
    """
    ends = [read_end(run) for run in runs]
    first = RunId.read(runs[0])
    data = read_of_run(runs[0] / workdir_lib.DATA, dict[str, Any], first)
    if data is None:
        raise UserError(
            f"{runs[0]}: {workdir_lib.DATA} does not exist: restore the file"
        )
    model, step = made.model, made.model.origin["step"]
    with atomic_output("--out", out, folder=True) as partial, reported("--out", out):
        run = RunId.new(partial)
        workdir_lib.write_start(partial, made.config, data, run)
        state = {
            "step": np.array(step, np.int32),
            "params": model.params,
            "model_state": model.model_state,
            "opt_state": {},
            "extras": {},
        }
        progress = Progress(chosen=dict(model.description.chosen))
        info = {
            "config": dataclasses.asdict(made.config),
            "versions": versions(),
            "own_parts": own_parts(made.config),
            "statistics": {
                "mean": model.description.mean,
                "std": model.description.std,
            },
            "progress": dataclasses.asdict(progress),
        }
        folder = partial / CHECKPOINTS / str(step)
        made_of = manifest.make(state, digests(state), info, made.validation, run)
        write(folder, state, made_of)
        # Fitted values (`chosen`) are saved in `progress` of the checkpoint instead.
        about = dataclasses.replace(model.description, chosen={})
        workdir_lib.write_digested(partial / MODEL, run.stamp(about.to_dict()))
        summary = _summary(made, runs, ends)
        workdir_lib.write_digested(partial / workdir_lib.SUMMARY, run.stamp(summary))


def read_end(run: Path) -> dict[str, Any]:
    """Read the summary of a finished run.

    Raises:
      UserError: The run is not finished, or the summary belongs to another run.
    """
    end = read_of_run(run / workdir_lib.SUMMARY, dict[str, Any], RunId.read(run))
    if end is None:
        raise UserError(
            f"{run} contains no finished run ({workdir_lib.SUMMARY} does not exist): "
            "finish the training first"
        )
    return end


def _summary(
    made: Ensembled, runs: Sequence[Path], ends: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    step, first = made.model.origin["step"], ends[0]
    weights = {"step": step, "epoch": first["epoch"], "validation": made.validation}
    summed = {
        name: math.fsum(end[name] for end in ends)
        for name in ("train_seconds", "wall_seconds", "compile_seconds")
    }
    first = {name: x for name, x in first.items() if name != "mfu"}
    shown = "loss", tasks.kind(made.config.task.name).best_metric
    return {
        **first,
        "eval": made.test,
        "model": weights,
        "last": weights,
        "best": None,
        "skipped_steps": max(end["skipped_steps"] for end in ends),
        **summed,
        "num_params": num_params(made.model.params),
        workdir_lib.MEMBERS: [
            {"run": str(run), **{n: x for n, x in values.items() if n in shown}}
            for run, values in zip(runs, made.each, strict=True)
        ],
        "versions": versions(),
    }
