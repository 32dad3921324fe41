"""Attacks on batches: the worst result of several attacks per image.

The host calls a compiled program for each step of an attack, because XLA:CPU is slow in
loops, and a hundred unrolled steps would compile for minutes.
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

# Attack -> default number of steps. The index of an attack is folded into its PRNG key.
STEPS = {"fgsm": 1, "pgd": 10, "apgd-ce": 100, "apgd-t": 100}
# Attacks that need classes, and the attack whose loss needs four logits.
OF_CLASSES, OF_FOUR = ("apgd-ce", "apgd-t"), "apgd-t"
# Number of target classes of the targeted attack, most likely first.
NUM_TARGETS = 9
# Batch key of the index of the attack that fooled the model, from 1; 0 if the clean
# image is misclassified; the number of attacks + 1 if no attack succeeded.
FOOLED_BY = "fooled_by"


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    """Threat model: allowed perturbations, and the attacks to run in order.

    Attributes:
      attacks: Names of the attacks, keys of `STEPS`.
      ball: Norm ball of the allowed images.
      steps: Number of steps of all attacks except `fgsm`. Defaults to `STEPS`.
    """

    attacks: tuple[str, ...]
    ball: Ball
    steps: int | None = None

    def steps_of(self, name: str) -> int:
        """Number of steps of an attack."""
        return STEPS[name] if name == "fgsm" or self.steps is None else self.steps

    def check(self, task: Task, name: str) -> None:
        """Check that the task supports the attacks.

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
    """A batch to attack; arrays have one entry per image, (B, ...).

    Attributes:
      images: Images in 0..1.
      target: Targets as converted by the task.
      mask: 0 for padding, else 1.
      keys: PRNG key of each image.
      others: Wrong classes, most likely first, (num, B); empty without classes.
    """

    images: jax.Array
    target: Any
    mask: jax.Array
    keys: jax.Array
    others: jax.Array


class Worst(NamedTuple):
    """Worst version of each image so far; arrays have one entry per image, (B, ...).

    Attributes:
      images: Images in 0..1 that fool the model, else images of highest loss.
      loss: Loss of `images`.
      errs: Whether the prediction for `images` is wrong.
      by: Index of the first successful attack, from 1 (see `FOOLED_BY`).
    """

    images: jax.Array
    loss: jax.Array
    errs: jax.Array
    by: jax.Array


class Attacker:
    """Runs the attacks of a threat model on batches.

    The result for an image is the first version that fools the model, be it the clean
    image or an attacked one; later attacks do not change it. Results do not depend on
    the other images of a batch.

    Args:
      model: Model to attack.
      task: Task of the model.
      view: Test-time augmentation of images.
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
        """Attack a batch; return it with attacked images and `FOOLED_BY`.

        Args:
          params: Parameters of the model.
          model_state: State of the model.
          batch: Evaluation batch, (B, ...), of the model's image size.
        """
        weights, pace = (params, model_state), Pace()
        given, worst = self._prepare(weights, batch)
        for number, name in enumerate(self._threat.attacks, 1):
            num_goals = len(given.others) if name == OF_FOUR else 1
            for goal in map(np.int32, range(num_goals)):
                # An early exit to save time: later attacks do not change fooled images.
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
        """Prepare a batch for attacks, with the clean images as the worst so far."""
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
        """Update the worst images by the result of an attack."""
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
        """Return a `Judge`: a function of images that computes the loss to increase."""

        def judge(images: jax.Array) -> tuple[jax.Array, jax.Array]:
            outputs = self._outputs(weights, images)
            loss, errs = self._judged(outputs, given.target)
            if name == OF_FOUR:
                loss = targeted_dlr(outputs, given.target, given.others[goal])
            return loss, errs

        return judge

    def _outputs(self, weights: Any, images: jax.Array) -> Any:
        """Return the outputs for images in 0..1, with test-time augmentation."""
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
