"""Bootstrap confidence intervals of any metric (Efron 1979).

A metric is a function of sums over examples, and a resample is a vector of weights: the
number of times each example is drawn. The sums of all resamples are products of weights
and summands, accumulated batch by batch, so that no example is stored.

Poisson bootstrap: the weights are Poisson draws of mean 1, determined by the seed and
the index of the example (Hanley and MacGibbon 2006; Chamandy et al. 2012). Given their
total, the weights are multinomial, as in sampling with replacement. Resamples are not
stratified by class, because the class frequencies of a test set are random, too.
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
# Maximum number of summands of a metric per example, such as the entries of a confusion
# matrix of pixels. At this limit, the sums of all resamples take 262 MB in float32.
MOST_SUMMED = 2**16
# For metrics computed from retained arrays: number of resamples, and maximum number of
# values in the retained arrays of all examples.
NUM_KEPT, MOST_KEPT = 200, 2**22
# Seed of the resamples and of adversarial attacks.
SEED = 0
# Percentiles of a metric over the resamples: a 95% confidence interval.
PERCENTILES = (2.5, 97.5)
# Maximum weight of an example; larger weights have a probability of 6e-11.
MAX_COUNT = 12


@dataclass(frozen=True, eq=False)
class Intervals(Reducer):
    """Reducer that computes confidence intervals of a task's metrics.

    Attributes:
      task: Task of the model.
    """

    task: Task

    def update(self, outputs: Any, batch: Batch) -> tuple[Any, dict[str, Any]]:
        target, mask = batch["target"], batch["mask"]
        counts = weights(keys.root_key(SEED), batch["index"], NUM_RESAMPLES)
        resampled = resampled_sums(self.task, outputs, target, mask, counts)
        names = found_names(all_metrics(self.task))
        wanted = {names[n] for n, m in all_metrics(self.task).items() if m.resampled}
        kept = kept_of(self.task, outputs, target)
        # `intervals` takes the dtypes of metrics from the sums over the split.
        sums = sums_of(self.task, outputs, target, mask)
        return (sums, resampled), {n: x for n, x in kept.items() if n in wanted}

    def finish(self, sums: Any, kept: Any, numbers: np.ndarray) -> Values:
        totals, resampled = jax.device_get(sums)
        return {
            **intervals(self.task, resampled, totals),
            **kept_intervals(self.task, kept, numbers, self.task.num_outputs),
        }


def weights(root: jax.Array, index: jax.Array, num: int) -> jax.Array:
    """Draw the number of times that each resample contains each example.

    Args:
      root: Root PRNG key.
      index: Indices of the examples, (B,).
      num: Number of resamples.

    Returns:
      Weights of the resamples, int32 (num, B).
    """
    stream = keys.stream(root, keys.RESAMPLE)

    def one(i: jax.Array) -> jax.Array:
        return jax.random.bits(jax.random.fold_in(stream, i), (num,), jnp.uint32)

    draws = jax.vmap(one, out_axes=1)(index)
    # Inverse transform sampling avoids the rejection loop of `jax.random.poisson`.
    terms = [math.exp(-1) / math.factorial(k) for k in range(MAX_COUNT)]
    counts = jnp.zeros(draws.shape, jnp.int32)
    for at_most in np.cumsum(terms).tolist():
        limit = np.uint32(min(2**32 - 1, 2**32 * at_most))
        counts += (draws >= limit).astype(jnp.int32)
    return counts


def resampled_sums(
    task: Task, outputs: Any, target: Any, mask: jax.Array, counts: jax.Array
) -> Sums:
    """Return the metric sums over a batch in each resample, (resamples, ...).

    Args:
      task: Task with the metrics.
      outputs: Outputs of the model, (B, ...).
      target: Targets of the batch, (B, ...).
      mask: Mask of the examples, 0 for padding, (B,).
      counts: Result of `weights`, (resamples, B).
    """

    def one(output: Any, target: Any, mask: jax.Array) -> Sums:
        row = jax.tree.map(lambda x: x[None], (output, target, mask))
        return _with_intervals(task, sums_of(task, *row))

    def add(summands: jax.Array) -> jax.Array:
        dtype = jnp.promote_types(summands.dtype, jnp.float32)
        left = counts.astype(dtype)
        # The highest precision keeps integers up to 2^24 exact in float32.
        highest = jax.lax.Precision.HIGHEST
        return jnp.tensordot(left, summands.astype(dtype), 1, precision=highest)

    return jax.tree.map(add, jax.vmap(one)(outputs, target, mask))


def _with_intervals(task: Task, sums: Sums) -> Sums:
    """Select the sums of metrics whose value is a number or a list of numbers.

    Other metrics, and metrics with more than `MOST_SUMMED` summands, have no intervals.
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


def intervals(task: Task, sums: Sums, totals: Sums) -> Values:
    """Return the confidence interval of each metric: a pair, or a list of pairs.

    Resamples in which a metric is undefined are ignored. The bounds of a metric that is
    undefined in all resamples are None.

    Args:
      task: Task with the metrics.
      sums: Sums of the resamples, (resamples, ...), on the host.
      totals: Sums over the split, which determine the dtypes.
    """
    exact = {
        name: np.rint(x).astype(totals[name].dtype)
        if np.issubdtype(totals[name].dtype, np.integer)
        else x
        for name, x in sums.items()
    }
    drawn = np.flatnonzero(exact["num_examples"])
    resampled = [task.values({name: x[i] for name, x in exact.items()}) for i in drawn]
    if not resampled:
        return {}
    names = [name for name in resampled[0] if name != "num_examples"]
    return {name: _interval([values[name] for values in resampled]) for name in names}


def kept_intervals(
    task: Task, kept: dict[str, Any], index: np.ndarray, num_outputs: int
) -> Values:
    """Return the confidence intervals of metrics computed from retained arrays.

    Only the first `NUM_KEPT` resamples of `weights` are used, because each resample
    requires a pass over the arrays of all examples. Only metrics that support
    resampling have intervals.

    Args:
      task: Task with the metrics.
      kept: Retained arrays of each example (see `kept_of`), on the host.
      index: Indices of the examples, (N,).
      num_outputs: Approximate number of retained values per example.
    """
    names = found_names(all_metrics(task))
    metrics = {n: m for n, m in all_metrics(task).items() if m.resampled}
    if not metrics or len(index) * num_outputs > MOST_KEPT:
        return {}
    counts = np.asarray(weights(keys.root_key(SEED), jnp.asarray(index), NUM_KEPT))
    resampled: dict[str, list[Any]] = {name: [] for name in metrics}
    for count in counts:
        rows = np.repeat(np.arange(len(index)), count)
        if not len(rows):
            continue
        drawn = jax.tree.map(lambda x, rows=rows: x[rows], kept)
        for name, metric in metrics.items():
            resampled[name].append(metric.value(drawn[names[name]], len(rows)))
    return {name: _interval(values) for name, values in resampled.items() if values}


def _interval(values: list[Any]) -> Any:
    """Return percentiles of numbers, or of each position of lists of numbers."""
    if isinstance(values[0], list):
        return [_interval(list(place)) for place in zip(*values, strict=True)]
    known = [v for v in values if v is not None and math.isfinite(v)]
    return np.percentile(known, PERCENTILES).tolist() if known else None
