"""Modules whose parameters are annotated, trained for some steps as a program."""

import json
import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

import jaxtrain
from jaxtrain import own
from jaxtrain.config import replace
from jaxtrain.trees import by_path

SMALL = jaxtrain.Config(
    data=jaxtrain.DataConfig(source="digits", batch_size=64),
    optimizer=jaxtrain.AdamWConfig(learning_rate=2e-3),
    train=jaxtrain.TrainConfig(steps=3, ema_decay=0.5),
)


class Annotated(nnx.Module):
    """Has a kernel that `fsdp` shares by its first dim, and two that `model` splits."""

    def __init__(self, num_classes: int, *, rngs: nnx.Rngs, axis: str = "fsdp"):
        def init(*names: str | None) -> Any:
            return nnx.with_partitioning(nnx.initializers.lecun_normal(), names)

        self.conv = nnx.Conv(
            1, 8, (3, 3), kernel_init=init(None, None, None, axis), rngs=rngs
        )
        self.first = nnx.Linear(512, 32, kernel_init=init(axis, "model"), rngs=rngs)
        self.second = nnx.Linear(32, num_classes, kernel_init=init("model"), rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = nnx.relu(self.conv(x)).reshape(x.shape[0], -1)
        return self.second(nnx.relu(self.first(x)))


class AnnotatedLinen(linen.Module):
    """Has a kernel that `fsdp` shares by its first dim."""

    num_classes: int
    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        dense = partial(linen.Dense, dtype=self.dtype, param_dtype=self.param_dtype)
        init = linen.with_partitioning(
            linen.initializers.lecun_normal(), ("fsdp", None)
        )
        x = linen.relu(dense(16, kernel_init=init)(x.reshape(x.shape[0], -1)))
        return dense(self.num_classes)(x)


def config_of(name: str, **changes: Any) -> jaxtrain.Config:
    reference = f"{__file__}:{name}"
    own.allow([reference])
    config = replace(SMALL, "model", reference)
    for path, value in changes.items():
        config = replace(config, path.replace("__", "."), value)
    return config


def main(out: str, name: str, preset: str) -> None:
    """Train; print the spec of each parameter and moment, and write the weights."""
    config = config_of(name, precision="fp64", parallel__preset=preset)
    trainer = jaxtrain.Trainer(config)
    state = trainer.init()
    for batch in trainer.batches(stop=3):
        state, _ = trainer.step(state, batch)
    parts = {"params": state.params, "mu": state.opt_state[0].mu}
    arrays = by_path(parts | {"average": state.extras["average"]["params"]})
    print(json.dumps({n: [*x.sharding.spec] for n, x in arrays.items()}))
    np.savez(out, **jax.device_get(arrays))


if __name__ == "__main__":
    main(*sys.argv[1:])
