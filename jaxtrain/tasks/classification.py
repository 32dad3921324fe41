"""Image classification task."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config.classification import ClassificationConfig
from jaxtrain.data.columns import NAMES
from jaxtrain.data.target_changes import Mixing
from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError, counted
from jaxtrain.tasks import losses
from jaxtrain.tasks.balance import class_weights, log_shares
from jaxtrain.tasks.base import Task, Values
from jaxtrain.tasks.class_labels import check_labels
from jaxtrain.tasks.class_metrics import METRICS, confusion, mean_known
from jaxtrain.tasks.losses import binary_cross_entropy, cross_entropy
from jaxtrain.tasks.metrics import Metric
from jaxtrain.tasks.pictures import draw_matrix
from jaxtrain.tasks.proposals import Advice

# Largest number of classes for which a confusion matrix is readable.
MAX_MATRIX_CLASSES = 100
# Recipes use balanced sampling if the largest class has this many times the examples
# of the smallest class, or more.
UNBALANCED = 3
# Smallest number of classes for which recipes use label smoothing.
MANY_CLASSES = 10
# Softmax losses (logits, labels) -> (B,), other than the cross entropy.
LOSSES = {
    "focal": losses.focal,
    "poly": losses.poly,
    "symmetric": losses.symmetric,
    "bootstrap": losses.bootstrap,
}


class MixedLabels(NamedTuple):
    """Targets of images mixed in pairs (mixup, cutmix), arrays (B,).

    Attributes:
      label: Class of each image.
      partner: Class of the image that is mixed in.
      weight: Weight of `label`, 0 to 1; `partner` has the weight 1 - `weight`.
    """

    label: jax.Array
    partner: jax.Array
    weight: jax.Array


class Classification(Task):
    """Image classification, with class indices, int32 (B,), as targets.

    In training, targets may be `MixedLabels`. Examples of unknown class (negative
    index) have a training loss of 0, and are excluded from evaluations.

    Args:
      image_shape: Shape of the images (H, W, C).
      facts: Metadata of the data set: `num_classes`, and optionally `class_names`,
        `all_labelled` (whether all training examples have a label) and, for training,
        `class_counts` (a function).
      **given: Fields of `ClassificationConfig`: label smoothing (Szegedy et al. 2016,
        arXiv:1512.00567), the loss with its target threshold (Wightman et al. 2021,
        arXiv:2110.00476), class weights and logit adjustment.

    Raises:
      UserError: The number of classes is unknown, or differs from the number of class
        names or class weights.
    """

    Options = ClassificationConfig
    one_class_an_image = True
    supports = frozenset({"train.tta"})
    target_changes = (Mixing,)
    classes_fact = "class_names"
    best_metric = "accuracy"
    known_metrics = METRICS
    shown = ("accuracy",)

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        facts: Mapping[str, Any],
        **given: Any,
    ):
        del image_shape
        set_here = {name: value for name, value in given.items() if value is not None}
        options = ClassificationConfig(**set_here)
        if "num_classes" not in facts:
            raise UserError(f"task = 'classification': {_why_unclassed(facts)}")
        self.num_outputs = facts["num_classes"]
        self._all_labelled = facts.get("all_labelled", False)
        names = facts.get("class_names")
        names = range(self.num_outputs) if names is None else names
        self._names = self.class_names = tuple(map(str, names))
        if len(self._names) != self.num_outputs:
            raise UserError(
                f"the data set has {self.num_outputs} classes, but {len(self._names)} "
                "class names: give one name per class"
            )
        self._smoothing, self._options = options.label_smoothing, options
        self._binary = options.loss == "binary_cross_entropy"
        self._threshold = options.target_threshold
        self._weights: np.ndarray | None = None
        # Evaluations pass no `class_counts`, as their loss has no class weights.
        if options.class_weights is not None and "class_counts" in facts:
            self._weights = class_weights(options.class_weights, facts["class_counts"])
        self._adjustment: np.ndarray | None = None
        if options.logit_adjustment is not None and "class_counts" in facts:
            shares = log_shares(facts["class_counts"])
            self._adjustment = options.logit_adjustment * shares

    def label(self, target: np.ndarray) -> str:
        return self._names[int(target)] if target >= 0 else "no label"

    def check_targets(self, targets: Any, split: str) -> None:
        check_labels(targets, split, self.num_outputs)

    def transform_target(
        self, target: tuple[jax.Array, jax.Array], change: Mixing
    ) -> MixedLabels:
        return MixedLabels(*target, change.weight)

    def loss(
        self, outputs: jax.Array, target: jax.Array | MixedLabels, *, training: bool
    ) -> jax.Array:
        if training and self._binary:
            loss = self._binary_loss(outputs, target)
        else:
            if training and self._adjustment is not None:
                outputs = widen(outputs)
                outputs = outputs + jnp.asarray(self._adjustment, outputs.dtype)
            loss = self._softmax_loss(outputs, target, training)
        return jnp.where(_is_known(target), loss, 0)

    def _softmax_loss(
        self, outputs: jax.Array, target: jax.Array | MixedLabels, training: bool
    ) -> jax.Array:
        if isinstance(target, MixedLabels):
            return _shared(
                target, lambda label: self._softmax_loss(outputs, label, training)
            )
        if not training:
            return cross_entropy(outputs, target)
        if self._options.loss == "cross_entropy":
            loss = cross_entropy(outputs, target, self._smoothing)
        else:
            loss = LOSSES[self._options.loss](outputs, target)
        return self._weighed(loss, target)

    def _binary_loss(
        self, outputs: jax.Array, target: jax.Array | MixedLabels
    ) -> jax.Array:
        """Binary cross entropy over all classes.

        The target threshold applies to the mixed and smoothed targets.
        """
        weighs, joint = self._weights is not None, self._threshold is not None
        if isinstance(target, MixedLabels) and weighs and not joint:
            # Interpolate the weighted losses of both classes, as for the cross entropy.
            # Without weights, the loss for the interpolated target is equal, and faster
            # to compute.
            return _shared(target, lambda label: self._binary_loss(outputs, label))
        targets = self._probabilities(target)
        if self._threshold is not None:
            targets = targets > self._threshold
        return self._weighed(binary_cross_entropy(outputs, targets), target)

    def _probabilities(self, target: jax.Array | MixedLabels) -> jax.Array:
        """Target class probabilities after label smoothing, float32 (B, classes)."""
        if isinstance(target, MixedLabels):
            return _shared(target, self._probabilities)
        true = jax.nn.one_hot(target, self.num_outputs, dtype=jnp.float32)
        return (1 - self._smoothing) * true + self._smoothing / self.num_outputs

    def _weighed(self, loss: jax.Array, target: jax.Array | MixedLabels) -> jax.Array:
        """Multiply the loss of each example by its class weight.

        For mixed examples, the weights of both classes are interpolated.
        """
        if self._weights is None:
            return loss
        weights = jnp.asarray(self._weights, loss.dtype)
        if isinstance(target, MixedLabels):
            return loss * _shared(target, lambda label: weights[label])
        return loss * weights[target]

    def labelled(self, target: jax.Array) -> jax.Array:
        return _is_known(target)

    def train_metrics(
        self, outputs: jax.Array, target: jax.Array | MixedLabels
    ) -> dict[str, jax.Array]:
        first = jnp.argmax(outputs, -1)
        if isinstance(target, MixedLabels):
            one, other = (first == label for label in target[:2])
            hits = target.weight * one + (1 - target.weight) * other
        else:
            hits = first == target
        known = None if self._all_labelled else _is_known(target)
        return {"accuracy": mean_known(hits, known)}

    @classmethod
    def suits(cls, facts: Mapping[str, Any], groups: np.ndarray) -> bool:
        del groups
        return "num_classes" in facts

    @classmethod
    def advice(cls, class_counts: np.ndarray) -> Advice:
        advice: Advice = {}
        if len(class_counts) >= MANY_CLASSES:
            reason = "reduces overconfidence with many classes"
            advice["task"] = {"label_smoothing": (0.1, reason)}
        few, many = class_counts.min(), class_counts.max()
        if many >= UNBALANCED * few and len(class_counts) > 1:
            same = f"equal shares of the classes, which have {few:,} to {many:,} images"
            advice["data"] = {"sampling": ("balanced", same)}
            mean = "mean recall of the classes, for imbalanced classes"
            advice["checkpoint"] = {"best_metric": ("balanced_accuracy", mean)}
        return advice

    def metrics(self) -> Mapping[str, Metric]:
        most = self.num_outputs <= MAX_MATRIX_CLASSES
        return {
            name: metric
            for name, metric in METRICS.items()
            if metric.min_classes <= self.num_outputs
            and (most or metric.add is not confusion)
        }

    def pictures(self, values: Values) -> dict[str, np.ndarray]:
        matrix = values.get("confusion_matrix")
        if matrix is None:
            return {}
        return {"confusion_matrix": draw_matrix(np.array(matrix), self._names)}


def _why_unclassed(facts: Mapping[str, Any]) -> str:
    """Return the reason why targets of a data set are not classes, and the fix."""
    if NAMES not in facts:
        return (
            "the number of classes of the data set is unknown: choose another task or "
            "data.source"
        )
    num = len(facts[NAMES])
    told = f"the targets of the data set are {counted(num, 'column')} of numbers"
    if num > 1 and "training_targets" in facts:
        targets = np.asarray(facts["training_targets"]())
        shares = (targets >= 0).all() and ((targets > 0) & (targets < 1)).any()
        if shares and np.allclose(targets.sum(axis=-1), 1, atol=1e-3):
            told = (
                f"the targets of the data set are probabilities of {num} classes "
                "(soft labels), which no task supports"
            )
    return (
        f"{told}: give the class index of each image, integers (N,), such as "
        "label.argmax(axis=1); or choose task = 'multilabel' or 'regression'"
    )


def _is_known(target: jax.Array | MixedLabels) -> jax.Array:
    """Whether the class of each example is known, bool (B,).

    For a mixed example both classes must be known, or only `label` if it has weight 1.
    """
    if isinstance(target, MixedLabels):
        one, other = target.label >= 0, target.partner >= 0
        return one & (other | (target.weight == 1))
    return target >= 0


def _shared(target: MixedLabels, of: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Interpolate `of(label)` and `of(partner)` by the mixing ratio, (B, ...)."""
    one, other = of(target.label), of(target.partner)
    share = target.weight.astype(one.dtype).reshape(-1, *[1] * (one.ndim - 1))
    return share * one + (1 - share) * other
