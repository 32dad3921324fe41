"""One step and an evaluation, on one device and on meshes, and whether they agree."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np

from jaxtrain import keys
from jaxtrain.config import (
    AugmentConfig,
    ClassificationConfig,
    Config,
    ConvNetConfig,
    CustomConfig,
    DataConfig,
    LeNetConfig,
    ModelConfig,
    ParallelConfig,
    Part,
    PlainConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.config.root import SECTIONS
from jaxtrain.data import loader
from jaxtrain.evaluation.evaluate import ModelView, evaluate
from jaxtrain.evaluation.reducers import TaskMetrics
from jaxtrain.models.copied import copied_paths
from jaxtrain.parallel import data_sharding, devices, layout
from jaxtrain.parallel.copies import Copies
from jaxtrain.trainer import setup as setup_of_runs
from jaxtrain.trainer.programs import make_programs
from jaxtrain.trainer.run_data import load_data
from jaxtrain.trainer.setup import build_setup
from jaxtrain.training import forward
from tests.helpers import own_methods  # noqa: F401 (allows its methods)
from tests.helpers.command import float64, with_devices
from tests.helpers.maps import FOUR_STAGES, PIXELS, SHAPES
from tests.helpers.parts import model_config
from tests.helpers.shallow import BASIC, SHORT, SIZES

# Twice as many as devices that share a batch, so that a micro-batch of half can, too.
BATCH_SIZE = 16
NUM_DEVICES = 8


# Name -> model, and the size of a batch-norm group.
MODELS: dict[str, tuple[ModelConfig, int | str]] = {
    "lenet": (LeNetConfig(), "global"),
    "convnet, global": (ConvNetConfig(name="convnet", width=0.125), "global"),
    "convnet, groups": (ConvNetConfig(name="convnet", width=0.125), 1),
    "cnn4": (ConvNetConfig(name="cnn4", width=0.125), "global"),
    "basic resnet": (BASIC, 1),
    **{f"short {name}": (config, 1) for name, config in SHORT.items()},
    # Its auxiliary head ends in one pixel, of which a batch norm needs two images.
    "short inception_v3": (SHORT["inception_v3"], 2),
    "short unet": (
        model_config(
            "unet", backbone=BASIC.name, width=0.125, stem="cifar", aux_weight=0.4
        ),
        1,
    ),
    # The mean of an image goes through a batch norm.
    "short deeplab": (
        model_config(
            "deeplabv3_resnet50", backbone=FOUR_STAGES, width=0.125, stem="cifar"
        ),
        2,
    ),
}
# Those that put out a class of each pixel.
MAPS = ("short unet", "short deeplab")


IMAGES = {"cnn4": "64x64x3", "basic resnet": "32x32x3"}
IMAGES |= {f"short {name}": f"{size}x{size}x3" for name, size in SIZES.items()}


# For what takes long to compile: every pair is in one of these triples, too.
COVER = [
    {"data": 2, "fsdp": 2, "model": 2},
    {"data": 2, "spatial": 2, "spatial_width": 2},
    {"fsdp": 2, "spatial": 2, "spatial_width": 2},
]


class Outcome(NamedTuple):
    """What a step and an evaluation come to, on the host."""

    metrics: Any
    state: Any
    evaluation: Any


def make_config(name: str, case: dict[str, Any]) -> Config:
    model, norm = MODELS[name]
    group = "global" if norm == "global" else int(norm)
    sizes = {"data": 1, "fsdp": 1, **case["axes"]}
    has_maps = name in MAPS
    synthetic = f"synthetic:{IMAGES.get(name, '32x32x3')}/8/64"
    sections: Any = {n: SECTIONS[n](**case[n]) for n in SECTIONS if n in case}
    return Config(
        task=CustomConfig(name=PIXELS)
        if has_maps
        else ClassificationConfig(label_smoothing=0.1),
        precision="fp64",
        data=DataConfig(
            source=SHAPES if has_maps else synthetic,
            batch_size=BATCH_SIZE,
            validation_fraction=0.0,
            augment=case.get("augment", AugmentConfig()),
        ),
        model=model,
        # A rate so high that a difference of the gradients shows in the weights.
        optimizer=SGDConfig(learning_rate=0.1),
        parallel=ParallelConfig(
            **sizes,
            preset=case["preset"],
            pipeline_stages=case["stages"],
            batch_norm=group,
        ),
        method=case.get("method", PlainConfig()),
        train=TrainConfig(
            accumulate_steps=case["micro"],
            ema_decay=0.9,
            **{
                "steps": 1,
                "remat": case.get("remat", "none"),
                **case.get("train", {}),
            },
        ),
        **sections,
    )


def carry_out(config: Config, first: Any) -> Outcome:
    """Train a step and evaluate.

    Args:
      config: Config of the run.
      first: Weights to begin with, on the host.
    """
    setup = build_setup(config)
    data = load_data(setup)
    programs = make_programs(setup, data)
    everywhere = data_sharding.replicated(setup.mesh)
    key = jax.device_put(keys.root_key(0), everywhere)
    train_set, order = data.train_set, data.order
    batches = loader.train_batches(config.data, train_set, setup.mesh, order, 0, 1)
    _, batch = next(loader.feed(batches, iter([1]), setup.mesh, BATCH_SIZE))
    abstract = setup.abstract_state
    where = abstract.params, abstract.model_state
    weights = jax.tree.map(lambda x, a: jax.device_put(x, a.sharding), first, where)
    state = programs.begin(weights)
    state = dataclasses.replace(state, params=disturb(state.params))
    state, metrics = programs.train_at(0)(
        state, key, train_set.on_device, batch, **programs.method_arrays
    )
    view = ModelView(
        weights=(state.eval_params, state.eval_model_state),
        mesh=setup.mesh,
        program=lambda reducers: programs.eval,
    )
    reducers = [TaskMetrics(setup.task)]
    (evaluation,) = evaluate(view, data.test_set, reducers, config.data)
    return Outcome(jax.device_get(metrics), jax.device_get(state), evaluation)


def some_weights(config: Config) -> Any:
    """Return weights to begin with, on the host, with nothing to compile.

    Kernels are normal, with the variance of LeCun's; scales and variances are 1, all
    else is 0.
    """
    abstract = build_setup(config).abstract_state
    rng = np.random.default_rng(1)

    def make(path: Any, x: Any) -> np.ndarray:
        if path[-1].key == "kernel":
            fan_in = math.prod(x.shape[:-1])
            return (rng.standard_normal(x.shape) / math.sqrt(fan_in)).astype(x.dtype)
        return np.full(x.shape, path[-1].key in ("scale", "var"), x.dtype)

    where = abstract.params, abstract.model_state
    return jax.tree_util.tree_map_with_path(make, where)


def draw(config: Config) -> Any:
    """Return first weights, on the host."""
    setup = build_setup(config)
    programs = make_programs(setup, load_data(setup))
    return jax.device_get(programs.weights(keys.root_key(0)))


def disturb(params: Any) -> Any:
    """Add noise: a batch norm that starts at 0 would hide what comes before it."""
    rng = np.random.default_rng(0)

    def add(x: jax.Array) -> jax.Array:
        noise = 0.1 * rng.standard_normal(x.shape)
        return jax.device_put(np.asarray(x) + noise, x.sharding)

    return jax.tree.map(add, params)


def difference(ours: Any, theirs: Any, floor: float) -> float:
    """Return the largest difference, relative to the largest value of each array.

    Args:
      ours: arrays.
      theirs: those to compare with.
      floor: added to each largest value.
    """
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    return max(
        float(np.max(np.abs(a - b)) / (np.max(np.abs(b)) + floor))
        for a, b in zip(_numbers(ours), _numbers(theirs), strict=True)
    )


def _numbers(tree: Any) -> list[np.ndarray]:
    """Return the arrays of a tree; bools, which have no difference, as 0 and 1."""
    arrays = map(np.asarray, jax.tree.leaves(tree))
    return [x.astype(np.int8) if x.dtype == bool else x for x in arrays]


def copied() -> contextlib.AbstractContextManager[Any]:
    """Train with copies of weights in float64, where they round nothing."""

    def make(config: Config, policy: Any, model: Any, mesh: Any) -> Copies:
        wide = jax.numpy.dtype("float64")
        return Copies(mesh, copied_paths(model), wide, wide)

    return mock.patch.object(setup_of_runs, "copies", make)


@contextlib.contextmanager
def on_first_devices() -> Iterator[Callable[[int], None]]:
    """Compute in float64; what it gives chooses how many devices there are."""
    every = jax.devices()
    devices._enable_compilation_cache()
    with (
        float64(True),
        # Also arrays of a few elements are split.
        mock.patch.object(layout, "MIN_SHARDED_SIZE", 1),
        # Meshes evaluate as those of GPUs do, and are compared with what is written.
        mock.patch.object(forward, "has_accelerators", lambda mesh: mesh.size > 1),
        mock.patch.object(jax, "devices") as found,
    ):

        def use(num: int) -> None:
            found.return_value = every[:num]

        yield use


def draw_on(name: str, meshes: list[dict[str, int]]) -> list[Any]:
    """Return the first weights that are drawn on each mesh, in float64."""
    with on_first_devices() as use:
        drawn = []
        for axes in meshes:
            use(math.prod(axes.values()))
            case = {"axes": axes, "stages": 1, "micro": 1, "preset": "fsdp"}
            drawn.append(draw(make_config(name, case)))
    return drawn


def compare(name: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the case and the largest differences for each mesh, in float64."""
    # The momentum of what changes nothing is 0 but for rounding, 5e-17 and less: of a
    # shift (`SHIFTS`), and of the scale of a norm of a single value, as in Inception's
    # auxiliary head. The largest of any other array is 2e-5 and more.
    floor = 1e-6 if name.startswith("short ") else 1e-30
    # By micro-batches, which the shapes of batch-norm statistics depend on; what the
    # cases train with otherwise is one.
    references: dict[int, tuple[Any, Outcome]] = {}
    lines = []
    with on_first_devices() as use:
        for case in cases:
            micro = case["micro"]
            if micro not in references:
                use(1)
                alone = {"axes": {}, "stages": 1, "micro": micro, "preset": "fsdp"}
                alone |= {
                    n: case[n]
                    for n in ("train", "method", "prune", "augment", "data")
                    if n in case
                }
                config = make_config(name, alone)
                first = some_weights(config)
                references[micro] = first, carry_out(config, first)
            first, expected = references[micro]
            use(math.prod(case["axes"].values()) * case["stages"])
            with copied() if case.get("copies") else contextlib.nullcontext():
                outcome = carry_out(make_config(name, case), first)
            differences = {
                field: difference(
                    getattr(outcome, field), getattr(expected, field), floor
                )
                for field in Outcome._fields
            }
            lines.append({"case": case, "differences": differences})
    return lines


# What a case is on its mesh, unless it says otherwise.
PLAIN_CASE = {
    "micro": 1,
    "stages": 1,
    "preset": "fsdp",
    "copies": False,
    "remat": "none",
}


def assert_same(name: str, groups: list[dict[str, Any]]) -> None:
    """Check that a model is trained and evaluated on meshes as on one device.

    Args:
      name: Key of `MODELS`.
      groups: Meshes, with what else the cases on them have in common.
    """
    cases = []
    for group in groups:
        common = {**PLAIN_CASE, **group}
        meshes = common.pop("meshes")
        cases += [{**common, "axes": mesh} for mesh in meshes]
    lines = with_devices(NUM_DEVICES, compare, name, cases)
    assert [line["case"] for line in lines] == cases
    # Hundreds of values of about 1, each a sum of thousands: about 1e-14; a part that
    # is missing, or counted twice, gives 1e-6 and more.
    wrong = [line for line in lines if not max(line["differences"].values()) < 1e-9]
    assert not wrong


def assert_same_with(
    train: dict[str, Any],
    method: Part | None = None,
    prune: dict[str, Any] | None = None,
    augment: AugmentConfig | None = None,
) -> None:
    """Check the same of a small model with changed fields of a config.

    The meshes are some of each axis that splits a batch or a model.

    Args:
      train: Field of the section `train` -> value.
      method: Training method; None means the plain one.
      prune: The same of the section `prune`; None prunes nothing.
      augment: Augmentations; None means none.
    """
    shared = {"data": 2, "fsdp": 2, "model": 2}
    rows = {"data": 2, "spatial": 2, "spatial_width": 2}
    groups = [
        {"meshes": [shared]},
        {"meshes": [shared], "micro": 2, "copies": True},
        {"meshes": [rows], "remat": "full"},
    ]
    changes = {
        "train": train,
        "method": method or PlainConfig(),
        "prune": prune or {},
        "augment": augment or AugmentConfig(),
    }
    assert_same("convnet, groups", [{**group, **changes} for group in groups])
