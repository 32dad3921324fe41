"""What the training loop costs: our run against a bare jitted step on one batch.

    python benchmarks/loop.py

The peer is what one would write by hand: forward, backward and optimizer in one jitted,
donating function, called again and again on one batch that is already on the device. It
does nothing else: no data order, gathering, normalising, metrics, guard against
non-finite steps, logging. Both run in turn, 25 steps each: our run is held up between
two of its steps while the peer has its turn. The median of the pairs' ratios counts; on
a machine with other users the CPU time of both is less noisy than the time by the
clock.
"""

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from pairs import compare, tell

from jaxtrain import Callback, config as config_lib, train
from jaxtrain.config import (
    CheckpointConfig,
    Config,
    ConvNetConfig,
    DataConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.parallel import devices
from jaxtrain.training import precision
from jaxtrain.training.state import split_model

# Steps of a turn, pairs of turns, and turns before the first that counts.
STEPS, PAIRS, WARM_UP = 25, 80, 2
TINY_WIDTH, TINY_SOURCE = 0.125, "synthetic:28x28x1/10/256"
CONFIG = Config(
    data=DataConfig(
        source="synthetic:28x28x1/10", batch_size=128, validation_fraction=0.0
    ),
    model=ConvNetConfig(name="convnet", width=0.5),
    optimizer=SGDConfig(learning_rate=0.01, momentum=0.9),
    train=TrainConfig(steps=STEPS * (WARM_UP + PAIRS)),
    checkpoint=CheckpointConfig(every_steps=10**9),
)


@dataclasses.dataclass
class Turns(Callback):
    """Holds our run up, before the call of a step, for the turns of the peer.

    Attributes:
      peer: runs one turn of the peer.
      ours, theirs: (seconds, CPU seconds) of the turns.
    """

    peer: Callable[[], None] = lambda: None
    ours: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    theirs: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    began: tuple[float, float] = (0.0, 0.0)

    def on_step_start(self, run: Any, batch: Any) -> None:
        turn, rest = divmod(batch.start, STEPS)
        if rest == 0:
            jax.block_until_ready(jax.live_arrays())
            if turn > WARM_UP:
                self.ours.append(since(self.began))
                start = now()
                self.peer()
                self.theirs.append(since(start))
            self.began = now()


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def since(start: tuple[float, float]) -> tuple[float, float]:
    wall, cpu = now()
    return wall - start[0], cpu - start[1]


def make_bare(config: Config) -> Callable[[], None]:
    """Return a function that does a turn of bare steps."""
    blueprint = Blueprint(
        config=config.model,
        image_shape=(28, 28, 1),
        num_outputs=10,
        policy=precision.parse("fp32"),
    )
    model = blueprint.build(nnx.Rngs(params=0))
    graphdef, params, model_state = split_model(model)
    tx = optax.sgd(0.01, momentum=0.9)
    size = config.data.batch_size
    images = jnp.asarray(np.random.default_rng(0).normal(size=(size, 28, 28, 1)), "f4")
    labels = jnp.arange(size) % 10

    def loss_fn(params, model_state, images, labels):
        model = nnx.merge(graphdef, params, model_state, copy=True)
        model.train()
        logits = model(images)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
        return loss, split_model(model)[2]

    def step(params, model_state, opt_state, images, labels):
        (loss, model_state), grads = jax.value_and_grad(loss_fn, has_aux=True)(
            params, model_state, images, labels
        )
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), model_state, opt_state, loss

    jitted = jax.jit(step, donate_argnums=(0, 1, 2))
    state = [*jitted(params, model_state, tx.init(params), images, labels)]

    def run() -> None:
        for _ in range(STEPS):
            state[:] = jitted(*state[:3], images, labels)
        state[3].block_until_ready()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="only try the script")
    config = CONFIG
    if parser.parse_args().tiny:
        config = config_lib.replace(config, "model.width", TINY_WIDTH)
        config = config_lib.replace(config, "data.source", TINY_SOURCE)
        config = config_lib.replace(config, "train.steps", STEPS * (WARM_UP + 2))
    devices.start("auto")  # As the command line does; it serves the peer as well.
    turns = Turns(peer=make_bare(config))
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder) / "run", callbacks=[turns])
    images = STEPS * config.data.batch_size
    tell("loop", compare(turns.ours, turns.theirs, images))


if __name__ == "__main__":
    main()
