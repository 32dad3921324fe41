"""Plain Flax modules as models, written as Flax's documentation writes them."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import linen, nnx
from PIL import Image

import jaxtrain
from jaxtrain import own
from jaxtrain.config import Config, SGDConfig, replace
from jaxtrain.errors import UserError
from jaxtrain.training import forward
from tests.helpers.digits import read_test
from tests.helpers.numerics import FP64, TOLERANCE, close, same
from tests.helpers.parts import model_config
from tests.helpers.processes import ROOT, Cli
from tests.helpers.rows import each_row

MODULES = ROOT / "tests" / "helpers" / "flax_modules.py"
NAMES = ("CNN", "ResNet")


def config_of(name: str, place: str = str(MODULES), **changes: Any) -> Config:
    config = Config(
        data=jaxtrain.DataConfig(source="digits", batch_size=64),
        model=model_config(f"{place}:{name}"),
        optimizer=jaxtrain.AdamWConfig(learning_rate=2e-3),
        train=jaxtrain.TrainConfig(steps=4),
        logging=jaxtrain.LoggingConfig(report=False),
    )
    for path, value in changes.items():
        config = replace(config, path.replace("__", "."), value)
    return config


def weights_of(workdir: Path) -> list[np.ndarray]:
    model = jaxtrain.load_model(workdir, "latest", trust=True)
    return jax.tree.leaves(jax.device_get((model.params, model.model_state)))


@each_row(
    ("name", "path"), [("CNN", ("conv1", "kernel")), ("ResNet", ("Dense_0", "kernel"))]
)
def test_parameters_have_the_paths_of_the_module(name: str, path: tuple[str, str]):
    state = jaxtrain.Trainer(config_of(name)).abstract_state
    assert path[1] in state.params[path[0]]
    kinds = {x.dtype.kind for x in jax.tree.leaves(state.model_state)}
    assert kinds == {"f"}  # No key, and no count of keys.


def test_a_step_trains_and_draws_by_its_place():
    trainer = jaxtrain.Trainer(config_of("CNN"))
    (first, *_) = trainer.batches(stop=1)
    one, _ = trainer.step(trainer.init(), first)
    two, _ = trainer.step(trainer.init(), first)
    assert same(one, two)
    begun = trainer.init()
    changed = jax.tree.map(lambda x, y: bool((x != y).any()), one.params, begun.params)
    assert all(jax.tree.leaves(changed))
    norm = one.model_state["batch_norm1"]["mean"]
    assert (
        np.asarray(norm) != np.asarray(begun.model_state["batch_norm1"]["mean"])
    ).any()


class Asks(nnx.Module):
    """Asks for something unknown."""

    def __init__(self, depth: int, *, rngs: nnx.Rngs):
        self.linear = nnx.Linear(64, depth, rngs=rngs)


class Five(nnx.Module):
    """Puts out five numbers."""

    def __init__(self, *, rngs: nnx.Rngs):
        self.linear = nnx.Linear(64, 5, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.linear(x.reshape(x.shape[0], -1))


class Fails(Five):
    """Takes other images."""

    def __init__(self, *, rngs: nnx.Rngs):
        self.linear = nnx.Linear(7, 10, rngs=rngs)


class Keeps(Five):
    """Keeps a key, which no checkpoint holds."""

    def __init__(self, *, rngs: nnx.Rngs):
        super().__init__(rngs=rngs)
        self.noise = nnx.Variable(jax.random.key(0))


class Uncalled(linen.Module):
    """Has no forward pass."""

    num_classes: int


class Breaks(nnx.Module):
    """Fails while it is made."""

    def __init__(self, *, rngs: nnx.Rngs):
        raise ValueError("no layers here")


class Hides(Five):
    """Hides an attribute of models."""

    def __init__(self, *, rngs: nnx.Rngs):
        super().__init__(rngs=rngs)
        self.pieces = 3


class Checkpointed(nnx.Module):
    """A block that Flax recomputes, with dropout in it."""

    def __init__(self, *, rngs: nnx.Rngs):
        self.linear = nnx.Linear(64, 10, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        @nnx.remat
        def block(model: Any, x: jax.Array) -> jax.Array:
            return model.linear(model.dropout(x))

        return block(self, x.reshape(x.shape[0], -1))


def test_a_block_that_flax_recomputes_draws_from_the_step():
    trainer = jaxtrain.Trainer(config_of("Checkpointed", __file__))
    first, second = trainer.batches(stop=2)
    state, _ = trainer.step(trainer.init(), first)
    again, _ = trainer.step(trainer.init(), first)
    assert same(state, again)
    trainer.step(state, second)


@each_row(
    ("name", "message"),
    [
        ("Asks", "requires depth; add a default"),
        ("Five", r"output shape is \(2, 5\) .* expected \(2, 10\)"),
        (
            "Fails",
            r"fails on images of shape \(2, 8, 8, 1\): TypeError: .*test_flax_module",
        ),
        ("Keeps", "noise is a PRNG key, which checkpoints cannot store"),
        ("Uncalled", "has no forward pass"),
        ("Breaks", "the constructor failed: ValueError: no layers here"),
        ("Hides", "the module defines pieces, which jaxtrain reserves"),
        ("NAMES", "expected a Flax module class, or a function"),
        ("weights_of", "requires workdir"),
    ],
)
def test_a_module_that_cannot_be_trained_is_refused(name: str, message: str):
    with pytest.raises(UserError, match=message):
        jaxtrain.Trainer(config_of(name, __file__))


@each_row(
    ("path", "value"),
    [
        ("optimizer.layer_decay", 0.5),
        ("parallel.batch_norm", 16),
        ("train.freeze", ("conv9",)),
        ("model.options", {"depth": 3}),
    ],
)
def test_options_that_need_more_are_refused(path: str, value: Any):
    with pytest.raises(UserError, match=path.replace(".", r"\.")):
        jaxtrain.Trainer(replace(config_of("CNN"), path, value))


@each_row("form", ["net_at_top:Net", "a_package:Net"])
def test_a_module_is_found_at_the_top_of_what_python_imports(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    place = form.partition(":")[0]
    file = {"a_package": "a_package/__init__.py"}.get(place, f"{place}.py")
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("from tests.helpers.flax_modules import CNN as Net\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = replace(config_of("CNN"), "model", form)
    assert own.find_file(form) == tmp_path / file
    assert "conv1" in jaxtrain.Trainer(config).abstract_state.params


def test_a_kind_of_source_is_no_module():
    """Though Python has a module `csv`."""
    assert not own.is_own("csv:photos")
    assert not own.is_own("no_such_module:Net")
    assert own.is_own("flax:Module")


class Plain(linen.Module):
    """Takes no dtype."""

    num_classes: int

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return linen.Dense(self.num_classes)(x.reshape(x.shape[0], -1))


def test_a_linen_module_without_a_dtype_is_not_trained_in_another():
    jaxtrain.Trainer(config_of("Plain", __file__))
    with pytest.raises(UserError, match="dtype bfloat16, but the Linen module has no"):
        jaxtrain.Trainer(config_of("Plain", __file__, precision="bf16"))


class Switched(nnx.Module):
    """Tells its batch norm and dropout their mode by a keyword."""

    def __init__(self, num_classes: int, *, rngs: nnx.Rngs):
        self.norm = nnx.BatchNorm(64, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.head = nnx.Linear(64, num_classes, rngs=rngs)

    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        x = self.norm(x.reshape(x.shape[0], -1), use_running_average=not train)
        return self.head(self.dropout(x, deterministic=not train))


class ByAttribute(linen.Module):
    """Has layers that take their mode as attributes, or by a keyword of a block."""

    num_classes: int

    @linen.compact
    def __call__(self, x: jax.Array, train: bool = True) -> jax.Array:
        x = Block(name="first")(x.reshape(x.shape[0], -1), train)
        x = Block(name="second")(x, train)
        return linen.Dense(self.num_classes, name="head")(x)


class Block(linen.Module):
    """Normalises and drops."""

    @linen.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        x = linen.BatchNorm(use_running_average=not train)(linen.Dense(16)(x))
        return linen.Dropout(0.5)(x, deterministic=not train)


def test_frozen_layers_stay_and_all_others_are_trained():
    config = config_of("ByAttribute", __file__, train__freeze=("first",))
    trainer = jaxtrain.Trainer(config)
    begun = trainer.init()
    before = jax.device_get((begun.params, begun.model_state))
    (batch,) = trainer.batches(stop=1)
    state, _ = trainer.step(begun, batch)
    for old, new in zip(before, (state.params, state.model_state), strict=True):
        assert {name for name, x in old.items() if same(x, new[name])} == {"first"}


@pytest.mark.parametrize(
    ("name", "place", "head"),
    [
        ("Switched", __file__, "head"),
        ("ByAttribute", __file__, "head"),
        pytest.param("ResNet", str(MODULES), "Dense_0", marks=pytest.mark.slow),
        pytest.param("CNN", str(MODULES), "linear2", marks=pytest.mark.slow),
    ],
)
def test_a_frozen_backbone_computes_as_in_an_evaluation(
    name: str, place: str, head: str
):
    # Dropout of a Linen module that lies in no layer with parameters stays.
    options = {"dropout": 0.0} if name == "ResNet" else {}
    config = config_of(name, place, train__freeze=("backbone",), model__options=options)
    trainer = jaxtrain.Trainer(config)
    state, frozen = trainer.init(), trainer.phases[0].frozen
    trained, _ = frozen.partition(state.params)
    assert trained.keys() == {head}
    weights = trainer.graphdef, state.params, state.model_state
    images, key = jax.random.normal(jax.random.key(0), (4, 8, 8, 1)), jax.random.key(1)
    y, model_state = forward.apply_model(*weights, images, key, frozen=frozen)
    close(y, forward.predict(*weights, images), rtol=1e-5, atol=1e-5)
    assert same(model_state, state.model_state)
    y, model_state = forward.apply_model(*weights, images, key)
    assert not same(model_state, state.model_state)


@pytest.mark.slow
@each_row(("name", "pattern"), [("CNN", "conv*"), ("ResNet", "backbone")])
def test_layers_have_learning_rates_by_path(name: str, pattern: str):
    """A step of plain gradient descent is proportional to them."""
    sgd = SGDConfig(learning_rate=0.1, momentum=0.0)
    by_path = dataclasses.replace(sgd, layer_decay={pattern: 0.25})
    moves = []
    for optimizer in (sgd, by_path):
        trainer = jaxtrain.Trainer(config_of(name, optimizer=optimizer))
        begun = trainer.init()
        before = jax.device_get(begun.params)
        (batch,) = trainer.batches(stop=1)
        state, _ = trainer.step(begun, batch)
        moves.append(jax.tree.map(lambda x, y: np.asarray(x) - y, state.params, before))
    slow = {"CNN": {"conv1", "conv2"}, "ResNet": {*moves[0]} - {"Dense_0"}}[name]
    for layer, move in moves[0].items():
        factor = 0.25 if layer in slow else 1.0
        expected = jax.tree.map(lambda x, factor=factor: factor * x, move)
        close(moves[1][layer], expected, rtol=1e-4, atol=1e-7)


def test_the_head_of_some_modules_is_not_known():
    config = config_of("Pooled", __file__, train__freeze=("backbone",))
    with pytest.raises(UserError, match=r"cannot determine the head.*paths"):
        jaxtrain.Trainer(config)


class Pooled(nnx.Module):
    """Ends with the mean of a convolution."""

    def __init__(self, num_classes: int, *, rngs: nnx.Rngs):
        self.linear = nnx.Linear(1, 4, rngs=rngs)
        self.conv = nnx.Conv(4, num_classes, (3, 3), rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.conv(self.linear(x)).mean((1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path, name: str):
    config = config_of(name)
    jaxtrain.train(config, tmp_path / "whole")
    jaxtrain.train(replace(config, "train.stop_after_steps", 2), tmp_path / "run")
    jaxtrain.train(config, tmp_path / "run")
    pairs = zip(
        weights_of(tmp_path / "whole"), weights_of(tmp_path / "run"), strict=True
    )
    assert all(np.array_equal(x, y) for x, y in pairs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("CNN", "--parallel.preset fsdp"),
        ("ResNet", "--parallel.data 2 --parallel.fsdp 2 --train.remat full"),
    ],
)
def test_numbers_do_not_depend_on_the_devices(tmp_path: Path, name: str, options: str):
    """In float64."""
    (tmp_path / "recipe.py").write_text(
        "from tests.models.test_flax_module import config_of\n\n\n"
        "def get_config():\n"
        f"    return config_of({name!r}, train__ema_decay=0.5)\n"
    )
    cli, words = Cli(tmp_path), ("--config", "recipe.py", "--precision", "fp64")
    for num, more in {1: [], 4: options.split()}.items():
        env = {**FP64, "JAX_NUM_CPU_DEVICES": str(num)}
        result = cli.process(*words, "--workdir", num, *more, **env)
        assert result.code == 0, result.stderr
    with jax.enable_x64(True):
        one, four = (weights_of(tmp_path / place) for place in "14")
    close(one, four, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"train__accumulate_steps": 2},
        {"train__ema_decay": 0.9},
        {"train__freeze": ("conv1", "batch_norm1")},
        {"precision": "bf16"},
        {"train__remat": "block"},
    ],
    ids=str,
)
def test_options_of_training_work(tmp_path: Path, changes: dict[str, Any]):
    config = config_of("CNN", **changes)
    summary = jaxtrain.train(config, tmp_path / "run")
    assert summary["skipped_steps"] == 0
    if "train__freeze" in changes:
        begun = jaxtrain.Trainer(config).init().params
        model = jaxtrain.load_model(tmp_path / "run", trust=True)
        names = "conv1", "linear1"
        equal = [same(model.params[name], begun[name]) for name in names]
        assert equal == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_module_is_fine_tuned_for_other_classes(tmp_path: Path, name: str):
    jaxtrain.train(config_of(name), tmp_path / "ten")
    trained = jaxtrain.load_model(tmp_path / "ten", trust=True)
    changes = {
        "model__pretrained": str(tmp_path / "ten"),
        "data__source": "synthetic:8x8x1/3/600",
        "train__fine_tune": True,
        "train__freeze_epochs": 2 / 20,
    }
    trainer = jaxtrain.Trainer(config_of(name, **changes))
    begun, _ = trainer.begin()
    head = {"CNN": "linear2", "ResNet": "Dense_0"}[name]
    kept = {n for n, x in begun.params.items() if same(x, trained.params[n])}
    assert begun.params.keys() - kept == {head}
    state = begun
    for i, batch in enumerate(trainer.batches(stop=4)):
        before = jax.device_get(state.params)
        state, _ = trainer.step(state, batch)
        changed = {n for n, x in before.items() if not same(x, state.params[n])}
        assert changed == (
            {head} if i < (trainer.timetable.unfreeze_step or 0) else {*before}
        )


@pytest.mark.slow
@pytest.mark.plugins
@pytest.mark.parametrize("name", NAMES)
def test_a_trained_module_is_used_as_any_model(tmp_path: Path, name: str):
    """Evaluated, predicted, exported, reported, and taken up by another run."""
    run = tmp_path / "run"
    summary = jaxtrain.train(config_of(name, train__steps=40), run)
    images, _ = read_test()
    model = jaxtrain.load_model(run, trust=True)
    probabilities = model.predict(images[:8])
    assert probabilities.shape == (8, 10)
    head = model.params[{"CNN": "linear2", "ResNet": "Dense_0"}[name]]
    logits = model.features(images[:8]) @ head["kernel"] + head["bias"]
    close(logits, model.logits(images[:8]), rtol=1e-4, atol=1e-4)
    result = jaxtrain.evaluate(run, trust=True)
    assert result["metrics"]["accuracy"] == summary["eval"]["accuracy"]
    cli = Cli(tmp_path)
    Image.fromarray(images[0, ..., 0]).save(tmp_path / "image.png")
    for words in (
        "export --workdir run --trust --format onnx --out model.onnx",
        "export --workdir run --trust --format stablehlo --out model.hlo",
        "report --workdir run --trust",
        "predict --workdir run --trust --explain seen --out found.csv image.png",
    ):
        done = cli(*words.split())
        assert done.code == 0, done.stderr
    assert (tmp_path / "seen" / "image.png.png").is_file()
    from onnxruntime import InferenceSession

    session = InferenceSession(str(tmp_path / "model.onnx"))
    (given,) = session.get_inputs()
    about = model.description
    normalised = (images[:8] / 255 - np.array(about.mean)) / np.array(about.std)
    (found,) = session.run(None, {given.name: normalised.astype(np.float32)})
    np.testing.assert_allclose(
        np.asarray(found), model.logits(images[:8]), rtol=1e-3, atol=1e-4
    )
    again = config_of(name, model__pretrained=str(run))
    begun = jaxtrain.Trainer(again)
    assert same(begun.begin()[0].params, model.params)
