"""Model soups, uniform or greedy, with recomputed batch-norm statistics.

A model soup has the averaged weights of several models (Wortsman et al. 2022,
arXiv:2203.05482). Batch-norm statistics are recomputed, as in SWA (Izmailov et al.
2018, arXiv:1803.05407), because averaged weights change the activations.
"""

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config import Config
from jaxtrain.data.batch import Batch
from jaxtrain.data.datasets import Dataset
from jaxtrain.data.defects import Defects
from jaxtrain.data.image_source import Source
from jaxtrain.errors import UserError
from jaxtrain.evaluation.evaluate import Apply, ModelView, Weights, compiler
from jaxtrain.evaluation.statistics import mean_statistics, with_statistics
from jaxtrain.inference.model import TrainedModel
from jaxtrain.models.batch_norm import momenta
from jaxtrain.tasks.base import Task, Values
from jaxtrain.tasks.metrics import Goal
from jaxtrain.tasks.task_metrics import main_goal
from jaxtrain.tools.evaluation.passes import Pass, Subject
from jaxtrain.tools.evaluation.subject import open_subject
from jaxtrain.tools.joinable import check_alike
from jaxtrain.training.norm_statistics import (
    WINDOW,
    statistics_of_batch,
)

# Purpose of the compiled program, for out-of-memory messages.
PURPOSE = "a batch for the statistics of an averaged model"


@dataclass(frozen=True)
class Averaged:
    """Model soup and its evaluation.

    Attributes:
      model: Model with the averaged weights.
      used: Ascending indices of the models in the average.
      goal: Metric that ranks models; None without a validation split.
      values: Validation metric of each model; empty without a validation split.
      value: Validation metric of the average; None without a validation split.
    """

    model: TrainedModel
    used: tuple[int, ...]
    goal: Goal | None
    values: tuple[float, ...]
    value: float | None


def average(
    models: Sequence[TrainedModel],
    config: Config,
    *,
    num_images: int,
    greedy: bool,
    judged_by_validation: bool,
) -> Averaged:
    """Average the weights of models of the same architecture.

    Args:
      models: Two or more models.
      config: Config of the run whose training and validation images are used.
      num_images: Number of training images to recompute batch-norm statistics with; 0
        averages the statistics of the models.
      greedy: Whether to add models one by one, best validation metric first, and skip
        models that worsen the metric of the average.
      judged_by_validation: Whether there is a validation split that no model was
        trained on (`have_common_validation`).

    Raises:
      UserError: The models differ in more than weights, or a required validation split
        is missing.
    """
    check_alike(models, "average")
    first, data, fit = models[0], config.data, _unchanged
    if num_images:
        train = open_subject(first, config, data, "train")
        fit = partial(_with_statistics, *train, data.batch_size, num_images)
    if not judged_by_validation:
        if greedy:
            raise UserError(
                "--greedy requires a validation split that no model was trained on: "
                "leave --greedy out, or set data.validation_split in the recipe of the "
                "runs"
            )
        return Averaged(fit(mean_of(models)), tuple(range(len(models))), None, (), None)
    judge = partial(_judge, *open_subject(first, config, data, "validation"))
    judged = [judge(model) for model in models]
    used = list(range(len(models)))
    if greedy:
        used = _greedy(models, judged, fit, judge)
    model = fit(mean_of([models[i] for i in used]))
    found = judge(model)
    chosen = found.task.choose(found.values)
    about = model.description.with_chosen(chosen, "the averaged model")
    return Averaged(
        dataclasses.replace(model, description=about),
        tuple(sorted(used)),
        main_goal(found.task),
        tuple(one.number for one in judged),
        found.number,
    )


def mean_of(models: Sequence[TrainedModel]) -> TrainedModel:
    """Average the floating-point arrays; copy other arrays from the first model."""

    def mean(*arrays: Any) -> np.ndarray:
        first = np.asarray(arrays[0])
        if not jnp.issubdtype(first.dtype, jnp.floating):
            return first
        total = sum((np.asarray(x, np.float64) for x in arrays[1:]), np.float64(0))
        return ((np.asarray(first, np.float64) + total) / len(arrays)).astype(
            first.dtype
        )

    params, state = (
        jax.tree.map(mean, *(getattr(model, name) for model in models))
        for name in ("params", "model_state")
    )
    about = dataclasses.replace(models[0].description, chosen={})
    origin = {"step": None, "run": None, "weights": None}
    return TrainedModel(about, params, state, origin)


def _greedy(
    models: Sequence[TrainedModel],
    judged: Sequence["Judged"],
    fit: Callable[[TrainedModel], TrainedModel],
    judge: Callable[[TrainedModel], "Judged"],
) -> list[int]:
    """Return the indices of the models in a greedy soup (Wortsman et al., recipe 1)."""
    order = sorted(range(len(models)), key=lambda i: (judged[i].loss, i))
    used, best = order[:1], judged[order[0]].loss
    for i in order[1:]:
        candidate = judge(fit(mean_of([models[j] for j in (*used, i)])))
        if candidate.loss <= best:
            used, best = [*used, i], candidate.loss
    return used


class Judged(NamedTuple):
    """Validation result of a model.

    Attributes:
      task: Task of the model.
      values: Metrics on the validation split.
    """

    task: Task
    values: Values

    @property
    def number(self) -> float:
        """Value of the main metric; NaN if the metric is undefined."""
        value = self.values.get(main_goal(self.task).metric)
        return float(value) if isinstance(value, int | float) else math.nan

    @property
    def loss(self) -> float:
        """Main metric, negated if higher is better; infinity if undefined."""
        sign = -1 if main_goal(self.task).higher else 1
        return math.inf if math.isnan(self.number) else sign * self.number


def _judge(subject: Subject, source: Source, model: TrainedModel) -> Judged:
    """Evaluate a model on the validation split.

    Args:
      subject: Evaluation preprocessing and task; its model is ignored.
      source: Images and targets of the validation split.
      model: Model to evaluate.
    """
    task = copy.copy(subject.task)
    # Discard chosen thresholds, so that the evaluation fits them to this model.
    task.chosen = None
    subject = dataclasses.replace(subject, model=model, task=task)
    return Judged(task, Pass(subject=subject)(source, "validation").values)


def _unchanged(model: TrainedModel) -> TrainedModel:
    return model


def _with_statistics(
    subject: Subject,
    source: Source,
    batch_size: int,
    num_images: int,
    model: TrainedModel,
) -> TrainedModel:
    """Replace batch-norm statistics with averages over batches of training images.

    If the model cuts images into windows, the batches contain windows.

    Args:
      subject: Evaluation preprocessing for the training images.
      source: Training split of the run.
      batch_size: Number of images or windows per batch, as in the run.
      num_images: Maximum total number of images or windows.
      model: Model to recompute the statistics of.
    """
    keeps = momenta(model.description.abstract)
    if not keeps:
        return model
    devices, grid = model.share(1), model.description.grid
    most = min(num_images, len(source) * len(grid))
    size = min(batch_size, most) // devices * devices
    if not size:
        raise UserError(
            f"--images {num_images}: a batch needs an image for each of the {devices} "
            f"devices; give --images {devices} or more"
        )
    program = compiler(
        _statistics_of(subject, model, keeps), model.mesh, PURPOSE, together=False
    )
    view = ModelView(weights=model.placed, mesh=model.mesh, program=program)
    dataset = Dataset(source, {}, Defects("train", len(source), 1.0))
    means = mean_statistics(view, dataset, subject.data, grid, size, num_images)
    state = with_statistics(model.model_state, means)
    return dataclasses.replace(model, model_state=state)


def _statistics_of(
    subject: Subject, model: TrainedModel, keeps: Mapping[str, float]
) -> Apply:
    """Return a function that computes the batch-norm statistics of one batch.

    Args:
      subject: Evaluation preprocessing for the training images.
      model: Model with the weights and the batch norms.
      keeps: Path of a running statistic -> its momentum.
    """

    def statistics(weights: Weights, data: Any, batches: Batch) -> tuple[Any, Batch]:
        batch = subject.fitted(jax.tree.map(lambda x: x[0], batches))
        pixels = model.description.grid.cut(batch["image"], batch[WINDOW])
        images = model.prepare(pixels)
        with jax.default_matmul_precision(model.policy.products):
            found = statistics_of_batch(model.graphdef, *weights, images, keeps)
        return found, batch

    return statistics
