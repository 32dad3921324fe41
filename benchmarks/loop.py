"""What the training loop costs: our run against a bare jitted step on one batch.

    python benchmarks/loop.py

The peer is what one would write by hand: forward, backward and optimizer in one jitted,
donating function, called again and again on one batch that is already on the device. It
does nothing else: no data order, gathering, normalising, metrics, guard against
non-finite steps, logging. Both run in turn, several times; the median of the pairs'
ratios counts.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxtrain import devices, models, precision
from jaxtrain.config import (
    CheckpointConfig,
    Config,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    TrainConfig,
)
from jaxtrain.state import split_model
from jaxtrain.summary import versions
from jaxtrain.train import train

STEPS, REPEATS = 300, 9
CONFIG = Config(
    data=DataConfig(
        source="synthetic:28x28x1/10", batch_size=128, validation_fraction=0.0
    ),
    model=ModelConfig(name="convnet", width=0.5),
    optimizer=OptimizerConfig(name="sgd", learning_rate=0.01, momentum=0.9),
    train=TrainConfig(steps=STEPS),
    checkpoint=CheckpointConfig(every_steps=10**9),
)


def run_ours() -> float:
    """Return the images a second of a whole training run."""
    with tempfile.TemporaryDirectory() as folder:
        return train(CONFIG, Path(folder) / "run")["examples_per_second"]


def make_bare():
    """Return a function that gives the images a second of the bare step."""
    model = models.build(
        CONFIG.model,
        image_shape=(28, 28, 1),
        num_classes=10,
        policy=precision.parse("fp32"),
        rngs=nnx.Rngs(params=0),
    )
    graphdef, params, model_state = split_model(model)
    tx = optax.sgd(0.01, momentum=0.9)
    size = CONFIG.data.batch_size
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

    def run() -> float:
        start = time.perf_counter()
        for _ in range(STEPS):
            state[:] = jitted(*state[:3], images, labels)
        state[3].block_until_ready()
        return STEPS * size / (time.perf_counter() - start)

    return run


def main() -> None:
    devices.start("auto")  # As the command line does; it serves the peer as well.
    run_bare = make_bare()
    pairs = [(run_ours(), run_bare()) for _ in range(REPEATS)]
    ours, peer = (statistics.median(values) for values in zip(*pairs, strict=True))
    ratios = sorted(a / b for a, b in pairs)
    result = {
        "name": "loop",
        # Of each pair, as the speed of a shared machine drifts from pair to pair.
        "ratio": statistics.median(ratios),
        "ours": ours,
        "peer": peer,
        "unit": "images/s",
        "spread": [ratios[0], ratios[-1]],
        "ratios": ratios,
        "device": jax.devices()[0].device_kind,
        "versions": versions(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
