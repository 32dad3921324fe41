"""Our step of ResNet-50 against that of a plain Flax trainer, as a GPU's compiler sees.

    make gpu-compiler
    python benchmarks/gpu_program.py [--target h100] [--batch 128]

Both are compiled for the same GPU in one process; nothing is run, no GPU is needed.
Peer: `plain_flax.py`: the same model of `nnx.BatchNorm`, momentum and weight decay; no
norms, no guard, no metrics. `ratio` is the peer's bytes of HBM over ours. Beside it,
for 8 GPUs, what our collectives send, and the part that computation may hide.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import config as config_lib
from jaxtrain.config import (
    Config,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    TrainConfig,
)
from jaxtrain.performance import gpu_compiler
from jaxtrain.performance.facts import Facts, compile_facts
from jaxtrain.performance.measure import peak_bytes
from jaxtrain.performance.program import read_program
from jaxtrain.performance.targets import Target, parse_target
from jaxtrain.run.summary import versions


def config_of(batch_size: int, **parallel: Any) -> Config:
    return Config(
        precision="bf16",
        data=DataConfig(
            source="synthetic:224x224x3/1000", batch_size=batch_size, cache="stream"
        ),
        model=ModelConfig(name="resnet50"),
        optimizer=OptimizerConfig(
            name="sgd", learning_rate=0.1, momentum=0.9, weight_decay=1e-4
        ),
        parallel=ParallelConfig(**parallel),
        train=TrainConfig(steps=100),
    )


def compile_peer(target: Target, batch_size: int) -> dict[str, int]:
    """Compile the plain trainer; to be called where the target's compiler is."""
    from plain_flax import make_step

    device = gpu_compiler.devices(target)[0]
    here = jax.sharding.SingleDeviceSharding(device)

    def place(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here)

    step, state = make_step(jnp.bfloat16)
    images = jax.ShapeDtypeStruct((batch_size, 224, 224, 3), np.uint8)
    labels = jax.ShapeDtypeStruct((batch_size,), np.int32)
    arguments = jax.tree.map(place, (state, images, labels))
    compiled = jax.jit(step, donate_argnums=0).lower(*arguments).compile()
    program = read_program(compiled.as_text() or "")
    return {
        "hbm_bytes": program.hbm_bytes,
        "num_kernels": program.num_kernels,
        "peak_bytes": peak_bytes(compiled),
        "flops": program.flops,
    }


def counts(facts: Facts | str) -> dict[str, Any]:
    assert isinstance(facts, Facts), facts
    return {
        name: getattr(facts, name)
        for name in ("hbm_bytes", "num_kernels", "peak_bytes", "flops")
    }


def collectives(facts: Facts | str) -> dict[str, Any]:
    assert isinstance(facts, Facts), facts
    return {"num_params": facts.num_params, **facts.collectives}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="h100")
    parser.add_argument("--batch", type=int, default=128)
    arguments = parser.parse_args()
    one = parse_target(arguments.target)
    eight = parse_target(f"{arguments.target}x8")
    plain = config_of(arguments.batch)
    alone = [plain, config_lib.replace(plain, "train.remat", "full")]
    ours, full = map(counts, gpu_compiler.call(one, compile_facts, alone, one))
    # The other process imports this file by its name.
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    import gpu_program

    peer = gpu_compiler.call(one, gpu_program.compile_peer, one, arguments.batch)
    spread = {"batch_norm": 64, "xla_flags": "overlap"}
    names = {
        "data_parallel": {},
        "data_parallel, bfloat16": {"reduce_dtype": "bfloat16"},
        "fsdp": {"preset": "fsdp"},
    }
    configs = [config_of(512, **spread, **options) for options in names.values()]
    found = gpu_compiler.call(eight, compile_facts, configs, eight)
    print(
        json.dumps(
            {
                "name": "gpu_program",
                "ratio": peer["hbm_bytes"] / ours["hbm_bytes"],
                "ours": ours["hbm_bytes"] / arguments.batch / 1e6,
                "peer": peer["hbm_bytes"] / arguments.batch / 1e6,
                "unit": "MB of HBM an image",
                "spread": 0,
                "counts": {"ours": ours, "ours, remat full": full, "peer": peer},
                "collectives": dict(zip(names, map(collectives, found), strict=True)),
                "device": f"{one.gpu.device_kind}, compiled for" if one.gpu else "",
                "versions": versions(),
            }
        )
    )


if __name__ == "__main__":
    main()
