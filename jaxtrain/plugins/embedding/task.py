"""Metric-learning task, trained with ArcFace or a contrastive loss."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config.part import typed_options
from jaxtrain.dtypes import wide
from jaxtrain.errors import UserError
from jaxtrain.models.centres import CENTRES, WithCosines
from jaxtrain.plugins.embedding.decoder import NAME, EmbeddingDecoder, of_length_one
from jaxtrain.plugins.embedding.losses import arcface_losses, contrastive_losses
from jaxtrain.plugins.embedding.neighbours import (
    Neighbours,
    find_neighbours,
    knn_accuracy,
    mean_loss,
    recall_at,
)
from jaxtrain.plugins.embedding.options import MARGIN, SCALE, EmbeddingConfig
from jaxtrain.tasks.base import Sums, Task, Values
from jaxtrain.tasks.class_labels import check_labels
from jaxtrain.tasks.class_metrics import mean_known
from jaxtrain.tasks.decoder import OutputDecoder, OutputFacts
from jaxtrain.tasks.metrics import Metric

# Values of k of the recall@k metrics.
RANKS = (1, 5, 10)


def keep_embeddings(outputs: jax.Array, target: jax.Array) -> dict[str, jax.Array]:
    """Return the unit-length embeddings and the classes of a batch."""
    return {"embedding": of_length_one(outputs), "label": target}


def _metric(value: Any, title: str) -> Metric:
    """Create a metric from `value`, a function of the `Neighbours` of all examples."""

    def of_neighbours(found: Neighbours, num_examples: int) -> float | None:
        return value(found)

    return Metric(
        keep=keep_embeddings, value=of_neighbours, better="higher", title=title
    )


METRICS = {
    **{
        f"recall_at_{k}": _metric(partial(recall_at, k=k), f"recall at {k}")
        for k in RANKS
    },
    "knn_accuracy": _metric(knn_accuracy, "kNN accuracy"),
}
# Key in `Task.kept` under which all metrics share the embeddings and labels.
KEPT = next(iter(METRICS))


class Embedding(Task):
    """Metric-learning task with embeddings (B, size) as outputs.

    Targets are class indices, int (B,). Metrics and predictions use embeddings of unit
    length. The classes of an evaluation may differ from the training classes.

    Args:
      image_shape: Shape of the images.
      facts: Metadata of the data set: `num_classes`, required for ArcFace, and
        `class_names` if known.
      **given: Fields of `EmbeddingConfig`.

    Raises:
      UserError: The loss is ArcFace, but the number of classes is unknown.
    """

    Options = EmbeddingConfig
    known_metrics = METRICS
    best_metric = "recall_at_1"
    shown = ("recall_at_1",)
    loss_of_examples = False
    supports = frozenset({"data.hold_out"})
    refused: Mapping[str, str] = {
        f"data.augment.{name}": "a mixture of two classes belongs to neither"
        for name in ("mixup", "cutmix")
    }

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        facts: Mapping[str, Any],
        **given: Any,
    ):
        del image_shape
        self._options = options = EmbeddingConfig(**given)
        self.num_outputs = options.size
        self._names = facts.get("class_names")
        self._labelled = facts.get("all_labelled", False)
        self.needs_whole_batch = options.loss == "contrastive"
        if options.loss == "arcface":
            if "num_classes" not in facts:
                raise UserError(
                    "task.loss = 'arcface' requires the number of classes, which is "
                    "unknown for this data set: set task.loss to contrastive, or "
                    "choose another data.source"
                )
            self.num_centres = facts["num_classes"]

    def label(self, target: Any) -> str:
        number = int(target)
        names = self._names or ()
        return str(names[number] if 0 <= number < len(names) else number)

    def check_targets(self, targets: Any, split: str) -> None:
        # The classes of an evaluation may differ from the training classes.
        check_labels(targets, split, num_classes=None)

    def loss(self, outputs: Any, target: Any, *, training: bool) -> jax.Array:
        """Compute the training loss, (B,); zeros in evaluation.

        Raises:
          UserError: In training, the outputs lack the cosines with the class centres.
        """
        options = self._options
        if not training:
            return jnp.zeros(len(target), wide(outputs.dtype))
        if options.loss == "contrastive":
            return contrastive_losses(outputs, target, temperature=options.temperature)
        if not isinstance(outputs, WithCosines):
            raise UserError(
                "task.loss = 'arcface': in training, the outputs lack the cosines that "
                f"the layer {CENTRES!r} computes; remove the layer from train.freeze, "
                "and set model.aux_weight to 0"
            )
        return arcface_losses(
            outputs.cosines,
            target,
            margin=MARGIN if options.margin is None else options.margin,
            scale=SCALE if options.scale is None else options.scale,
        )

    def train_metrics(self, outputs: Any, target: Any) -> dict[str, jax.Array]:
        if not self.num_centres:
            return {}
        hits = jnp.argmax(outputs.cosines, -1) == target
        return {"accuracy": mean_known(hits, None if self._labelled else target >= 0)}

    def values(
        self, sums: Sums, kept: Mapping[str, Any] = MappingProxyType({})
    ) -> Values:
        """Compute the metrics; `loss` is the contrastive loss over all examples."""
        if KEPT not in kept:
            found = super().values(sums, kept)
            del found["loss"]
            return found
        # Examples of unknown class are excluded.
        known = kept[KEPT]["label"] >= 0
        examples = {name: x[known] for name, x in kept[KEPT].items()}
        temperature = self._options.temperature
        neighbours = find_neighbours(**examples, temperature=temperature)
        found = super().values(sums, {**kept, KEPT: neighbours})
        return {**found, "loss": mean_loss(neighbours)}

    @classmethod
    def decoder(cls, facts: OutputFacts) -> OutputDecoder:
        size = typed_options(EmbeddingConfig, facts.options, NAME).size
        return EmbeddingDecoder(facts, size)

    def nearest(self, embedding: np.ndarray) -> np.ndarray:
        no_label = np.zeros(len(embedding), np.int64)
        return find_neighbours(embedding, no_label, temperature=1.0).nearest
