"""Tasks: outputs of a model, and how good they are. Rows: `jaxtrain.tasks.TASKS`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np

from jaxtrain.config.base import Section
from jaxtrain.data.batch import Batch
from jaxtrain.models.projection import Projection
from jaxtrain.tasks.array_decoder import RowDecoder
from jaxtrain.tasks.class_decoder import ClassDecoder
from jaxtrain.tasks.decoder import OutputDecoder, OutputFacts
from jaxtrain.tasks.metrics import Metric, values_of
from jaxtrain.tasks.outputs import in_numbers
from jaxtrain.tasks.training_losses import losses_and_metrics

if TYPE_CHECKING:
    from jaxtrain.tasks.requirements import Required

Sums = dict[str, Any]
# (images, key, *, average=False) -> (outputs, new model state).
Forward = Callable[..., tuple[Any, Any]]
Values = Sums


class Task:
    """What is learnt from a data set.

    A subclass is created with the shape of the images (H, W, C) and the facts of the
    data set (`Store.facts`), and sets `num_outputs` or `output_spec`: outputs are
    arrays (B, num_outputs), or what the latter says.

    Attributes:
      Options: Frozen dataclass, a `jaxtrain.config.base.Section`, of the keywords that
        `__init__` takes, with defaults and checks. None means that it gets
        `task_options` as they are. A subclass with an `__init__` declares its own.
      output_spec: Shape of what the model puts out for one image: (height, width,
        features) for a map; or dicts and tuples of shapes, of several heads. None means
        (num_outputs,).
      num_outputs: Features of the last layer; by default the sum of the last sizes.
      class_names: of the outputs, where each stands for a class; else None.
      column_names: of the numbers of a target, where it has several columns, or one
        with a name; of the classes of boxes; else None.
      settled: Options taken from the training targets, which the config then holds.
      refused: Path of a field of the config that has no meaning for the task -> why.
      required: Path of a field of the config -> what the task asks of its value.
      target_changes: Changes of images that `transform_target` applies to stored
        targets: `Geometry` (cropped, mirrored, turned), and of
        `jaxtrain.data.target_changes` `Mixing` (mixup and cutmix), `Pasting` (cutmix
        alone) and `Mosaic`. Without `Geometry` targets stay as they are; images are
        mixed and joined only by changes that are named here.
      supports: Of `data.hold_out`, `data.sliding_size`, `train.tta`: those that apply.
      chosen: What an evaluation of the validation split has chosen for the weights at
        hand (`choose`), such as thresholds; {} if there was none. None means that the
        validation split is evaluated, which chooses.
      whole_images: Whether targets are of whole images: proposed recipes neither cut
        nor mirror any, but as `advice` says.
      size_multiple: Number of pixels of which the image height and width must be
        multiples under the default options: proposed recipes round sizes up to one.
      classes_fact: Fact of a data set that names the classes of the targets; None: they
        have none.
      num_centres: Classes whose centres the model learns behind its outputs, which in
        training are then `jaxtrain.models.centres.WithCosines`; 0: none.
      projection: Layers that the model learns behind its outputs, which in training are
        then `jaxtrain.models.projection.Projected`; None: none.
      reads_average: Whether the objective asks for outputs by the moving average of the
        weights (`train.ema_decay`, which such a task requires).
      needs_whole_batch: Whether the loss of an example depends on the others of its
        batch, so that a part of a batch has another.
      loss_of_examples: Whether the loss of an evaluation is a mean of losses that
        examples have by themselves; attacks and the report ask for these.
      one_class_an_image: Whether an image shows one of these classes, whose number is
        the target: the softmax of the outputs then gives their probabilities, which
        calibration, averaged views and the check of labels ask for.
      best_metric: Main metric, which makes a checkpoint the best, unless the config
        names another, and which attacks and corruptions are judged by.
      lowest: Metric of the classes whose lowest an evaluation shows, and its title.
      known_metrics: All metrics that tasks of this class may have, by name, to show
        records of.
      own_metrics: of the user's own, beside those of the task.
      shown: metrics, of training and of evaluations, that the screen shows beside the
        loss.
    """

    Options: ClassVar[type[Section] | None] = None
    output_spec: Any = None
    num_outputs: int
    class_names: tuple[str, ...] | None = None
    column_names: tuple[str, ...] | None = None
    settled: Mapping[str, Any] = MappingProxyType({})
    refused: Mapping[str, str] = MappingProxyType({})
    required: Mapping[str, Required] = MappingProxyType({})
    num_centres: int = 0
    projection: Projection | None = None
    reads_average: bool = False
    needs_whole_batch: bool = False
    loss_of_examples: ClassVar[bool] = True
    whole_images: ClassVar[bool] = False
    size_multiple: ClassVar[int] = 1
    one_class_an_image: ClassVar[bool] = False
    target_changes: ClassVar[tuple[type, ...]] = ()
    supports: ClassVar[frozenset[str]] = frozenset()
    classes_fact: ClassVar[str | None] = None
    chosen: Mapping[str, Any] | None = None
    best_metric: ClassVar[str] = "loss"
    lowest: ClassVar[tuple[str, str]] = "recall", "lowest recall"
    known_metrics: ClassVar[Mapping[str, Metric]] = MappingProxyType({})
    own_metrics: Mapping[str, Metric] = MappingProxyType({})
    shown: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # The constructor may be that of another class, laid over a task.
        made = (vars(kind) for kind in cls.__mro__)
        if "Options" not in next(d for d in made if {"__init__", "Options"} & d.keys()):
            cls.Options = None

    def check_targets(self, targets: Any, split: str) -> None:
        """Look at stored targets of a split.

        Args:
          targets: as the store reads them, on the host: all, where no image has to be
            read for them, else a few.
          split: as messages call it.

        Raises:
          UserError: they cannot be learnt.
        """

    def label(self, target: Any) -> str:
        """Return what a person calls a stored target of one example."""
        del target
        return ""

    def target(self, batch: Batch) -> Any:
        """Return what the model is to learn of a prepared batch: any pytree.

        It may come from the stored `target`, or from the `image` (B, H, W, C) as the
        model sees it: augmented and normalised.
        """
        return batch["target"]

    def transform_target(self, target: Any, change: Any) -> Any:
        """Return the stored target of a changed image, traced.

        Args:
          target: Target of one example. Of changes that make one image of several, the
            targets of all: of a batch and of its partners, or of four examples.
          change: Instance of one of `target_changes`.
        """
        raise NotImplementedError

    def loss(self, outputs: Any, target: Any, *, training: bool) -> jax.Array:
        """Return the loss of each example, (B,), in at least float32.

        Args:
          outputs: Outputs of the model, of the shapes of `output_spec`.
          target: what `target` returned.
          training: whether it is the loss that training lowers; else it is the one
            that an evaluation tells.
        """
        raise NotImplementedError

    def labelled(self, target: Any) -> jax.Array | None:
        """Return which examples an evaluation counts, bool (B,); None: all.

        Args:
          target: What `target` returned.
        """
        del target
        return None

    def objective(
        self, forward: Forward, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array], Any]:
        """Return the loss of each example, (B,), metrics, and the new model state.

        By default it is one forward pass, `loss` and `train_metrics`. A task whose loss
        needs another pass, or more than the outputs, says here what training lowers;
        it is then not trained in pipeline stages.

        Args:
          forward: Function `(images, key, *, average=False) -> (outputs, new model
            state)`: the model in training mode. Each call begins with the state before
            the step. With `average`, of a task that `reads_average`, the outputs are
            those of the moving average of the weights, which gets no gradients.
          batch: Prepared batch, with `image`, stored `target` and `index`.
          key: Key for what is random in the model.
        """
        outputs, model_state = forward(batch["image"], key)
        losses, metrics = losses_and_metrics(self, outputs, self.target(batch))
        return losses, metrics, model_state

    def train_metrics(self, outputs: Any, target: Any) -> dict[str, jax.Array]:
        """Return means over a batch that are told beside the loss, float32 each."""
        del outputs, target
        return {}

    def metrics(self) -> Mapping[str, Metric]:
        """Return the metrics of an evaluation beside the loss, by default all known."""
        return self.known_metrics

    def choose(self, validation: Values) -> dict[str, list[float]]:
        """Return values that the validation split chooses, by name, one per output.

        They are saved with the weights as `chosen`.
        """
        del validation
        return {}

    @classmethod
    def decoder(cls, facts: OutputFacts) -> OutputDecoder:
        """Return the decoder of the outputs of a run of this class of tasks.

        Predictions, exports and the server import a user's own with `--trust` alone.
        """
        if not facts.is_row:
            return OutputDecoder(facts)
        return RowDecoder(facts) if facts.class_names is None else ClassDecoder(facts)

    def draw_target(self, image: np.ndarray, target: Any) -> np.ndarray:
        """Draw a target on its image for a preview; by default return the image alone.

        Args:
          image: Prepared image, uint8 (H, W, C).
          target: Stored target of the prepared image, on the host.
        """
        del target
        return image

    def draw_example(
        self, image: np.ndarray, target: Any, outputs: Any
    ) -> Mapping[str, np.ndarray | str]:
        """Return what the report shows of an example, by what it is called.

        By default the numbers of both. `tasks/pictures.py` draws masks and boxes.

        Args:
          image: Image as the model saw it, uint8 (H, W, C).
          target: What `target` returned for it, on the host.
          outputs: Outputs of the model for it, on the host.

        Returns:
          Pictures, uint8 (H, W, C), and texts, of which a page has the beginning.
        """
        return {"target": in_numbers(target), "prediction": in_numbers(outputs)}

    def values(
        self, sums: Sums, kept: Mapping[str, Any] = MappingProxyType({})
    ) -> Values:
        """Turn the sums of an evaluation, on the host, into metrics.

        Metrics whose sums are missing are left out. A loss of NaN makes all numbers NaN
        and leaves out lists: an `argmax` of NaN would be a hit of class 0.

        Args:
          sums: Sums over all examples.
          kept: What metrics keep of each example, (N, ...) each.
        """
        return values_of({**self.metrics(), **self.own_metrics}, sums, kept)


def with_chosen(task: Task, chosen: Mapping[str, Any]) -> Task:
    """Return a task with what validation has chosen; {} if nothing."""
    task = copy.copy(task)
    task.chosen = chosen
    return task


def defines(task: Task | type[Task], method: str) -> bool:
    """Whether a task has a method of its own in place of that of `Task`."""
    kind = task if isinstance(task, type) else type(task)
    return getattr(kind, method) is not getattr(Task, method)
