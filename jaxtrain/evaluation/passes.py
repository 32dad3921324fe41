"""A pass over a split: metrics of the task, their intervals, and scores of examples.

The batch is shared by all devices, images are streamed, and what stays is sums and a
few numbers of each example, whatever the size of the set.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import keys
from jaxtrain.config import DataConfig
from jaxtrain.data import loader
from jaxtrain.data.augment import windows
from jaxtrain.data.batch import Batch
from jaxtrain.data.defects import Defects
from jaxtrain.data.images import Fit
from jaxtrain.data.sources import Source
from jaxtrain.dtypes import wide
from jaxtrain.engine import passes
from jaxtrain.engine.passes import eval_batch_size
from jaxtrain.evaluation import resampling, views
from jaxtrain.evaluation.attacks import Attack
from jaxtrain.evaluation.views import Apply, View
from jaxtrain.inference.model import TrainedModel
from jaxtrain.parallel import sharding
from jaxtrain.tasks.base import Sums, Task, Values

# (outputs, target, a number) -> arrays (B, ...): what is kept of each example.
Keep = Callable[[jax.Array, Any, jax.Array], dict[str, jax.Array]]


class PassResult(NamedTuple):
    """What a pass has found.

    Attributes:
      values: the metrics of the task.
      intervals: low and high of each.
      kept: of each example that could be read, (N, ...).
      numbers: theirs in the split, (N,).
      num_unreadable: examples that were left out.
    """

    values: Values
    intervals: Values
    kept: dict[str, Any]
    numbers: np.ndarray
    num_unreadable: int


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is evaluated, and how images come to it.

    Attributes:
      model: with its weights.
      task: that it has learnt.
      data: how images are read.
      size: that the device gives to images; None: they come in theirs.
      fit: how it does so.
      max_bad_fraction: of a split may be unreadable; they are left out.
      seed: of resamples and attacks.
    """

    model: TrainedModel
    task: Task
    data: DataConfig
    size: int | None
    fit: Fit
    max_bad_fraction: float
    seed: int = 0

    def batch_size(self) -> int:
        """Return that of the config, or the next that the devices can share."""
        devices = sharding.num_batch_shards(self.model.mesh)
        return -(-eval_batch_size(self.data) // devices) * devices


@dataclass(frozen=True, eq=False)
class Pass:
    """A kind of pass, compiled once for all splits that it goes over.

    Attributes:
      subject: what is evaluated.
      view: what the model is shown of each image.
      attack: what is done to the images before; None: nothing.
      keep: what is remembered of each example.
      num_resamples: of the intervals; 0: there are none.
    """

    subject: Subject
    view: View = views.plain
    attack: Attack | None = None
    keep: Keep | None = None
    num_resamples: int = 0
    _compiled: dict[str, Any] = field(default_factory=dict, init=False)

    def __call__(self, source: Source, name: str, number: float = 1.0) -> PassResult:
        """Go over a split.

        Args:
          source: Examples of the split.
          name: Name of the split in messages.
          number: Number that `keep` gets.

        Raises:
          UserError: more of its images than the config allows cannot be read.
        """
        task, max_bad = self.subject.task, self.subject.max_bad_fraction
        defects = Defects(name, len(source), max_bad)
        dataset = loader.Dataset(source, {}, defects)
        total, kept, index = None, [], []
        for known, batch_index, (sums, some) in self._started(dataset, number):
            total = sums if total is None else self._add(total, sums)
            kept.append(jax.tree.map(lambda x, k=known: np.asarray(x)[k], some))
            index.append(batch_index[known])
        sums, resampled = jax.device_get(total)
        intervals = {}
        if self.num_resamples:
            intervals = resampling.intervals(task, resampled, sums)
        numbers = np.concatenate(index)
        whole = jax.tree.map(lambda *parts: np.concatenate(parts), *kept)
        return PassResult(
            task.values(sums, whole["metrics"]),
            intervals,
            whole["asked"],
            numbers,
            len(source) - len(numbers),
        )

    def _started(
        self, dataset: loader.Dataset, number: float
    ) -> Iterator[tuple[np.ndarray, np.ndarray, Any]]:
        """Yield the mask, the numbers and the result of each batch, one late."""
        subject = self.subject
        weights = self._once("weights", self._place)
        step = self._once("step", self._jit)
        found = passes.over_split(
            subject.data,
            dataset,
            subject.model.mesh,
            subject.batch_size(),
            lambda batches: step(*weights, batches, jnp.float32(number)),
        )
        for batch, result in found:
            yield batch["mask"] > 0, batch["index"], result

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._compiled:
            self._compiled[name] = make()
        return self._compiled[name]

    def _place(self) -> Any:
        model = self.subject.model
        where = sharding.replicated(model.mesh)
        return jax.device_put((model.params, model.model_state), where)

    def _jit(self) -> Any:
        return jax.jit(self._step, out_shardings=sharding.replicated(self._mesh))

    @property
    def _mesh(self) -> jax.sharding.Mesh:
        return self.subject.model.mesh

    def _add(self, total: Any, new: Any) -> Any:
        return self._once("add", lambda: jax.jit(_add, donate_argnums=0))(total, new)

    def _step(
        self, params: Any, model_state: Any, batches: Batch, number: jax.Array
    ) -> tuple[tuple[Sums, Sums], dict[str, Any]]:
        """Return the sums of a batch, those of resamples, and what is kept."""
        subject, task = self.subject, self.subject.task
        batch = jax.tree.map(lambda x: x[0], batches)
        if subject.size is not None:
            batch = windows.centres(batch, subject.size, subject.fit, task.follow)

        def apply(pixels: jax.Array) -> jax.Array:
            return subject.model.forward(
                params, model_state, subject.model.prepare(pixels)
            )

        pixels = batch["image"]
        target = task.target({**batch, "image": subject.model.prepare(pixels)})
        if self.attack is not None:
            pixels = self._attacked(apply, pixels, target, batch["index"])
        outputs = self._outputs(apply, pixels)
        sums = task.sums(outputs, target, batch["mask"])
        resampled = {}
        if self.num_resamples:
            root = keys.root_key(subject.seed)
            counts = resampling.weights(root, batch["index"], self.num_resamples)
            names = resampling.wanted_sums(task, sums)
            resampled = resampling.resampled_sums(
                task, names, outputs, target, batch["mask"], counts
            )
        asked = {} if self.keep is None else self.keep(outputs, target, number)
        kept = {"asked": asked, "metrics": task.kept(outputs, target)}
        return (sums, resampled), kept

    def _outputs(self, apply: Apply, pixels: jax.Array) -> jax.Array:
        height, width, _ = self.subject.model.image_shape
        return self.view(apply, pixels, (height, width))

    def _attacked(
        self, apply: Apply, pixels: jax.Array, target: Any, index: jax.Array
    ) -> jax.Array:
        """Return the pixels in 0..255 that the attack makes of them."""
        assert self.attack is not None
        task = self.subject.task
        dtype = wide(self.subject.model.policy.compute_dtype)

        def loss_of(images: jax.Array) -> jax.Array:
            outputs = self._outputs(apply, 255 * images)
            return task.checked_loss(outputs, target, training=False)

        stream = keys.stream(keys.root_key(self.subject.seed), keys.ATTACK)
        each = jax.vmap(lambda i: jax.random.fold_in(stream, i))(index)
        return 255 * self.attack(loss_of, pixels.astype(dtype) / 255, each)


def _add(total: Any, new: Any) -> Any:
    return jax.tree.map(jnp.add, total, new)
