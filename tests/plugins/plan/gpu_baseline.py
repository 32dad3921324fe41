"""Figures of the GPU's programs of all recipes, and those that were accepted last."""

import functools
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from jaxtrain import config as config_lib
from jaxtrain.config import Config
from jaxtrain.config.recipe import load_config
from jaxtrain.plugins.plan import gpu_compiler
from jaxtrain.plugins.plan.facts import Facts, compile_facts
from jaxtrain.plugins.plan.measure import lower_step
from jaxtrain.plugins.plan.stand_in import stand_in
from jaxtrain.plugins.plan.targets import Target, parse_target
from jaxtrain.trainer.setup import build_setup
from tests.helpers.forked import ROOT

PATH = ROOT / "tests" / "stored" / "gpu_programs.json"
ACCEPT = "python benchmarks/gpu_baseline.py --write"
# A figure that differs by more is another program.
TOLERANCE = 0.01
COUNTED = ("num_kernels", "hbm_bytes", "peak_bytes", "flops")

# Recipe -> images like those of its data. The others are for ImageNet, which tells its
# shape without being there, and for 8 GPUs.
SHAPES = {
    "digits": "8x8x1/10/1293",
    "mnist": "28x28x1/10/54000",
    "fashion_mnist": "28x28x1/10/54000",
    "fashion_mnist_fast": "28x28x1/10/60000",
    "fashion_mnist_robust": "28x28x1/10/58800",
    "cifar10": "32x32x3/10/45000",
    "cifar10_fast": "32x32x3/10/50000",
    "cifar10_resnet18": "32x32x3/10/45000",
    "cifar10_wide_resnet28_10": "32x32x3/10/45000",
    "folder": "28x28x1/10/54000",
    "embedding": "28x28x1/10/54000",
    "finetune_folder": "224x224x3/10/6400",
}


def recipes() -> list[str]:
    """Return all recipes of classes of images, of which a stand-in has any size.

    Those with a teacher are left out, which nothing stands in for.
    """
    configs = {path.stem: load_config(path) for path in (ROOT / "configs").glob("*.py")}
    return sorted(
        name
        for name, config in configs.items()
        if config.task.name in ("classification", "embedding")
        and not config.data.source.startswith("audio:")
        and "teacher" not in config.method.arguments()
    )


def process_of(name: str) -> tuple[str, str]:
    """Return the GPUs and XLA flags of the process that lowers a recipe's step."""
    gpus = "h100" if name in SHAPES else "h100x8"
    return gpus, _config(name).parallel.xla_flags


def figures(name: str, accepted: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the figures of the program that a recipe's step is compiled to.

    Args:
      name: of the recipe.
      accepted: figures of before. They are returned, and nothing is compiled, where
        XLA would be given the same step, flags and GPU as it was for them; None
        compiles the step in any case.
    """
    gpus, flags = process_of(name)
    # One process starts and imports for all that can share it.
    names = [name] if accepted is None else recipes()
    alike = tuple(n for n in names if process_of(n) == (gpus, flags))
    given = _digests(alike, gpus, flags)[name]
    if accepted and accepted["given"] == given:
        return accepted
    target = parse_target(gpus)
    facts = gpu_compiler.call(target, compile_facts, [_config(name)], target)[0]
    assert isinstance(facts, Facts), facts
    counted = {key: getattr(facts, key) for key in COUNTED}
    return {"target": gpus, "given": given, **counted, "collectives": _sums(facts)}


@functools.cache
def _digests(names: tuple[str, ...], gpus: str, flags: str) -> dict[str, str]:
    target, configs = parse_target(gpus), {name: _config(name) for name in names}
    return gpu_compiler.call(target, digests, configs, target, flags)


def digests(configs: dict[str, Config], target: Target, flags: str) -> dict[str, str]:
    """Return the SHA-256 of all that XLA is given to compile the step of each config.

    To be called in a process that has the GPU's compiler (`gpu_compiler.call`).
    """
    assert target.gpu is not None
    stand_ins = gpu_compiler.start(target, flags)
    with_target = (os.environ["XLA_FLAGS"], target.gpu.description, str(target))
    found = {}
    for name, config in configs.items():
        step = lower_step(build_setup(config, devices=stand_ins)).as_text()
        found[name] = hashlib.sha256(repr((step, *with_target)).encode()).hexdigest()
    return found


def differences(
    name: str, found: dict[str, Any], accepted: dict[str, Any]
) -> list[str]:
    """List the figures that differ by more than the tolerance, both of them."""
    pairs = {key: (accepted[key], found[key]) for key in COUNTED}
    kinds = {*accepted["collectives"], *found["collectives"]}
    nothing = {"count": 0, "bytes": 0, "dtypes": []}
    for kind in sorted(kinds):
        old = accepted["collectives"].get(kind, nothing)
        new = found["collectives"].get(kind, nothing)
        pairs |= {f"{kind} {key}": (old[key], new[key]) for key in nothing}
    return [
        f"{name}: {key}: {old} -> {new}"
        for key, (old, new) in pairs.items()
        if not _alike(old, new)
    ]


def read(path: Path = PATH) -> dict[str, Any]:
    """Return the accepted figures of this version of JAX; {}: there are none."""
    return _read(path).get(jax.__version__, {})


def write(figures: dict[str, Any], path: Path = PATH) -> None:
    """Accept figures of this version of JAX."""
    known = _read(path)
    known[jax.__version__] = {**known.get(jax.__version__, {}), **figures}
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


@functools.cache
def _config(name: str) -> Config:
    """Return a recipe that learns from, and begins with, what is always there."""
    config = load_config(ROOT / "configs" / f"{name}.py")
    config = config_lib.replace(config, "model.pretrained", None)
    if name in SHAPES:
        return config_lib.replace(config, "data.source", f"synthetic:{SHAPES[name]}")
    data = stand_in(replace(config.data, data_dir=os.devnull))
    return replace(config, data=data)


def _sums(facts: Facts) -> dict[str, dict[str, Any]]:
    return {
        kind: {key: value[key] for key in ("count", "bytes", "dtypes")}
        for kind, value in facts.collectives.items()
    }


def _alike(old: Any, new: Any) -> bool:
    if isinstance(old, list):
        return old == new
    return abs(new - old) <= TOLERANCE * abs(old)
