"""A tiny model of three pieces, and some steps of runs that freeze some of them."""

from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from jaxtrain import own, trees
from jaxtrain.config import (
    CheckpointConfig,
    Config,
    DataConfig,
    LoggingConfig,
    TrainConfig,
)
from jaxtrain.models.base import Model
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers
from jaxtrain.trainer import features
from jaxtrain.trainer.trainer import Trainer
from jaxtrain.training.state import as_dict
from tests.helpers.command import float64
from tests.helpers.parts import model_config, optimizer_config

# Enough for the `fsdp` axis to share a kernel.
WIDTH = 64


class Layered(Model):
    """Dense layers with batch norm, and something random in each but the first."""

    def __init__(
        self, image_shape: tuple[int, int, int], num_outputs: int, *, layers: Layers
    ):
        pixels = int(np.prod(image_shape))
        self.add_piece(
            _stem,
            stem=layers.linear(pixels, WIDTH, split="out"),
            stem_norm=layers.batch_norm(WIDTH, split=True),
        )
        self.add_piece(
            _block,
            block=layers.linear(WIDTH, WIDTH, split="in"),
            block_norm=layers.batch_norm(WIDTH),
            drop=nnx.Dropout(0.3),
        )
        self.add_piece(Head.__call__, head=Head(WIDTH, num_outputs, 0.3, layers=layers))


def _stem(dense: Any, norm: Any, x: jax.Array, rngs: Any) -> jax.Array:
    return nnx.relu(norm(dense(x.reshape(len(x), -1))))


def _block(dense: Any, norm: Any, drop: Any, x: jax.Array, rngs: Any) -> jax.Array:
    return drop(nnx.relu(norm(dense(x))), rngs=rngs)


MODEL = "tests.helpers.layered:Layered"
own.allow([MODEL])
# Steps of an epoch.
EPOCH = 3


def layered(
    train: dict[str, Any] | None = None,
    optimizer: dict[str, Any] | None = None,
    **sections: Any,
) -> Config:
    """Return a config of two epochs of three steps."""
    data = DataConfig(
        source="synthetic:4x4x1/3/24", batch_size=8, validation_fraction=0.0
    )
    values: dict[str, Any] = {
        "precision": "fp64",
        "data": data,
        "model": model_config(MODEL),
        "optimizer": optimizer_config(
            **{"name": "sgd", "learning_rate": 0.1, **(optimizer or {})}
        ),
        "train": TrainConfig(**{"steps": 2 * EPOCH, **(train or {})}),
        "checkpoint": CheckpointConfig(every_steps=2, keep=9),
        "logging": LoggingConfig(every_steps=2, tensorboard=False, report=False),
        **sections,
    }
    return Config(**values)


class Steps(NamedTuple):
    """What some steps came to, on the host.

    Attributes:
      states: before the first step, and after each call: fields of the state.
      metrics: of all steps, by name.
    """

    states: list[dict[str, Any]]
    metrics: dict[str, np.ndarray]


def take_steps(config: Config, *, keep_features: bool = False) -> Steps:
    """Take all steps of a run, in float64, and evaluate and save nothing."""
    with float64(enable=True):
        return _take_steps(config, keep_features=keep_features)


def _take_steps(config: Config, *, keep_features: bool) -> Steps:
    trainer = Trainer(config)
    state = trainer.init()
    if keep_features:
        trainer = features.keep_features(trainer, state)
    states, metrics = [jax.device_get(as_dict(state))], []
    for batch in trainer.batches():
        state, found = trainer.step(state, batch)
        metrics.append(jax.device_get(found))
        states.append(jax.device_get(as_dict(state)))
    joined = jax.tree.map(lambda *values: np.concatenate(values), *metrics)
    return Steps(states, joined)


def by_path(tree: Any) -> dict[str, np.ndarray]:
    """Return the arrays of a tree by their paths."""
    return {path: np.asarray(x) for path, x in trees.by_path(tree).items()}
