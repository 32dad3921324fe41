"""What each model takes, counted in its compiled programs; no data, and no timing.

    python benchmarks/zoo.py
    python benchmarks/zoo.py --write
    python benchmarks/zoo.py --write --again resnet50 vgg16

With `--write` the counts go to `jaxtrain/zoo/counted.json`, from which `main.py models`
and `docs/models.md` are made. Models that are there already are left as they are,
unless `--again` names them. Each is compiled in a process of its own, for one CPU
device, which takes from seconds to minutes; the weights that other libraries have of it
are looked up anew for all.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from functools import partial
from typing import Any

from jaxtrain.config.model import MODELS as MODEL_PARTS
from jaxtrain.config.part import make_part
from jaxtrain.zoo import counted
from jaxtrain.zoo.counted import Counted, MatchingWeights
from jaxtrain.zoo.published import PUBLISHED

BATCH = 32
# LLVM's part of a compilation, after all that is counted, is left out.
QUICK = {**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0"}


def count(name: str) -> dict[str, int]:
    """Compile the evaluation of one image and a training step; allocate nothing."""
    import jax
    import numpy as np
    import pixel_classes
    import synthetic_boxes

    from jaxtrain import own
    from jaxtrain.config import (
        ClassificationConfig,
        Config,
        CustomConfig,
        DataConfig,
        Part,
        SGDConfig,
    )
    from jaxtrain.parallel.device_memory import peak_bytes
    from jaxtrain.plugins.plan.measure import compile_step
    from jaxtrain.trainer.setup import build_setup
    from jaxtrain.training.forward import predict
    from jaxtrain.training.state import num_params

    about = PUBLISHED[name]
    (height, width, channels), classes = about.image_shape, about.num_outputs
    source = f"synthetic:{height}x{width}x{channels}/{classes}/{4 * classes}"
    data = DataConfig(source=source, batch_size=BATCH, cache="stream")
    optimizer = SGDConfig(learning_rate=0.1, momentum=0.9)
    task: Part = ClassificationConfig()
    if about.has_maps:
        task = CustomConfig(name=f"{pixel_classes.__file__}:PixelClasses")
    if about.has_boxes:
        task = CustomConfig(name=f"{synthetic_boxes.__file__}:SyntheticBoxes")
    config = Config(
        task=task,
        data=data,
        model=make_part(MODEL_PARTS, name),
        optimizer=optimizer,
    )
    own.allow([task.name])
    setup = build_setup(config)
    state = setup.abstract_state
    image = jax.ShapeDtypeStruct((1, height, width, channels), np.float32)
    forward = jax.jit(partial(predict, setup.graphdef))
    program = forward.lower(state.params, state.model_state, image).compile()
    flops: Any = program.cost_analysis()
    return {
        "num_params": num_params(state.params),
        "forward_flops": round(flops["flops"]),
        "step_bytes": peak_bytes(compile_step(setup)),
    }


def weights_of(name: str) -> tuple[MatchingWeights, ...]:
    from jaxtrain.weights.sources import sources_of

    return tuple(
        MatchingWeights(source.library, source.architecture, dict(source.options))
        for source in sources_of(name)
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--again", nargs="+", default=[])
    parser.add_argument("--only", nargs="+", help="these models and no others")
    parser.add_argument("--count", help="one model, in this process")
    arguments = parser.parse_args()
    if arguments.count:
        print(json.dumps(count(arguments.count)))
        return
    from jaxtrain.models import MODELS

    found = counted.read()
    for name in arguments.only or MODELS:
        if name in found and name not in arguments.again:
            continue
        start = time.monotonic()
        words = [sys.executable, __file__, "--count", name]
        result = subprocess.run(
            words, stdout=subprocess.PIPE, text=True, check=True, env=QUICK
        )
        values = json.loads(result.stdout.splitlines()[-1])
        found[name] = Counted(**values, weights=())
        print(f"{name}: {values}, {time.monotonic() - start:.0f} s", flush=True)
        if arguments.write:
            write(in_order(found, MODELS))
    found = in_order(found, MODELS)
    if arguments.write:
        write(found)
    print(json.dumps({"name": "zoo", "models": len(found)}))


def write(found: dict[str, Counted]) -> None:
    """Write the counts, each model on a line."""
    lines = [
        f"  {json.dumps(name)}: "
        + json.dumps({**one._asdict(), "weights": [w._asdict() for w in one.weights]})
        for name, one in found.items()
    ]
    counted.FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def in_order(found: dict[str, Counted], names: Any) -> dict[str, Counted]:
    """Return the counts of the models that there are, in their order, with weights."""
    return {
        name: found[name]._replace(weights=weights_of(name))
        for name in names
        if name in found
    }


if __name__ == "__main__":
    main()
