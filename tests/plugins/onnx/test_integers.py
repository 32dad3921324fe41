"""A model that was trained in 8 bits, as a file: its integers and its outputs."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest

from jaxtrain import load_model
from jaxtrain.cli import main
from jaxtrain.models.blueprint import initial_rngs
from jaxtrain.plugins.onnx.onnx_file import emit
from jaxtrain.plugins.quantization.fake_quantization import (
    fake_quantize_kernel,
    integers_of,
)
from jaxtrain.training.forward import apply_model, predict
from jaxtrain.training.state import split_model
from jaxtrain.trees import by_path
from tests.helpers.blueprints import make_blueprint
from tests.helpers.digits import read_test
from tests.helpers.parts import model_config
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.tiers import thinned

# Runs of some epochs.
SHORT = {
    "data": 'DataConfig(source="digits", batch_size=64)',
    "optimizer": "SGDConfig(learning_rate=0.1)",
    "logging": "LoggingConfig(every_steps=20, tensorboard=False)",
}
# Name -> model, and steps of its run.
RUNS = {
    "convnet": ('ConvNetConfig(name="convnet", width=0.125, quantize="int8")', 40),
}


def export(workdir: Path, out: Path, *words: str) -> int:
    return main(["export", "--workdir", str(workdir), "--out", str(out), *words])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function: name -> workdir of a short run, which is done once."""
    done: dict[str, Path] = {}

    def workdir(name: str) -> Path:
        if name not in done:
            folder = tmp_path_factory.mktemp(name)
            model, steps = RUNS[name]
            every = f"CheckpointConfig(every_steps={steps})"
            train = f"TrainConfig(steps={steps})"
            given = {**SHORT, "model": model, "train": train, "checkpoint": every}
            path = write_recipe(folder / "recipe.py", recipe(**given))
            command = ["--config", str(path), "--workdir", str(folder / "run")]
            assert main(command) == 0
            done[name] = folder / "run"
        return done[name]

    return workdir


class InTheFile(NamedTuple):
    """A model of random weights, and its file, on the same images.

    Attributes:
      file: Model of ONNX.
      found: What it puts out.
      expected: What the model does.
      step: Step of the integers of both.
    """

    file: Any
    found: np.ndarray
    expected: np.ndarray
    step: float


def in_the_file(name: str, size: int, **options: Any) -> InTheFile:
    made = make_blueprint(
        model_config(name, quantize="int8", **options), (size, size, 3), 10
    )
    graphdef, params, state = split_model(made.build(initial_rngs(jax.random.key(0))))
    rng = np.random.default_rng(0)
    # The scales of some norms begin at 0.
    params = jax.tree.map(
        lambda x: x + 0.1 * rng.normal(size=x.shape).astype(x.dtype) * (x.ndim == 1),
        params,
    )
    images = rng.normal(size=(32, size, size, 3)).astype(np.float32)
    train = jax.jit(partial(apply_model, graphdef))
    state = train(params, state, images, jax.random.key(1))[1]

    def function(x: jax.Array) -> jax.Array:
        return predict(graphdef, jax.tree.map(jnp.asarray, params), state, x)

    file = emit(function, (size, size, 3), dtype=np.float32, integers=True)
    session = onnxruntime.InferenceSession(file.SerializeToString())
    found = np.asarray(session.run(None, {"images": images})[0])
    ends = by_path(state)
    low, high = (ends[f"head/linear/output_range/{end}"] for end in ("low", "high"))
    expected = np.asarray(jax.jit(function)(images))
    return InTheFile(file, found, expected, float(high - low) / 255)


def test_outputs_are_those_of_the_model_to_a_step():
    """With integers in all products; outputs are multiples of a step, up to a bit."""
    made = in_the_file("lenet", 16)
    onnx.checker.check_model(made.file, full_check=True)
    kinds = [x.data_type for x in made.file.graph.initializer if len(x.dims) > 1]
    assert kinds == [onnx.TensorProto.INT8] * 5
    away = np.abs(made.found - made.expected)
    assert (away <= 1.001 * made.step).mean() >= 0.999


@pytest.mark.parametrize(
    ("name", "options", "away", "part"),
    thinned(
        4,
        [
            ("resnet18", {"width": 0.125, "stem": "cifar"}, 1, 0.999),
            ("preact_resnet18", {"width": 0.125}, 1, 0.999),
            ("vgg11", {"width": 0.125}, 1, 0.999),
            # Float32 sums move one activation in some thousands to the next integer:
            # of random weights it changes outputs by up to 3 steps, 8 % by over 1.
            ("mobilenet_v2", {"width": 0.25, "stem": "cifar"}, 4, 0.98),
        ],
    ),
)
def test_deep_models_are_within_a_step(
    name: str, options: dict[str, Any], away: float, part: float
):
    made = in_the_file(name, 32, **options)
    kernels = [x for x in made.file.graph.initializer if len(x.dims) > 1]
    assert {x.data_type for x in kernels} == {onnx.TensorProto.INT8}
    steps = np.abs(made.found - made.expected) / made.step
    assert (steps <= 1.001 * away).mean() >= part


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_the_file_computes_with_the_integers_of_the_model(
    trained: Any, tmp_path: Path, name: str
):
    workdir, out = trained(name), tmp_path / "model.onnx"
    assert export(workdir, out, "--format", "onnx", "--include-preprocessing") == 0
    model, file = load_model(workdir), onnx.load(out)
    constants = {x.name: onnx.numpy_helper.to_array(x) for x in file.graph.initializer}
    kernels = [x for x in constants.values() if x.dtype == np.int8 and x.ndim > 1]
    ours = {
        path: integers_of(np.asarray(fake_quantize_kernel(x), np.float64))
        for path, x in by_path(model.params).items()
        if path.endswith("/kernel")
    }
    assert len(kernels) == len(ours)
    # A negative factor of a norm changes the sign, and a dense layer behind images may
    # have its rows in their order: what counts is how often each size occurs.
    count = {tuple(np.bincount(np.abs(k.astype(int)).ravel())) for k in kernels}
    for path, found in ours.items():
        assert found is not None
        sizes = np.abs(found[0].astype(int)).ravel()
        assert tuple(np.bincount(sizes)) in count, path

    pixels = read_test()[0][:256]
    expected = model.predict(pixels)
    session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    outputs = np.asarray(session.run(None, {"images": pixels})[0])
    logits = [np.log(np.maximum(x, 1e-30)) for x in (expected, outputs)]
    centred = [x - x.max(-1, keepdims=True) for x in logits]
    heads = by_path(model.model_state)
    ends = [heads[f"head/linear/output_range/{end}"] for end in ("low", "high")]
    step = float(ends[1] - ends[0]) / 255
    # Of the logits, both of which are multiples of a step; that of the largest, too,
    # may be another.
    away = np.abs(centred[0] - centred[1])[centred[0] > -30]
    assert (away <= 2.01 * step).mean() >= 0.999
    assert (expected.argmax(-1) == outputs.argmax(-1)).mean() >= 0.98


@pytest.mark.slow
def test_it_is_int8_in_onnx_alone(trained: Any, tmp_path: Path, capsys: Any):
    workdir = trained("convnet")
    words = ("--format", "onnx", "--precision", "fp32")
    assert export(workdir, tmp_path / "file", *words) == 2
    assert "computes in int8; give --precision int8" in capsys.readouterr().err
    assert export(workdir, tmp_path / "file", "--format", "stablehlo") == 0
    given = load_model(workdir)
    read = jax.export.deserialize(bytearray((tmp_path / "file").read_bytes()))
    images = np.asarray(given.prepare(jnp.asarray(read_test()[0][:8])))
    logits = given.logits(read_test()[0][:8])
    np.testing.assert_allclose(
        np.asarray(read.call(images)), logits, atol=2e-2 * np.abs(logits).max()
    )
