"""Exported models: every format, every model, and what is refused."""

import dataclasses
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image
from safetensors.numpy import load_file

from jaxtrain import extras, load_model
from jaxtrain.cli import main
from jaxtrain.config import (
    ConvNetConfig,
    LeNetConfig,
)
from jaxtrain.errors import ExportError, UserError
from jaxtrain.export import Precision, check, export as export_lib, stablehlo
from jaxtrain.export.check import padded
from jaxtrain.export.exporter import EXPORTERS, find_exporter
from jaxtrain.export.request import HALF, Request
from jaxtrain.inference.model import TrainedModel
from jaxtrain.weights.stored import abstract_weights
from tests.helpers.digits import read_test
from tests.helpers.parts import model_config
from tests.helpers.rows import each_row
from tests.helpers.untrained import untrained

# Of other families, `tests/models/test_families.py`.
SMALL = {"resnet18": {"width": 0.125}, "lenet": {}}


def export(workdir: Path, out: Path, *words: str) -> int:
    return main(["export", "--workdir", str(workdir), "--out", str(out), *words])


@pytest.mark.plugins
@pytest.mark.parametrize(("name", "options"), SMALL.items())
def test_every_model_is_the_same_in_onnx(name: str, options: dict[str, Any]):
    count = assert_same_in_onnx(untrained(model_config(name, **options)))
    # As it comes in, and nowhere else; norms are in the convolutions.
    assert count["Transpose"] == 1
    assert not count["Mul"] and not count["BatchNormalization"]
    assert count["Reshape"] == 0


def assert_same_in_onnx(model: TrainedModel) -> Counter[str]:
    """Compare the logits of a model and of its ONNX file; return its operators."""
    from jaxtrain.plugins.onnx.onnx_file import emit

    file = emit(Request(model=model).function(), model.image_shape, dtype=np.float32)
    onnx.checker.check_model(file, full_check=True)
    pixels = np.random.default_rng(1).integers(0, 256, (3, 34, 32, 3), dtype=np.uint8)
    images = np.asarray(model.prepare(jnp.asarray(pixels)))
    session = onnxruntime.InferenceSession(
        file.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    wanted = model.logits(pixels)
    atol = 1e-5 * float(np.abs(wanted).max())
    for num in (1, 3):
        (found,) = session.run(None, {"images": images[:num]})
        np.testing.assert_allclose(np.asarray(found), wanted[:num], rtol=0, atol=atol)
    return Counter(node.op_type for node in file.graph.node)


@pytest.mark.plugins
def test_onnx_of_a_run(digits_run: Path, tmp_path: Path, capsys: Any):
    from jaxtrain.plugins.onnx.emitter.write import OPSET

    out = tmp_path / "digits.onnx"
    assert export(digits_run, out, "--format", "onnx", "--include-preprocessing") == 0
    assert "on 64 images" in capsys.readouterr().out
    session = onnxruntime.InferenceSession(out)
    images = read_test()[0][:5]
    (found,) = session.run(["probabilities"], {"images": images})
    expected = load_model(digits_run).predict(images)
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-6)
    file = onnx.load(out)
    assert file.opset_import[0].version == OPSET
    about = json.loads({p.key: p.value for p in file.metadata_props}["jaxtrain"])
    assert about["class_names"] == list("0123456789")
    assert about["input"] == {
        "name": "images",
        "shape": ["batch", 8, 8, 1],
        "dtype": "uint8",
    }


# Of all, those of the head, whose sums are kept in float32, are not half.
KERNELS = {"fp16": "FLOAT16", "bf16": "BFLOAT16", "int8": "INT8"}
KERNELS |= {"int8_weights": "INT8", "fp8_weights": "FLOAT8E4M3FN"}
KERNELS |= {"int4_weights": "INT4"}


@pytest.mark.plugins
@pytest.mark.parametrize("precision", ["fp16", "int8", "int4_weights"])
def test_onnx_in_less_precision(precision: str, digits_run: Path, tmp_path: Path):
    out = tmp_path / f"{precision}.onnx"
    words = ("--format", "onnx", "--precision", precision, "--batch", "3")
    assert export(digits_run, out, *words) == 0
    assert [p.name for p in tmp_path.iterdir()] == [out.name]
    file = onnx.load(out)
    kinds = [
        onnx.TensorProto.DataType.Name(x.data_type)
        for x in file.graph.initializer
        if len(x.dims) == 4
    ]
    assert kinds and set(kinds) == {KERNELS[precision]}
    ends = [*file.graph.input, *file.graph.output]
    assert {x.type.tensor_type.elem_type for x in ends} == {onnx.TensorProto.FLOAT}


# Runs both kinds of file with nothing of ours, or of Flax.
ALONE = """
import sys
for name in ("flax", "jaxtrain", "optax", "orbax"):
    sys.modules[name] = None
import runpy
import jax.export
import numpy as np

folder = sys.argv[1]
pixels = np.load(f"{folder}/pixels.npy")
with open(f"{folder}/file", "rb") as file:
    exported = jax.export.deserialize(bytearray(file.read()))
assert exported.platforms == ("cpu", "cuda", "tpu")
for num in (1, 3):
    np.save(f"{folder}/outputs{num}.npy", exported.call(pixels[:num]))
sys.argv = ["run.py", f"{folder}/pixels.npy"]
script = runpy.run_path(f"{folder}/saved/run.py", run_name="__main__")
np.save(f"{folder}/logits.npy", script["run"](pixels))
"""


@pytest.mark.slow
def test_stablehlo_and_the_folder_run_without_us(digits_run: Path, tmp_path: Path):
    words = ("--format", "stablehlo", "--include-preprocessing")
    assert export(digits_run, tmp_path / "file", *words) == 0
    assert export(digits_run, tmp_path / "saved", "--format", "saved") == 0
    pixels = read_test()[0][:3]
    np.save(tmp_path / "pixels.npy", pixels)
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    model = load_model(digits_run)
    expected = model.predict(pixels)
    for num in (1, 3):
        found = np.load(tmp_path / f"outputs{num}.npy")
        np.testing.assert_allclose(found, expected[:num], atol=1e-6)
    logits = model.logits(pixels)
    found = np.load(tmp_path / "logits.npy")
    np.testing.assert_allclose(found, logits, atol=1e-5 * np.abs(logits).max())
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert names == [str(best) for best in logits.argmax(-1)]


def test_the_program_holds_kernels_with_norms_folded_in(tmp_path: Path):
    """Nothing is left of the norms but an addend; in 16 bits it has half the bytes."""
    model = untrained(ConvNetConfig(name="convnet"))
    pixels = np.random.default_rng(0).normal(size=(2, *model.image_shape))
    images, sizes = pixels.astype(np.float32), {}
    expected = np.asarray(jax.jit(model.forward)(*model.placed, images))
    for precision in ("fp32", "bf16"):
        path = tmp_path / precision
        request = Request(model=model, precision=precision, batch=2)
        stablehlo.StableHLOFile().write(request, path)
        sizes[precision] = path.stat().st_size
        text = jax.export.deserialize(bytearray(path.read_bytes())).mlir_module()
        # Each is there once for every platform.
        num = 2 * len(stablehlo.PLATFORMS)
        assert text.count("stablehlo.convolution") == num
        for operation in ("rsqrt", "multiply", "subtract"):
            assert f"stablehlo.{operation}" not in text, operation
        found = stablehlo.StableHLOFile().load(path, request)(images)
        # Float32 sums in another order; or 8 bits of each product.
        tolerance = {"fp32": 1e-5, "bf16": 3e-2}[precision]
        assert np.abs(found - expected).max() < tolerance * np.abs(expected).max()
    assert sizes["bf16"] < 0.6 * sizes["fp32"]


def test_the_folder_holds_halves(digits_run: Path, tmp_path: Path):
    out = tmp_path / "half"
    words = ("--format", "saved", "--precision", "bf16", "--batch", "4")
    assert export(digits_run, out, *words) == 0
    weights = load_file(out / "weights.safetensors")
    kinds = {x.ndim > 1: x.dtype.name for x in weights.values()}
    assert kinds == {True: "bfloat16", False: "float32"}


@pytest.mark.plugins
def test_an_exported_folder_is_exported_again(digits_run: Path, tmp_path: Path):
    weights, out = tmp_path / "weights", tmp_path / "digits.onnx"
    assert export(digits_run, weights, "--format", "safetensors") == 0
    assert export(weights, out, "--format", "onnx") == 2
    images = tmp_path / "images"
    images.mkdir()
    for index, pixels in enumerate(read_test()[0][:3]):
        Image.fromarray(pixels[..., 0]).save(images / f"{index}.png")
    assert export(weights, out, "--format", "onnx", "--images", str(images)) == 0
    assert out.exists()


@pytest.mark.plugins
def test_a_file_that_is_not_the_model_is_not_written(
    digits_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    exact = {p: check.Tolerance(0.0, 1.0) for p in check.TOLERANCES}
    monkeypatch.setattr(check, "TOLERANCES", exact)
    words = ("--format", "onnx", "--precision", "fp16")
    assert export(digits_run, tmp_path / "digits.onnx", *words) == 1
    assert "not written" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_any_number_of_images_is_checked_with_one_too():
    model = untrained(LeNetConfig())
    images = np.zeros((32, 34, 32, 3), np.float32)
    apply: Any = jax.jit(Request(model=model).function())

    def run(batch: np.ndarray) -> np.ndarray:
        outputs = np.asarray(apply(padded(batch, 16)))[: len(batch)]
        return outputs + (len(batch) == 1)

    check.check(Request(model=model, batch=16), run, images, timed=False)
    with pytest.raises(ExportError, match="other outputs than the model"):
        check.check(Request(model=model), run, images, timed=False)


NAMES = tuple("0123456789")


@pytest.mark.parametrize(
    ("names", "change", "message"),
    [
        # As of a quantised model, whose logits shrink: they differ by 0.4.
        (NAMES, lambda x: 0.6 * x, None),
        (None, lambda x: 0.6 * x, r"the limits of --precision int8 are 0.2; choose"),
        (
            NAMES,
            lambda x: np.roll(x, 1, axis=-1),
            "the limits of --precision int8 are 1 and 90%; choose",
        ),
        (
            NAMES,
            lambda x: np.nan * x,
            "the limits of --precision int8 are 1 and 90%; choose",
        ),
    ],
)
def test_int8_is_judged_by_classes_if_there_are_any(
    names: tuple[str, ...] | None, change: Any, message: str | None
):
    model = untrained(LeNetConfig())
    about = dataclasses.replace(model.description, class_names=names)
    model = dataclasses.replace(model, description=about)
    images = np.random.default_rng(0).normal(size=(32, 34, 32, 3)).astype(np.float32)
    apply: Any = jax.jit(Request(model=model).function())
    request = Request(model=model, batch=16, precision="int8")

    def run(batch: np.ndarray) -> np.ndarray:
        return change(np.asarray(apply(batch)))

    if message is None:
        found = check.check(request, run, images, timed=False)
        assert found.agreement == 1 and found.difference == pytest.approx(0.4)
    else:
        with pytest.raises(UserError, match=message):
            check.check(request, run, images, timed=False)


def of_numbers() -> TrainedModel:
    """Return an untrained model of years, 2000 +- 5, and a count, 3 +- 1."""
    model = untrained(LeNetConfig())
    about = dataclasses.replace(
        model.description,
        task="regression",
        task_options={"mean": "2000,3", "std": "5,1"},
        column_names=("year", "count"),
        num_outputs=2,
    )
    params, state = (
        jax.tree.map(lambda x, like: np.resize(x, like.shape), given, like)
        for given, like in zip(
            (model.params, model.model_state), abstract_weights(about), strict=True
        )
    )
    return TrainedModel(about, params, state, {})


@pytest.mark.plugins
@pytest.mark.parametrize("precision", HALF)
def test_numbers_keep_their_units_in_16_bits(
    precision: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    kernel = np.random.default_rng(1).normal(size=(34 * 32 * 3, 2)).astype(np.float32)

    def forward(model: TrainedModel, params: Any, state: Any, x: jax.Array) -> Any:
        """A model whose last product, unlike that of ours, is of 16 bits."""
        flat = x.reshape(len(x), -1)
        return (flat @ jnp.asarray(kernel / 57).astype(x.dtype)).astype(np.float32)

    monkeypatch.setattr(TrainedModel, "portable_forward", forward)
    images = np.random.default_rng(0).normal(size=(8, 34, 32, 3)).astype(np.float32)
    model, out = of_numbers(), tmp_path / "file.onnx"
    request = Request(model=model, precision=precision, batch=8)
    export_lib.export("onnx", request, out, images)
    found = find_exporter("onnx").load(out, request)(images)
    outputs = images.reshape(8, -1) @ kernel / 57
    # In deviations: numbers up to 3 of 8 bits.
    np.testing.assert_allclose((found - [2000, 3]) / [5, 1], outputs, atol=0.05)


def test_each_column_of_numbers_is_judged_by_its_spread():
    request = Request(model=of_numbers(), batch=16, precision="bf16")
    images = np.random.default_rng(0).normal(size=(32, 34, 32, 3)).astype(np.float32)
    apply: Any = jax.jit(request.function())

    def rounded(batch: np.ndarray) -> np.ndarray:
        return np.asarray(apply(batch)).astype(jnp.bfloat16).astype(np.float32)

    check.check(request, apply, images, timed=False)
    with pytest.raises(ExportError, match="of the spread of their column"):
        check.check(request, rounded, images, timed=False)


@pytest.mark.plugins
def test_numbers_in_8_bits_are_refused(tmp_path: Path):
    request = Request(model=of_numbers(), precision="int8")
    with pytest.raises(UserError, match=r"--precision int8: .*256 levels"):
        export_lib.export("onnx", request, tmp_path / "out", np.zeros((1, 34, 32, 3)))
    assert not list(tmp_path.iterdir())


@each_row(
    ("words", "message"),
    [
        (["--format", "safetensors", "--batch", "2"], "--batch has no effect"),
        (["--format", "stablehlo", "--batch", "0"], "--batch 0: expected dynamic"),
        (
            ["--format", "stablehlo", "--images", "/nowhere"],
            "--images /nowhere: no such",
        ),
    ],
)
def test_what_is_refused(
    words: list[str], message: str, digits_run: Path, tmp_path: Path, capsys: Any
):
    assert export(digits_run, tmp_path / "out", *words) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.plugins
@each_row(
    ("words", "message"),
    [
        (
            ["--format", "stablehlo", "--precision", "int8"],
            "; int8 needs --format onnx",
        ),
        (
            ["--format", "saved", "--precision", "int4_weights"],
            "; int4_weights needs --format onnx",
        ),
    ],
)
def test_a_precision_of_another_format_is_named(
    words: list[str], message: str, digits_run: Path, tmp_path: Path, capsys: Any
):
    assert export(digits_run, tmp_path / "out", *words) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_is_there_stays(digits_run: Path, tmp_path: Path, capsys: Any):
    out = tmp_path / "out"
    out.write_text("mine")
    for kind in ("stablehlo", "safetensors", "saved"):
        assert export(digits_run, out, "--format", kind) == 2
        assert "already exists" in capsys.readouterr().err
    assert out.read_text() == "mine"


@pytest.mark.plugins
def test_a_library_that_is_missing(
    digits_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert export(digits_run, tmp_path / "out", "--format", "onnx") == 2
    message = capsys.readouterr().err
    assert "needs onnxruntime" in message and extras.install("export") in message


def test_several_arrays_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def heads(model: TrainedModel, params: Any, state: Any, x: jax.Array) -> Any:
        return {"map": x, "count": x.sum((1, 2, 3))}

    monkeypatch.setattr(TrainedModel, "forward", heads)
    request = Request(model=untrained(LeNetConfig()))
    out, images = tmp_path / "out", np.zeros((1, 34, 32, 3), np.float32)
    for format in EXPORTERS:
        with pytest.raises(UserError, match=r"'count': \(\), 'map': \(34, 32, 3\)"):
            export_lib.export(format, request, out, images)
    assert not out.exists()
