"""A run whose layers lie on different devices is the run on one device."""

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxtrain import keys, models
from jaxtrain.config import (
    Config,
    ConvNetConfig,
    CustomModelConfig,
    ParallelConfig,
    ResNetConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.errors import UserError
from jaxtrain.evaluation.evaluate import compiler
from jaxtrain.evaluation.reducers import TaskMetrics
from jaxtrain.models.base import Model
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers
from jaxtrain.parallel.layout import Layout
from jaxtrain.parallel.mesh import make_mesh
from jaxtrain.plugins.pipeline import steps
from jaxtrain.plugins.pipeline.cut import Stage, Stages, build_stages, make_stage_meshes
from jaxtrain.tasks.build import build_task
from jaxtrain.trainer.setup import make_blueprint
from jaxtrain.training import OPTIMIZERS, precision
from jaxtrain.training.averages import Ema
from jaxtrain.training.create import CreateState
from jaxtrain.training.eval_step import make_apply
from jaxtrain.training.optimizers import make_optimizer
from jaxtrain.training.state import as_dict
from jaxtrain.training.step import make_train_step
from jaxtrain.training.transforms.average import WeightAverage
from jaxtrain.training.transforms.guard import Guard
from tests.helpers.auxiliary import TwoHeads
from tests.helpers.command import Result
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.parts import optimizer_config
from tests.helpers.phases import make_phase
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import arrays, read_lines, read_summary

SHAPE, CLASSES = (16, 16, 1), 4

# Batch norm, dropout, clipping, an average of the weights, four micro-batches and a
# last batch of the evaluation that is not full.
FULL = {
    "precision": '"fp64"',
    "data": 'DataConfig(source="digits", batch_size=32, eval_batch_size=16, '
    'test_split="test[:40]", validation_fraction=0.02, '
    "augment=AugmentConfig(crop_padding=1, horizontal_flip=True))",
    "optimizer": "SGDConfig(learning_rate=0.001, clip_norm=5.0, weight_decay=1e-3)",
    "train": "TrainConfig(steps=8, ema_decay=0.9, accumulate_steps=4, "
    "eval_every_steps=4)",
    "logging": "LoggingConfig(every_steps=1)",
}
DEEP = {
    **FULL,
    "model": 'CustomModelConfig(name="tests.helpers.shallow:EvenResNet", options=dict('
    'width=0.125, stem="cifar", dropout=0.1))',
}
FLAT = {**FULL, "model": 'ConvNetConfig(name="convnet", width=0.25, dropout=0.1)'}
# Quick to compile, for what does not depend on depth.
SHALLOW = {
    "data": 'DataConfig(source="digits", batch_size=64)',
    "model": 'ConvNetConfig(name="convnet", width=0.25)',
    "train": "TrainConfig(steps=6, ema_decay=0.9, accumulate_steps=2)",
    "logging": "LoggingConfig(every_steps=1)",
}


def start(
    folder: Path, changes: dict[str, str], devices: int, stages: int, *words: object
) -> Result:
    config = write_recipe(folder / "recipe.py", recipe(**changes))
    arguments = ["--config", config, "--workdir", folder / "run", *words]
    arguments += ["--parallel.pipeline-stages", stages]
    return Cli(folder)(*arguments, JAX_NUM_CPU_DEVICES=str(devices), **FP64)


def run(folder: Path, *args: Any) -> Path:
    result = start(folder, *args)
    assert result.code == 0, result.stderr
    return folder / "run"


def values(workdir: Path, name: str = "loss") -> np.ndarray:
    return np.array([line[name] for line in read_lines(workdir, "train")])


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("one"), FLAT, 1, 1)


def assert_same_training(workdir: Path, reference: Path) -> None:
    assert len(values(workdir)) == 8
    for name in ("loss", "grad_norm", "learning_rate"):
        ours, theirs = values(workdir, name), values(reference, name)
        np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE)
    clipped = values(reference, "grad_norm") > 5.0
    assert clipped.any() and not clipped.all()
    ours, theirs = read_summary(workdir)["eval"], read_summary(reference)["eval"]
    assert ours["num_examples"] == theirs["num_examples"] == 40
    np.testing.assert_allclose(ours["loss"], theirs["loss"], rtol=TOLERANCE)
    assert ours["accuracy"] == theirs["accuracy"]


@pytest.mark.slow
def test_training_is_that_of_one_device(flat: Path, tmp_path: Path):
    workdir = run(tmp_path, FLAT, 2, 2)
    assert_same_training(workdir, flat)
    # With equal stages it would be 1 of 5 micro-batches.
    assert 1 / 5 <= read_summary(workdir)["pipeline_idle_share"] < 1


@pytest.mark.exhaustive
def test_deep_model_trains_like_on_one_device(tmp_path: Path):
    (tmp_path / "one").mkdir()
    one = run(tmp_path / "one", DEEP, 1, 1)
    many = run(tmp_path, DEEP, 8, 4, "--data.cache", "stream")
    assert_same_training(many, one)


@pytest.mark.slow
def test_run_goes_on_with_rematerialisation(flat: Path, tmp_path: Path):
    """In stages, each of two devices that share the parameters."""
    run(tmp_path, FLAT, 1, 1, "--train.stop-after-steps", 3)
    words = ["--parallel.preset", "fsdp", "--train.remat", "full"]
    assert_same_training(run(tmp_path, FLAT, 4, 2, *words), flat)


@pytest.mark.slow
def test_loss_scale_and_muon_are_those_of_one_device(tmp_path: Path):
    """A dynamic scale, and a state of the optimizer that leaves layers out.

    The logits alone are float16, which is enough for a scale: products in float16 would
    round otherwise where XLA fuses otherwise.
    """
    muon = "MuonConfig(learning_rate=0.01, clip_norm=1.0)"
    changes = {**SHALLOW, "optimizer": muon}
    words = ["--precision", "params=float64,compute=float64,output=float16"]
    (tmp_path / "one").mkdir()
    one = run(tmp_path / "one", changes, 1, 1, *words)
    three = run(tmp_path, changes, 3, 3, *words)
    # The loss of float16 logits is computed in float32.
    np.testing.assert_allclose(values(three), values(one), rtol=1e-5)
    scales = values(three, "loss_scale")
    assert list(scales) == list(values(one, "loss_scale")) == [2.0**15] * 6


@pytest.mark.exhaustive
def test_narrow_parameters_round_alike_on_all_stages(tmp_path: Path):
    """The draws are a function of seed, step and path, not of the stage."""
    changes = {**SHALLOW, "precision": '"params=bfloat16,compute=float64"'}
    (tmp_path / "one").mkdir()
    one = run(tmp_path / "one", changes, 1, 1)
    two = run(tmp_path, changes, 4, 2, "--parallel.preset", "fsdp")
    np.testing.assert_allclose(values(two), values(one), rtol=TOLERANCE)


@pytest.mark.slow
def test_bad_step_changes_nothing_on_any_stage(tmp_path: Path):
    """The squares of the new weights overflow on the second stage alone.

    The norm of the gradients is about 1 on the first stage and 4 to 6 on the second;
    the largest that can be squared is 1.8e19.
    """
    optimizer = "SGDConfig(learning_rate=1e19, momentum=0.0)"
    changes = {
        **SHALLOW,
        "optimizer": optimizer,
        "checkpoint": "CheckpointConfig(every_steps=1, keep=9)",
    }
    workdir = run(tmp_path, changes, 2, 2, "--train.steps", 2)
    assert read_summary(workdir)["skipped_steps"] == 2
    once, twice = arrays(workdir, 1), arrays(workdir, 2)
    moved = {name.split("/")[0] for name in once if once[name] != twice[name]}
    assert moved == {"step", "extras.guard.in_a_row", "extras.guard.total"}, moved


@pytest.mark.slow
def test_spikes_are_those_of_one_device(tmp_path: Path):
    """At a tenth of a standard deviation, so that there are some."""
    train = "TrainConfig(steps=20, ema_decay=0.9, accumulate_steps=2, "
    train += "spike_sigma=0.1)"
    optimizer = "SGDConfig(learning_rate=1e-6)"
    changes = {**SHALLOW, "train": train, "optimizer": optimizer}
    changes["precision"] = '"fp64"'
    (tmp_path / "one").mkdir()
    one = run(tmp_path / "one", changes, 1, 1)
    two = run(tmp_path, changes, 2, 2)
    found = values(two, "loss_spikes")
    assert list(found) == list(values(one, "loss_spikes"))
    assert list(found) == list(values(two, "skipped_steps"))
    assert 1 < found.sum() < 15
    ours, theirs = (read_summary(w)["eval"]["loss"] for w in (two, one))
    np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE)


@pytest.mark.slow
def test_errors_name_what_would_fit(tmp_path: Path):
    result = start(tmp_path, SHALLOW, 4, 3)
    assert result.code == 2
    assert re.search(
        r"pipeline_stages = 3 does not divide .* 4: set .* to 1 or 2 or 4",
        result.stderr,
    )
    result = start(tmp_path, SHALLOW, 4, 4)
    assert result.code == 2
    assert re.search(r"pipeline_stages = 4: expected at most 3", result.stderr)


def test_stages_are_of_one_process(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(UserError, match="only one process, but the run has 2"):
        make_stage_meshes(ParallelConfig(pipeline_stages=2))


def cut(config: Config, num_stages: int = 2, **layout: Any) -> Stages:
    """Cut a model into stages that all lie on the one device of the tests."""
    policy = precision.parse(config.precision)
    model = make_blueprint(config, policy, SHAPE, CLASSES).abstract()
    layouts = [Layout(make_mesh(ParallelConfig()), {}, **layout)] * num_stages
    images = jax.ShapeDtypeStruct((config.micro_batch_size, *SHAPE), jnp.float32)
    return build_stages(model, images, layouts, config.train.accumulate_steps)


@pytest.mark.slow
def test_stages_of_a_deep_model_take_about_equally_long():
    num_stages = 4
    model = ResNetConfig(name="resnet18", width=0.125, stem="cifar")
    stages = cut(
        Config(model=model, train=TrainConfig(steps=1, accumulate_steps=4)), num_stages
    )
    # Of equal ones that four micro-batches pass through.
    equal = (num_stages - 1) / (4 + num_stages - 1)
    assert equal <= stages.timeline.idle_share < 1.3 * equal


@pytest.mark.slow
@each_row("name", sorted(OPTIMIZERS.keys() - {"lbfgs"}))
def test_state_of_an_optimizer_is_that_of_its_layers(name: str):
    """What `init` makes of a stage's layers is the stage's part of the whole state."""
    optimizer = optimizer_config(name, learning_rate=0.1, weight_decay=0.1)
    config = Config(model=ConvNetConfig(name="cnn4", width=0.1), optimizer=optimizer)
    stages = cut(config, 3)
    schedule: Any = optax.constant_schedule(0.1)
    tx = make_optimizer(optimizer, schedule)
    policy = precision.parse(config.precision)
    blueprint = make_blueprint(config, policy, SHAPE, CLASSES)
    create = CreateState(blueprint, tx)
    state = jax.eval_shape(create, jax.random.key(0))
    parts = [stages.part(stage, state) for stage in stages.stages]
    for stage, part in zip(stages.stages, parts, strict=True):
        assert set(part.params) == set(stage.names)
        made = jax.eval_shape(tx.init, part.params)
        assert jax.tree.structure(made) == jax.tree.structure(part.opt_state)
    merged = as_dict(stages.merge(parts))
    assert jax.tree.structure(merged) == jax.tree.structure(as_dict(state))
    assert jax.tree.leaves(merged) == jax.tree.leaves(as_dict(state))


class Skips(Model):
    """A skip connection over two pieces, and something random in each of them."""

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        dropout: float = 0.0,
    ):
        self.add_piece(_begin, conv1=layers.conv(1, 8, 3), drop1=nnx.Dropout(dropout))
        self.add_piece(_go_on, conv2=layers.conv(8, 4, 3), drop2=nnx.Dropout(dropout))
        self.add_piece(_join, head=Head(12, num_outputs, dropout, layers=layers))


def _begin(conv: nnx.Conv, drop: nnx.Dropout, x: jax.Array, rngs: Any) -> Any:
    y = drop(jnp.tanh(conv(x)), rngs=rngs)
    # Of other dims than the images, too.
    return {"image": y, "skip": (y.mean((1, 2)),)}


def _go_on(conv: nnx.Conv, drop: nnx.Dropout, x: Any, rngs: Any) -> Any:
    return {**x, "image": drop(jnp.tanh(conv(x["image"])), rngs=rngs)}


def _join(head: Head, x: Any, rngs: Any) -> jax.Array:
    features = x["image"].mean((1, 2)), *x["skip"]
    return head(jnp.concatenate(features, -1), rngs)


@pytest.mark.slow
@pytest.mark.parametrize("model", [Skips, TwoHeads])
def test_skips_and_random_layers_are_cut(
    monkeypatch: pytest.MonkeyPatch, model: type[Model]
):
    """A cut model that hands on several arrays, and drops in every piece, is the whole.

    In float64: another order of sums differs by about 1e-16, another mask by 0.1.
    """
    place = f"{model.__module__}:{model.__qualname__}"
    monkeypatch.setitem(models.MODELS.references, "cut", place)
    # Stages on one device would share what each of them gives away.
    monkeypatch.setattr(
        Stage, "replicate", lambda _, tree: jax.tree.map(jnp.copy, tree)
    )
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        config = Config(
            precision="fp64",
            model=CustomModelConfig(name="cut", options={"dropout": 0.5}),
            optimizer=SGDConfig(learning_rate=0.1),
            train=TrainConfig(steps=9, accumulate_steps=2, ema_decay=0.9),
        )
        policy = precision.parse(config.precision)
        blueprint = make_blueprint(config, policy, SHAPE, CLASSES)
        schedule: Any = optax.constant_schedule(0.1)
        tx = make_optimizer(config.optimizer, schedule)
        transforms = (WeightAverage(Ema(0.9)), Guard())
        update = make_phase(
            config.optimizer, config.train, tx, None, {}, transforms=transforms
        )
        create = CreateState(blueprint, tx, transforms)
        root, stages = keys.root_key(0), cut(config, 3, optimizer=tx)
        layout, graphdef = stages.stages[0].layout, nnx.graphdef(blueprint.abstract())
        task = build_task(config, SHAPE, {"num_classes": CLASSES})
        abstract = jax.eval_shape(create, root)
        staged = steps.make_train_step(task, stages, update, as_given, abstract, "f8")
        whole = make_train_step(task, graphdef, update, as_given, layout)
        batch = {
            "image": jnp.asarray(rng.normal(size=(1, 8, *SHAPE))),
            "target": jnp.asarray(rng.integers(0, CLASSES, (1, 8))),
            "mask": jnp.ones((1, 8), jnp.int32),
            "index": jnp.arange(8)[None],
        }
        (ours, our_metrics), (theirs, metrics) = (
            step(jax.jit(create)(root), root, {}, batch)
            for step in (staged, jax.jit(whole))
        )
        assert_close(ours.params, theirs.params)
        assert_close(our_metrics, metrics)
        apply = make_apply(task, graphdef, as_given, layout)
        whole = compiler(apply, layout.mesh, "test")((TaskMetrics(task),))
        args = (ours.params, ours.model_state), {}, batch
        theirs = whole(*args)
        ours = steps.make_eval_step(task, stages, as_given)(*args)
        assert_close(ours, theirs)


def as_given(data: Any, batch: Any, root: jax.Array, step: jax.Array) -> Any:
    return batch


def assert_close(ours: Any, theirs: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, TOLERANCE), ours, theirs)
