"""Our step on a mesh against the classic trainer of `jax.pmap`, on 8 devices.

    python benchmarks/pmap.py [--examples 16]

The peer is what trainers were before meshes: replicated parameters, a batch for each
device, `lax.pmean` of gradients and metrics, and the batch norm of Flax over the
examples of a device. Ours has the same model, optimizer and batch, and batch norm in
groups of the examples of one device; it also guards against non-finite steps, and
returns the norm of the gradients. Both steps run in turn on batches that are already on
the devices; the median of the pairs' ratios counts.
Without GPUs the devices are simulated: they share the CPU's cores, so that times are
noisy; what the two programs exchange is exact. Few examples a device show the fixed
cost of what only ours does.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from batch_norm import FlaxLayers
from flax import nnx
from pairs import compare, take_turns, tell

from jaxtrain.config import (
    Config,
    ConvNetConfig,
    DataConfig,
    ParallelConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.models.small import ConvNet
from jaxtrain.parallel import devices
from jaxtrain.plugins.plan.collectives import summarize
from jaxtrain.plugins.plan.measure import compile_step, create_inputs
from jaxtrain.plugins.plan.program import read_program
from jaxtrain.trainer.setup import Setup, build_setup
from jaxtrain.training.state import split_model

SIMULATED_DEVICES = 8
STEPS, PAIRS = 6, 50
# Few, as simulated devices wait for each other on the threads of one pool.
CALLS_IN_FLIGHT = 5

SHAPE, NUM_CLASSES, WIDTH = (28, 28, 1), 10, 0.5

# Returns the state's successor from the state.
Step = Callable[[Any], Any]


def make_config(num_devices: int, examples: int) -> Config:
    return Config(
        data=DataConfig(
            source=f"synthetic:{'x'.join(map(str, SHAPE))}/{NUM_CLASSES}",
            batch_size=examples * num_devices,
            cache="stream",
        ),
        model=ConvNetConfig(name="convnet", width=WIDTH),
        optimizer=SGDConfig(learning_rate=0.01, momentum=0.9),
        parallel=ParallelConfig(batch_norm=examples),
        train=TrainConfig(epochs=1),
    )


def make_ours(setup: Setup) -> tuple[Step, Any, jax.stages.Compiled]:
    """Return our step, its first state and its program."""
    program = compile_step(setup)
    state, key, data, batches = create_inputs(setup)
    return lambda state: program(state, key, data, batches)[0], state, program


def make_peer(setup: Setup) -> tuple[Step, Any, jax.stages.Compiled]:
    """Return the step of pmap, its first state and its program."""
    model = ConvNet(
        SHAPE,
        NUM_CLASSES,
        width=WIDTH,
        layers=FlaxLayers(policy=setup.policy, rngs=nnx.Rngs(0)),
    )
    graphdef, params, model_state = split_model(model)
    num = jax.device_count()
    tx = optax.sgd(0.01, momentum=0.9)

    def loss_fn(params: Any, model_state: Any, images: Any, labels: Any) -> Any:
        model = nnx.merge(graphdef, params, model_state, copy=True)
        model.train()
        logits = model((images.astype(jnp.float32) / 255 - 0.5) / 0.25)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
        accuracy = jnp.mean(jnp.argmax(logits, -1) == labels)
        return loss, (split_model(model)[2], accuracy)

    def step(state: Any, images: jax.Array, labels: jax.Array) -> Any:
        params, model_state, opt_state = state
        (loss, (model_state, accuracy)), grads = jax.value_and_grad(
            loss_fn, has_aux=True
        )(params, model_state, images, labels)
        metrics, grads = jax.lax.pmean(((loss, accuracy), grads), "devices")
        updates, opt_state = tx.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), model_state, opt_state), metrics

    rng = np.random.default_rng(0)
    size = num, setup.config.data.batch_size // num
    images = jnp.asarray(rng.integers(256, size=(*size, *SHAPE)), jnp.uint8)
    labels = jnp.asarray(rng.integers(NUM_CLASSES, size=size))
    pmapped: Any = jax.pmap(step, axis_name="devices", donate_argnums=0)
    first = params, model_state, tx.init(params)
    first = jax.tree.map(lambda x: jnp.broadcast_to(x, (num, *x.shape)), first)
    program = pmapped.lower(first, images, labels).compile()
    spread = jax.pmap(lambda *x: x)
    first, images, labels = spread(first, images, labels)
    return lambda state: pmapped(state, images, labels)[0], first, program


def make_run(step: Step, state: Any) -> Callable[[], tuple[float, float]]:
    """Return a function that does some steps: its seconds, and those of the CPU."""
    box = [state]

    def run() -> tuple[float, float]:
        start, cpu_start = time.perf_counter(), time.process_time()
        for i in range(STEPS):
            box[0] = step(box[0])
            if i % CALLS_IN_FLIGHT == 0:
                jax.block_until_ready(box[0])
        jax.block_until_ready(box[0])
        return time.perf_counter() - start, time.process_time() - cpu_start

    run()
    return run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int, default=64, help="of one device")
    examples = parser.parse_args().examples
    jax.config.update("jax_num_cpu_devices", SIMULATED_DEVICES)
    devices.start("auto")
    setup = build_setup(make_config(jax.device_count(), examples))
    our_step, our_state, our_program = make_ours(setup)
    step, state, program = make_peer(setup)
    run_ours, run_peer = make_run(our_step, our_state), make_run(step, state)
    ours, peer = take_turns([run_ours, run_peer], PAIRS)
    images = STEPS * setup.config.data.batch_size
    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    result = {
        **compare(ours, peer, images),
        "collectives": {
            name: summarize(read_program(p.as_text() or "").collectives)
            for name, p in (("ours", our_program), ("peer", program))
        },
    }
    tell("pmap", result, device=device)


if __name__ == "__main__":
    main()
