"""A tiny model with its compiled step."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxtrain import keys
from jaxtrain.config import (
    ClassificationConfig,
    Config,
    OptimizerConfig,
    ParallelConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.models.batch_norm import momenta
from jaxtrain.parallel.layout import Layout
from jaxtrain.parallel.mesh import make_mesh
from jaxtrain.tasks.build import build_task
from jaxtrain.trainer.setup import make_blueprint
from jaxtrain.training import precision
from jaxtrain.training.averages import Average, make_average
from jaxtrain.training.create import CreateState
from jaxtrain.training.optimizers import make_optimizer
from jaxtrain.training.step import make_train_step
from jaxtrain.training.transforms.core import core_transforms
from tests.helpers.parts import model_config
from tests.helpers.phases import make_phase

SHAPE, CLASSES, BATCH = (16, 16, 1), 4, 16
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(8, BATCH, *SHAPE)).astype(np.float32)
LABELS = RNG.integers(0, CLASSES, (8, BATCH)).astype(np.int32)
ROOT = keys.root_key(0)
LAYOUT = Layout(make_mesh(ParallelConfig()), {})


def as_given(data: Any, batch: Any, root: jax.Array, step: jax.Array) -> Any:
    return batch


# What trials of the same choices start with, by these: nothing that a call changes.
MADE: dict[str, dict[str, Any]] = {}


class Trial:
    """A tiny model with its jitted step, and the state that calling it moves.

    Trials of the same choices share the compiled step, and the state they begin with.
    """

    def __init__(self, *, anew: bool = False, **choices: Any):
        # The width of floating point is no choice of a trial, but of JAX.
        key = repr((jax.dtypes.canonicalize_dtype(np.float64), choices))
        if anew or key not in MADE:
            self._make(**choices)
            MADE[key] = dict(vars(self))
        vars(self).update(MADE[key])

    def _make(
        self,
        *,
        name: str = "convnet",
        policy: str = "fp32",
        optimizer: OptimizerConfig | None = None,
        dropout: float | None = None,
        compute: bool = True,
        average: Average | None = None,
        label_smoothing: float = 0.0,
        **train: Any,
    ):
        options = {} if dropout is None else {"dropout": dropout}
        self.config = Config(
            task=ClassificationConfig(label_smoothing=label_smoothing),
            model=model_config(name, width=0.25, **options),
            optimizer=optimizer or SGDConfig(learning_rate=0.1),
            train=TrainConfig(steps=100, **train),
        )
        self.policy = precision.parse(policy)
        rate = self.config.optimizer.learning_rate
        schedule: Any = None if rate is None else optax.constant_schedule(rate)
        tx = make_optimizer(self.config.optimizer, schedule)
        facts = {"num_classes": CLASSES}
        self.task = build_task(self.config, SHAPE, facts)
        self.blueprint = make_blueprint(self.config, self.policy, SHAPE, CLASSES)
        model = self.blueprint.abstract()
        self.graphdef = nnx.graphdef(model)
        average = average or make_average(self.config.optimizer, self.config.train)
        self.phase = make_phase(
            self.config.optimizer,
            self.config.train,
            tx,
            schedule,
            momenta(model),
            transforms=core_transforms(
                self.config.optimizer,
                self.config.train,
                average,
                total_steps=100,
                scales_loss=self.policy.scales_loss,
            ),
        )
        create = CreateState(self.blueprint, tx, self.phase.transforms)
        make = jax.jit(create) if compute else partial(jax.eval_shape, create)
        self.state = make(ROOT)
        self.step = jax.jit(
            make_train_step(
                self.task,
                self.graphdef,
                self.phase,
                as_given,
                LAYOUT,
            )
        )

    def __call__(self, images: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
        """Run the steps of (steps, batch, ...) images; return their metrics."""
        batches = {
            "image": jnp.asarray(images),
            "target": jnp.asarray(labels),
            "index": jnp.zeros(labels.shape, jnp.int32),
        }
        self.state, metrics = self.step(self.state, ROOT, {}, batches)
        return jax.device_get(metrics)
