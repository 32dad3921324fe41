"""Attacks on batches: for each image, the worst result of several attacks.

Each step of an attack is a call of a compiled program: loops inside a program are slow
on XLA:CPU, and a hundred unrolled steps would compile for minutes.
"""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import keys
from jaxtrain.data.batch import Batch
from jaxtrain.dtypes import wide
from jaxtrain.errors import UserError
from jaxtrain.evaluation.resampling import SEED
from jaxtrain.inference.model import TrainedModel
from jaxtrain.plugins.adversarial.attacks import Ball, Pgd
from jaxtrain.plugins.robustness.apgd import (
    Apgd,
    Climb,
    Judge,
    likeliest_others,
    targeted_dlr,
)
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.training_losses import checked_loss
from jaxtrain.tools.evaluation.passes import SHOWN
from jaxtrain.training.calls_ahead import Pace
from jaxtrain.training.views import View

# Attack -> default number of steps. The position of an attack in this dict is folded
# into its PRNG key.
STEPS = {"fgsm": 1, "pgd": 10, "apgd-ce": 100, "apgd-t": 100}
# Attacks that need one class per image, and the one that needs at least four classes.
OF_CLASSES, OF_FOUR = ("apgd-ce", "apgd-t"), "apgd-t"
# Number of target classes of the targeted attack: the most likely wrong classes.
NUM_TARGETS = 9
# Batch key. Values: 0 if the clean image is misclassified; k if the k-th attack was the
# first to fool the model; number of attacks + 1 if no attack did.
FOOLED_BY = "fooled_by"


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    """Threat model: allowed perturbations, and the attacks to run.

    Attributes:
      attacks: Names of the attacks (see `STEPS`), in the order of their execution.
      ball: Norm ball of the allowed perturbations.
      steps: Number of steps of each attack except `fgsm`. Defaults to `STEPS`.
    """

    attacks: tuple[str, ...]
    ball: Ball
    steps: int | None = None

    def steps_of(self, name: str) -> int:
        """Number of steps of an attack."""
        return STEPS[name] if name == "fgsm" or self.steps is None else self.steps

    def check(self, task: Task, name: str) -> None:
        """Check that a task supports the attacks.

        Args:
          task: Task to check.
          name: Name of the task, for messages.

        Raises:
          UserError: The task has no loss per image, or too few classes for an attack.
        """
        first = f"--attack {self.attacks[0]}"
        if not task.loss_of_examples:
            raise UserError(
                f"{first}: attacks require a loss per example, which task = {name!r} "
                "does not define; leave --attack out"
            )
        needing = [attack for attack in self.attacks if attack in OF_CLASSES]
        if needing and not task.one_class_an_image:
            raise UserError(
                f"--attack {needing[0]} requires one class per image, which task = "
                f"{name!r} does not predict; give --attack pgd"
            )
        if OF_FOUR in needing and task.num_outputs < 4:
            raise UserError(
                f"--attack {OF_FOUR} requires 4 or more classes, but the model has "
                f"{task.num_outputs}; give --attack apgd-ce"
            )


class Given(NamedTuple):
    """A batch to attack.

    Attributes:
      images: Clean images in 0..1, (B, H, W, C).
      target: Targets from `Task.target`, (B, ...).
      mask: Mask of the examples, (B,); zero marks padding.
      keys: PRNG key of each image, (B,).
      others: Wrong classes of each image, most likely first, (num, B); num is 0 for
        tasks without one class per image.
    """

    images: jax.Array
    target: Any
    mask: jax.Array
    keys: jax.Array
    others: jax.Array


class Worst(NamedTuple):
    """Worst version of each image so far, clean or attacked; arrays are (B, ...).

    Attributes:
      images: Images in 0..1: the first version that fooled the model, or the version
        with the highest loss if none did.
      loss: Loss of `images`.
      errs: Whether the prediction for `images` is wrong.
      by: Number of the attack that fooled the model (see `FOOLED_BY`).
    """

    images: jax.Array
    loss: jax.Array
    errs: jax.Array
    by: jax.Array


class Attacker:
    """Runs the attacks of a threat model on batches.

    The result for an image is the first version, clean or attacked, that fools the
    model, else the version with the highest loss. The result does not depend on the
    other images in the batch.

    Args:
      model: Model to attack.
      task: Task of the model.
      view: Test-time augmentation, which is a part of the attacked model.
      threat: Attacks and allowed perturbations.
    """

    def __init__(
        self, model: TrainedModel, task: Task, view: View, threat: ThreatModel
    ):
        self._model, self._task, self._view = model, task, view
        self._threat = threat
        self._prepare = jax.jit(self._prepared)
        self._start = jax.jit(self._started, static_argnums=0)
        self._advance = jax.jit(self._advanced, static_argnums=0)
        self._update = jax.jit(self._updated)

    def __call__(self, params: Any, model_state: Any, batch: Batch) -> Batch:
        """Attack a batch; return it with the worst images and the key `FOOLED_BY`.

        Args:
          params: Parameters of the model.
          model_state: Non-trainable state of the model, such as running statistics.
          batch: Evaluation batch, with images of the model's size, (B, ...).
        """
        weights, pace = (params, model_state), Pace()
        given, worst = self._prepare(weights, batch)
        for number, name in enumerate(self._threat.attacks, 1):
            num_goals = len(given.others) if name == OF_FOUR else 1
            for goal in map(np.int32, range(num_goals)):
                # Stop early: images that fool the model do not change any more.
                if np.all(_all_err(worst.errs, given.mask)):
                    break
                at = self._start(name, weights, given, goal)
                for _ in range(self._threat.steps_of(name)):
                    at = self._advance(name, weights, given, goal, at)
                    pace.sent(at)
                changed = at.answer if isinstance(at, Climb) else at
                worst = self._update(weights, given, changed, worst, np.int32(number))
        return {**batch, SHOWN: 255 * worst.images, FOOLED_BY: worst.by}

    def _prepared(self, weights: Any, batch: Batch) -> tuple[Given, Worst]:
        """Prepare a batch to attack; the clean images are the worst so far."""
        task, model, pixels = self._task, self._model, batch["image"]
        images = pixels.astype(wide(model.policy.compute_dtype)) / 255
        stream = keys.stream(keys.root_key(SEED), keys.ATTACK)
        fold = functools.partial(jax.random.fold_in, stream)
        target = task.target({**batch, "image": model.prepare(pixels)})
        outputs = self._outputs(weights, images)
        others = jnp.zeros((0, len(images)), jnp.int32)
        if task.one_class_an_image:
            num = min(NUM_TARGETS, task.num_outputs - 1)
            others = likeliest_others(outputs, target, num)
        given = Given(
            images, target, batch["mask"], jax.vmap(fold)(batch["index"]), others
        )
        loss, errs = self._judged(outputs, target)
        never = len(self._threat.attacks) + 1
        return given, Worst(images, loss, errs, jnp.where(errs, 0, never))

    def _started(self, name: str, weights: Any, given: Given, goal: jax.Array) -> Any:
        """Return the state of an attack before its first step."""
        if name == "fgsm":
            return given.images

        def fold(key: jax.Array) -> jax.Array:
            number = list(STEPS).index(name)
            return jax.random.fold_in(jax.random.fold_in(key, number), goal)

        start = self._threat.ball.draw(given.images, jax.vmap(fold)(given.keys))
        if name == "pgd":
            return start
        return self._apgd(name).begin(self._judge(name, weights, given, goal), start)

    def _advanced(
        self, name: str, weights: Any, given: Given, goal: jax.Array, at: Any
    ) -> Any:
        """Return the state of an attack after one more step."""
        ball, judge = self._threat.ball, self._judge(name, weights, given, goal)
        if name in OF_CLASSES:
            return self._apgd(name).advance(judge, given.images, at)
        size = ball.epsilon if name == "fgsm" else None
        pgd = Pgd(ball=ball, steps=self._threat.steps_of(name), step_size=size)
        return pgd.ascend(lambda images: judge(images)[0], given.images, at)

    def _updated(
        self,
        weights: Any,
        given: Given,
        changed: jax.Array,
        worst: Worst,
        number: jax.Array,
    ) -> Worst:
        """Keep, per image, the worse of `worst` and an attack's result, `changed`."""
        outputs = self._outputs(weights, changed)
        loss, errs = self._judged(outputs, given.target)
        taken = ~worst.errs & (errs | (loss > worst.loss))
        return Worst(
            jnp.where(taken[:, None, None, None], changed, worst.images),
            jnp.where(taken, loss, worst.loss),
            worst.errs | errs,
            jnp.where(errs & ~worst.errs, number, worst.by),
        )

    def _apgd(self, name: str) -> Apgd:
        return Apgd(ball=self._threat.ball, steps=self._threat.steps_of(name))

    def _judge(self, name: str, weights: Any, given: Given, goal: jax.Array) -> Judge:
        """Return the function images -> (loss to maximize, whether misclassified)."""

        def judge(images: jax.Array) -> tuple[jax.Array, jax.Array]:
            outputs = self._outputs(weights, images)
            loss, errs = self._judged(outputs, given.target)
            if name == OF_FOUR:
                loss = targeted_dlr(outputs, given.target, given.others[goal])
            return loss, errs

        return judge

    def _outputs(self, weights: Any, images: jax.Array) -> Any:
        """Return the model outputs, with test-time augmentation, of images in 0..1."""
        model, (params, model_state) = self._model, weights

        def apply(pixels: jax.Array) -> jax.Array:
            return model.forward(params, model_state, model.prepare(pixels))

        return self._view(apply, 255 * images, model.image_shape[:2])

    def _judged(self, outputs: Any, target: Any) -> tuple[jax.Array, jax.Array]:
        """Return the loss per example, and whether the predicted class is wrong."""
        loss = checked_loss(self._task, outputs, target, training=False)
        if not self._task.one_class_an_image:
            return loss, jnp.zeros(loss.shape, bool)
        return loss, outputs.argmax(-1) != target


@jax.jit
def _all_err(errs: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.all(errs | (mask == 0))
