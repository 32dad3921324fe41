"""Our step against that of a plain Flax trainer, as a GPU's compiler sees.

    make gpu-compiler
    python benchmarks/gpu_program.py [--target h100] [--batch 128] [--model resnet50]
        [--kinds | --evaluation]

Both are compiled for the same GPU in one process; nothing is run, no GPU is needed.
Peer: `plain_flax.py` and `plain_nets.py`: the same model of Flax's own layers, momentum
and weight decay; no norms, no guard, no metrics. `ratio` is the peer's bytes of HBM
over ours. Beside it, of ResNet-50 on 8 GPUs, what our collectives send, and the part
that computation may hide. With --kinds there is no peer: our kernels, and their bytes,
by what they are for. With --evaluation the program is that of a run's evaluation, and
the peer the same model as it is written, its norms not folded into its convolutions.
"""

import argparse
import json
import os
import re
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import config as config_lib
from jaxtrain.config import (
    Config,
    DataConfig,
    ParallelConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.config.model import MODELS as MODEL_PARTS
from jaxtrain.config.part import make_part
from jaxtrain.parallel.device_memory import peak_bytes
from jaxtrain.plugins.plan import gpu_compiler
from jaxtrain.plugins.plan.facts import Facts, compile_facts
from jaxtrain.plugins.plan.measure import compile_evaluation, compile_step
from jaxtrain.plugins.plan.program import Instruction, read_program
from jaxtrain.plugins.plan.targets import Target, parse_target
from jaxtrain.trainer.records import versions
from jaxtrain.trainer.setup import build_setup
from jaxtrain.training import forward
from jaxtrain.training.state import num_params

# Model -> module and class of the peer.
PEERS = {
    "resnet50": ("plain_flax", "ResNet50"),
    "convnext_tiny": ("plain_nets", "ConvNeXtTiny"),
    "efficientnet_b0": ("plain_nets", "EfficientNetB0"),
    "mobilenet_v3_large": ("plain_nets", "MobileNetV3Large"),
}


def config_of(batch_size: int, name: str = "resnet50", **parallel: Any) -> Config:
    """Return a config without what the peers leave out: dropout, stochastic depth."""
    plain: dict[str, Any] = (
        {} if name == "resnet50" else {"dropout": 0.0, "drop_path": 0.0}
    )
    return Config(
        precision="bf16",
        data=DataConfig(
            source="synthetic:224x224x3/1000", batch_size=batch_size, cache="stream"
        ),
        model=make_part(MODEL_PARTS, name, plain),
        optimizer=SGDConfig(learning_rate=0.1, momentum=0.9, weight_decay=1e-4),
        parallel=ParallelConfig(**parallel),
        train=TrainConfig(steps=100),
    )


def compile_peer(target: Target, batch_size: int, name: str) -> dict[str, int]:
    """Compile the plain trainer; to be called where the target's compiler is."""
    from plain_flax import make_step

    device = gpu_compiler.devices(target)[0]
    here = jax.sharding.SingleDeviceSharding(device)

    def place(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here)

    module, kind = PEERS[name]
    plain_step, state = make_step(jnp.bfloat16, getattr(import_module(module), kind))
    images = jax.ShapeDtypeStruct((batch_size, 224, 224, 3), np.uint8)
    labels = jax.ShapeDtypeStruct((batch_size,), np.int32)
    arguments = jax.tree.map(place, (state, images, labels))
    compiled = jax.jit(plain_step, donate_argnums=0).lower(*arguments).compile()
    return {**summary(compiled), "num_params": num_params(state[0])}


def compile_kinds(target: Target, config: Config) -> dict[str, tuple[int, int]]:
    """Return kernels and bytes of our step by kind; called as `compile_peer` is."""
    stand_ins = gpu_compiler.start(target, config.parallel.xla_flags)
    compiled = compile_step(build_setup(config, devices=stand_ins))
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for kernel in read_program(compiled.as_text() or "").kernels:
        of_kind = found[kind_of(kernel.instruction)]
        of_kind[0] += kernel.runs
        of_kind[1] += kernel.runs * kernel.bytes
    return {kind: (num, size) for kind, (num, size) in found.items()}


def compile_evaluations(target: Target, config: Config) -> list[dict[str, int]]:
    """Return what an evaluation takes, folded and as written; called as the others."""
    stand_ins = gpu_compiler.start(target, config.parallel.xla_flags)
    setup = build_setup(config, devices=stand_ins)
    ours = compile_evaluation(setup)
    # The peer: nothing is folded.
    forward.has_accelerators = lambda mesh: False
    return [summary(ours), summary(compile_evaluation(setup))]


def summary(compiled: jax.stages.Compiled) -> dict[str, int]:
    program = read_program(compiled.as_text() or "")
    return {
        "hbm_bytes": program.hbm_bytes,
        "num_kernels": program.num_kernels,
        "peak_bytes": peak_bytes(compiled),
        "flops": program.flops,
    }


def kind_of(line: Instruction) -> str:
    """Say what a kernel is for, by its name in the model and what it is made of."""
    source = re.search(r'op_name="([^"]*)"', line.text)
    name = source[1] if source else ""
    part = re.search(r"part:(\w+)", name)
    where = part[1] if part else "other"
    if where == "loss":
        where = "backward" if "transpose(jvp" in name else "forward"
    if line.operation == "custom-call" or "gemm" in line.name:
        return f"{where}: products"
    for what in ("transpose", "reduce"):
        if what in line.name:
            return f"{where}: {what}"
    return f"{where}: element by element"


def counts(facts: Facts | str) -> dict[str, Any]:
    assert isinstance(facts, Facts), facts
    return {
        name: getattr(facts, name)
        for name in ("hbm_bytes", "num_kernels", "peak_bytes", "flops", "num_params")
    }


def collectives(facts: Facts | str) -> dict[str, Any]:
    assert isinstance(facts, Facts), facts
    return {"num_params": facts.num_params, **facts.collectives}


def compile_collectives(name: str) -> dict[str, Any]:
    """Return what ResNet-50 sends between eight GPUs, by the way it is spread."""
    eight = parse_target(f"{name}x8")
    spread = {"batch_norm": 64, "xla_flags": "overlap"}
    ways = {
        "data_parallel": {},
        "data_parallel, bfloat16": {"reduce_dtype": "bfloat16"},
        "fsdp": {"preset": "fsdp"},
    }
    configs = [config_of(512, **spread, **options) for options in ways.values()]
    found = gpu_compiler.call(eight, compile_facts, configs, eight)
    return dict(zip(ways, map(collectives, found), strict=True))


def report(
    arguments: argparse.Namespace, target: Target, found: dict[str, Any], **more: Any
) -> None:
    """Print the counts of ours and the peer, with their ratio."""
    ours, peer = (found[name]["hbm_bytes"] for name in ("ours", "peer"))
    print(
        json.dumps(
            {
                "name": "gpu_program" + " evaluation" * arguments.evaluation,
                "ratio": peer / ours,
                "ours": ours / arguments.batch / 1e6,
                "peer": peer / arguments.batch / 1e6,
                "unit": "MB of HBM an image",
                "spread": 0,
                "model": arguments.model,
                "counts": found,
                **more,
                "device": f"{target.gpu.device_kind}, compiled for"
                if target.gpu
                else "",
                "versions": versions(),
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="h100")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--model", default="resnet50", choices=PEERS)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--kinds", action="store_true")
    what.add_argument("--evaluation", action="store_true")
    arguments = parser.parse_args()
    one = parse_target(arguments.target)
    plain = config_of(arguments.batch, arguments.model)
    # The other process imports this file by its name.
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    import gpu_program

    if arguments.kinds:
        kinds = gpu_compiler.call(one, gpu_program.compile_kinds, one, plain)
        print(json.dumps({"name": "gpu_program kinds", **kinds}, indent=1))
        return
    if arguments.evaluation:
        ours, peer = gpu_compiler.call(one, gpu_program.compile_evaluations, one, plain)
        report(arguments, one, {"ours": ours, "peer": peer})
        return
    with_remat = config_lib.replace(plain, "train.remat", "full")
    is_resnet = arguments.model == "resnet50"
    alone = [plain, with_remat] if is_resnet else [plain]
    ours, *full = map(counts, gpu_compiler.call(one, compile_facts, alone, one))
    peer = gpu_compiler.call(
        one, gpu_program.compile_peer, one, arguments.batch, arguments.model
    )
    assert peer["num_params"] == ours["num_params"], "they are not the same net"
    found = {"ours": ours, "peer": peer}
    found |= dict(zip(["ours, remat full"], full, strict=False))
    sent = compile_collectives(arguments.target) if is_resnet else {}
    report(arguments, one, found, collectives=sent)


if __name__ == "__main__":
    main()
