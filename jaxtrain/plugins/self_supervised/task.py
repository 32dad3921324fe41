"""Self-supervised task: learning from two augmented views of each image."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config.part import typed_options
from jaxtrain.data.augment.mix import swap
from jaxtrain.data.batch import Batch
from jaxtrain.dtypes import wide, widen
from jaxtrain.errors import UserError
from jaxtrain.models.auxiliary import WithAuxiliary
from jaxtrain.models.centres import unit
from jaxtrain.models.projection import PROJECTION, Projected, Projection
from jaxtrain.plugins.embedding.decoder import EmbeddingDecoder
from jaxtrain.plugins.embedding.losses import agreement_losses, contrastive_losses
from jaxtrain.plugins.embedding.task import Embedding
from jaxtrain.plugins.self_supervised.options import SelfSupervisedConfig
from jaxtrain.tasks.base import Forward
from jaxtrain.tasks.decoder import OutputDecoder, OutputFacts
from jaxtrain.tasks.requirements import Required

NAME = "self_supervised"
# Default temperature, from the hyperparameter search of the SimCLR paper for small
# batches without warm-up.
TEMPERATURE = 0.5
# Requirements on data.repeats (all losses) and train.ema_decay (BYOL).
VIEWS = Required(
    lambda repeats: repeats == 2,
    "the loss compares two views of each image, which are adjacent in a batch",
    "set data.repeats = 2, and augmentations in data.augment",
)
AVERAGE = Required(
    lambda decay: decay is not None,
    "the target network of task.loss = 'byol' is the EMA of the weights",
    "set train.ema_decay, for example to 0.99, or set task.loss to simclr",
)


class SelfSupervised(Embedding):
    """Task that learns embeddings (B, size) from two augmented views of each image.

    Training ignores labels. Evaluations, as in the task `embedding`, compare the label
    of each image with its nearest neighbours' labels.

    Args:
      image_shape: Height, width and channels of the images.
      facts: Metadata of the data set, with `class_names` if known.
      **given: Fields of `SelfSupervisedConfig`.
    """

    Options = SelfSupervisedConfig
    best_metric = "knn_accuracy"
    shown = ("knn_accuracy",)
    needs_whole_batch = True
    refused: Mapping[str, str] = {
        f"data.augment.{name}": "a mixture of two images is not a view of either"
        for name in ("mixup", "cutmix")
    }

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        facts: Mapping[str, Any],
        **given: Any,
    ):
        options = SelfSupervisedConfig(**given)
        temperature = TEMPERATURE
        if options.temperature is not None:
            temperature = options.temperature
        super().__init__(
            image_shape,
            facts,
            loss="contrastive",
            size=options.size,
            temperature=temperature,
        )
        self.reads_average = options.loss == "byol"
        self.projection = Projection(options.projection_size, self.reads_average)
        required = {"data.repeats": VIEWS}
        if self.reads_average:
            required["train.ema_decay"] = AVERAGE
        self.required = MappingProxyType(required)

    def check_targets(self, targets: Any, split: str) -> None:
        # All labels of a split may be -1, unknown, as training does not use labels.
        if isinstance(targets, np.ndarray):
            targets = np.abs(targets)
        super().check_targets(targets, split)

    def loss(self, outputs: Any, target: Any, *, training: bool) -> jax.Array:
        """Return zeros for evaluations; `objective` computes the training loss."""
        del training
        return jnp.zeros(len(target), wide(outputs.dtype))

    def objective(
        self, forward: Forward, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array], Any]:
        """Compute the loss of each view, (B,), the metrics, and the new model state.

        Raises:
          UserError: The projection head is frozen, or the model has auxiliary heads.
        """
        outputs, model_state = forward(batch["image"], key)
        views = _projected(outputs)
        if self.reads_average:
            targets = _projected(forward(batch["image"], key, average=True)[0])
            # The prediction from a view should equal the projection of the other view.
            losses = agreement_losses(views.prediction, swap(targets.projection))
        else:
            losses = contrastive_losses(
                views.projection,
                batch["index"],
                temperature=self._options.temperature,
            )
        return losses, {"spread": spread(views.projection)}, model_state

    @classmethod
    def decoder(cls, facts: OutputFacts) -> OutputDecoder:
        options = typed_options(SelfSupervisedConfig, facts.options, NAME)
        return EmbeddingDecoder(facts, options.size)


def spread(projection: jax.Array) -> jax.Array:
    """Total standard deviation of normalized projections in a batch, float32 ().

    The square root of the summed feature variances: near 1 for uniformly distributed
    directions, and 0 for equal projections, a collapse (Chen and He 2020,
    arXiv:2011.10566, figure 2).

    Args:
      projection: Projections, not normalized, (B, size).
    """
    variance = jnp.var(unit(widen(projection)), axis=0)
    return jnp.sqrt(jnp.sum(variance)).astype(jnp.float32)


def _projected(outputs: Any) -> Any:
    if isinstance(outputs, Projected):
        return outputs
    if isinstance(outputs, WithAuxiliary):
        raise UserError(
            f"task = {NAME!r}: outputs of auxiliary heads have no projection; set "
            "model.aux_weight to 0"
        )
    raise UserError(
        f"train.freeze: task = {NAME!r} trains the layers {PROJECTION!r}, which cannot "
        "be frozen; remove these layers from train.freeze"
    )
