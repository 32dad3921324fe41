"""Confidence intervals of any metric, by the bootstrap (Efron 1979).

A metric is a value of sums over the examples, and a resample is a set of weights: how
often each example was drawn. So one product of weights and summands, batch by batch,
gives the sums of all resamples, and no example has to be kept.

The weights are Poisson draws of mean 1, a function of the seed and the example
(Hanley and MacGibbon 2006; Chamandy et al. 2012): given their total, they are those of
drawing with replacement. They are not stratified: how many examples of each class a
test set has is as much a matter of chance as the rest.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import keys
from jaxtrain.data.batch import Batch
from jaxtrain.evaluation.reducers import Reducer
from jaxtrain.tasks.base import Sums, Task, Values
from jaxtrain.tasks.metrics import found_names
from jaxtrain.tasks.task_metrics import all_metrics, kept_of, sums_of

NUM_RESAMPLES = 1000
# Numbers of an example, such as a confusion matrix of pixels, beyond which the sums of
# all resamples would take a quarter of a gigabyte.
MOST_SUMMED = 2**16
# Of metrics of what is kept of each example; none where more numbers are kept.
NUM_KEPT, MOST_KEPT = 200, 2**22
# Of resamples and attacks.
SEED = 0
# Percentiles of the values of the resamples.
PERCENTILES = (2.5, 97.5)
# Draws beyond this have a probability of 6e-11.
MAX_COUNT = 12


@dataclass(frozen=True, eq=False)
class Intervals(Reducer):
    """Low and high of each metric of a task.

    Attributes:
      task: Task that the model has learnt.
    """

    task: Task

    def update(self, outputs: Any, batch: Batch) -> tuple[Any, dict[str, Any]]:
        target, mask = batch["target"], batch["mask"]
        counts = weights(keys.root_key(SEED), batch["index"], NUM_RESAMPLES)
        resampled = resampled_sums(self.task, outputs, target, mask, counts)
        names = found_names(all_metrics(self.task))
        wanted = {names[n] for n, m in all_metrics(self.task).items() if m.resampled}
        kept = kept_of(self.task, outputs, target)
        # The sums of the batch are there for their dtypes.
        sums = sums_of(self.task, outputs, target, mask)
        return (sums, resampled), {n: x for n, x in kept.items() if n in wanted}

    def finish(self, sums: Any, kept: Any, numbers: np.ndarray) -> Values:
        whole, resampled = jax.device_get(sums)
        return {
            **intervals(self.task, resampled, whole),
            **kept_intervals(self.task, kept, numbers, self.task.num_outputs),
        }


def weights(root: jax.Array, index: jax.Array, num: int) -> jax.Array:
    """Return how often each resample has each example, int32 (num, B).

    Args:
      root: Root key of the seed.
      index: Numbers of the examples, (B,).
    """
    stream = keys.stream(root, keys.RESAMPLE)

    def one(i: jax.Array) -> jax.Array:
        return jax.random.bits(jax.random.fold_in(stream, i), (num,), jnp.uint32)

    draws = jax.vmap(one, out_axes=1)(index)
    # By the inverse of the distribution: `jax.random.poisson` loops until it accepts.
    terms = [math.exp(-1) / math.factorial(k) for k in range(MAX_COUNT)]
    counts = jnp.zeros(draws.shape, jnp.int32)
    for at_most in np.cumsum(terms).tolist():
        limit = np.uint32(min(2**32 - 1, 2**32 * at_most))
        counts += (draws >= limit).astype(jnp.int32)
    return counts


def resampled_sums(
    task: Task, outputs: Any, target: Any, mask: jax.Array, counts: jax.Array
) -> Sums:
    """Return sums over the examples of a batch in each resample, (resamples, ...).

    Args:
      outputs: Outputs of the model, (B, ...).
      mask: Zero marks padding, (B,).
      counts: How often each resample has each example (`weights`).
    """

    def one(output: Any, target: Any, mask: jax.Array) -> Sums:
        row = jax.tree.map(lambda x: x[None], (output, target, mask))
        return _with_intervals(task, sums_of(task, *row))

    def add(summands: jax.Array) -> jax.Array:
        dtype = jnp.promote_types(summands.dtype, jnp.float32)
        left = counts.astype(dtype)
        # Whole numbers stay whole: up to 2^24 in float32.
        highest = jax.lax.Precision.HIGHEST
        return jnp.tensordot(left, summands.astype(dtype), 1, precision=highest)

    return jax.tree.map(add, jax.vmap(one)(outputs, target, mask))


def _with_intervals(task: Task, sums: Sums) -> Sums:
    """Return the sums of metrics that are numbers or lists, and no matrices.

    Those of many numbers are left out, too.
    """
    metrics, wanted = all_metrics(task), {"loss", "num_examples"}
    for name, of in found_names(all_metrics(task)).items():
        if metrics[name].add is None or np.size(sums[of]) > MOST_SUMMED:
            continue
        ones = np.ones(sums[of].shape, sums[of].dtype)
        value = metrics[name].value(ones, 1)
        if np.ndim(np.asarray(value, object)) <= 1:
            wanted.add(of)
    return {name: x for name, x in sums.items() if name in wanted}


def intervals(task: Task, sums: Sums, whole: Sums) -> Values:
    """Return low and high of each metric: two numbers, or a list of pairs.

    Resamples in which a value is not defined are left out for it; None: in all.

    Args:
      sums: Sums of the resamples, (resamples, ...), on the host.
      whole: Sums over the split, for their dtypes.
    """
    exact = {
        name: np.rint(x).astype(whole[name].dtype)
        if np.issubdtype(whole[name].dtype, np.integer)
        else x
        for name, x in sums.items()
    }
    drawn = np.flatnonzero(exact["num_examples"])
    found = [task.values({name: x[i] for name, x in exact.items()}) for i in drawn]
    if not found:
        return {}
    names = [name for name in found[0] if name != "num_examples"]
    return {name: _interval([values[name] for values in found]) for name in names}


def kept_intervals(
    task: Task, kept: dict[str, Any], index: np.ndarray, num_outputs: int
) -> Values:
    """Return low and high of the metrics of what is kept that may be resampled.

    The first resamples of `weights` are taken; fewer than of sums, as each of them goes
    through all examples.

    Args:
      kept: What metrics keep of each example (`Task.kept`), on the host.
      index: Numbers of the examples, (N,).
      num_outputs: Numbers that are kept of an example, about.
    """
    names = found_names(all_metrics(task))
    metrics = {n: m for n, m in all_metrics(task).items() if m.resampled}
    if not metrics or len(index) * num_outputs > MOST_KEPT:
        return {}
    counts = np.asarray(weights(keys.root_key(SEED), jnp.asarray(index), NUM_KEPT))
    found: dict[str, list[Any]] = {name: [] for name in metrics}
    for count in counts:
        rows = np.repeat(np.arange(len(index)), count)
        if not len(rows):
            continue
        drawn = jax.tree.map(lambda x, rows=rows: x[rows], kept)
        for name, metric in metrics.items():
            found[name].append(metric.value(drawn[names[name]], len(rows)))
    return {name: _interval(values) for name, values in found.items() if values}


def _interval(values: list[Any]) -> Any:
    """Return the pair of percentiles of numbers, or of each place of lists."""
    if isinstance(values[0], list):
        return [_interval(list(place)) for place in zip(*values, strict=True)]
    known = [v for v in values if v is not None and math.isfinite(v)]
    return np.percentile(known, PERCENTILES).tolist() if known else None
