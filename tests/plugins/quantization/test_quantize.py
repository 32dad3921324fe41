"""A model that is rounded to 8 bits without training: its ranges, means and file."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest

from jaxtrain import load_model
from jaxtrain.cli import main
from jaxtrain.config import DataConfig
from jaxtrain.data.stores import open_digits
from jaxtrain.errors import UserError
from jaxtrain.plugins.quantization.fake_quantization import (
    fake_quantize,
    fake_quantize_kernel,
)
from jaxtrain.plugins.quantization.quantize import find_ranges, quantize
from jaxtrain.plugins.quantization.range_search import (
    CUT_OFF,
    Seen,
    choose_range,
    squared_error,
)
from jaxtrain.plugins.quantization.rounding_loss import RoundingLoss, check_loss
from jaxtrain.plugins.segmentation.decoder import pixel_agreement
from jaxtrain.tasks.decoder import class_agreement
from jaxtrain.trees import by_path
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row

RECIPE = recipe(
    data='DataConfig(source="digits", batch_size=64)',
    model='ConvNetConfig(name="convnet", width=0.25)',
    optimizer="SGDConfig(learning_rate=0.1)",
    train="TrainConfig(steps=40)",
    checkpoint="CheckpointConfig(every_steps=40)",
    logging="LoggingConfig(every_steps=20, tensorboard=False, report=False)",
)


def seen(values: np.ndarray) -> Seen:
    return Seen(float(min(values.min(), 0)), float(max(values.max(), 0)), values)


def images(split: str, num: int) -> np.ndarray:
    store, splits = open_digits("", DataConfig(source="digits"))
    return np.asarray(store.read(splits[split][0][:num])[0])


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantize")
    path = write_recipe(folder / "recipe.py", RECIPE)
    assert main(["--config", str(path), "--workdir", str(folder / "run")]) == 0
    return folder / "run"


def test_one_value_far_off_is_cut_off():
    values = np.random.default_rng(0).normal(size=20_000).astype(np.float32)
    values[0] = 100
    assert choose_range(seen(values), "minmax") == (values.min(), 100)
    low, high = choose_range(seen(values), "percentile")
    assert np.mean(values > high) == pytest.approx(CUT_OFF, rel=0.1)
    assert np.mean(values < low) == pytest.approx(CUT_OFF, rel=0.1)


def test_mse_is_the_least_of_a_grid():
    """Of laplacian values, of which the best range leaves out some."""
    values = np.random.default_rng(0).laplace(size=20_000).astype(np.float32)
    low, high = choose_range(seen(values), "mse")
    assert values.min() < low < 0 < high < values.max()
    grid = np.linspace(0.3, 1, 40)
    least = min(
        squared_error(values, i * values.min(), j * values.max())
        for i in grid
        for j in grid
    )
    assert squared_error(values, low, high) <= 1.01 * least


def test_a_class_of_few_pixels_counts_as_any_other():
    """A mask of background alone agrees by a third with three classes."""
    classes = np.zeros((4, 10, 10), int)
    classes[:, :2, :2], classes[:, 8:, 8:] = 1, 2
    theirs, lost = np.eye(3)[classes], np.eye(3)[0 * classes]
    assert class_agreement(lost, theirs) == pytest.approx(0.92)
    assert pixel_agreement(lost, theirs) == pytest.approx(1 / 3)
    assert pixel_agreement(theirs, theirs) == 1
    # One pixel of 2,000 is left to the last bit.
    large = np.zeros((2000, 1, 1), int)
    large[0] = 1
    assert pixel_agreement(np.eye(2)[0 * large], np.eye(2)[large]) == 1


@each_row(
    ("before", "after", "higher", "allowed", "told"),
    [
        (0.96, 0.93, True, 0.05, None),
        (0.96, 0.90, True, 0.05, r"0\.9600 -> 0\.9000 on 64 images.* 6\.2% worse"),
        (0.50, 0.60, False, 0.05, "20.0% worse"),
        (0.50, np.nan, True, 1.0, "nan"),
        (0.0, 0.0, True, 0.0, None),
    ],
)
def test_what_8_bits_may_cost(
    before: float, after: float, higher: bool, allowed: float, told: str | None
):
    loss = RoundingLoss("mean_iou", before, after, higher, "64 images")
    if told is None:
        check_loss(loss, allowed)
    else:
        with pytest.raises(UserError, match=told):
            check_loss(loss, allowed)


@pytest.mark.slow
def test_means_are_those_of_the_model_in_floats(workdir: Path):
    """Norms move their means as far as rounding moves what they take."""
    model, pixels = load_model(workdir), images("train", 64)
    found = quantize(model, pixels, images("test", 64), "mse")
    assert 0 < found.difference < 0.1
    before, after = (by_path(m.model_state) for m in (model, found.model))
    moved = after["norm1/mean"] - before["norm1/mean"]
    # What the first norm takes is linear in the images, and they are rounded, too.
    low, high = (np.asarray(after[f"conv1/input_range/{x}"]) for x in ("low", "high"))
    x = model.prepare(jnp.asarray(pixels))
    kernel = np.asarray(by_path(model.params)["conv1/kernel"])
    ways = (x, kernel), (fake_quantize(x, low, high), fake_quantize_kernel(kernel))
    means = [
        np.asarray(convolved(jnp.asarray(x), jnp.asarray(k))).mean((0, 1, 2))
        for x, k in ways
    ]
    np.testing.assert_allclose(moved, means[1] - means[0], atol=1e-5)
    assert np.abs(moved).max() > 1e-4
    # Behind all layers nothing is left of it, but the rounding of the outputs: of 64
    # images its mean is a step / sqrt(12 * 64) off.
    low, high = (after[f"head/linear/output_range/{x}"] for x in ("low", "high"))
    outputs = [m.logits(pixels).mean(0) for m in (model, found.model)]
    far = 0.15 * float(high - low) / 255
    np.testing.assert_allclose(outputs[1], outputs[0], atol=far)


def convolved(x: Any, kernel: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=numbers
    )


@pytest.mark.slow
def test_ranges_are_of_the_values_that_are_rounded(workdir: Path):
    """Minima and maxima of what layers take, of a model computed layer by layer."""
    model, pixels = load_model(workdir), images("train", 64)
    rounded = quantize(model, pixels, pixels, "minmax").model
    ranges = find_ranges(rounded, pixels, "minmax")
    state = by_path(rounded.model_state)
    for path, ends in ranges.items():
        low, high = (float(state[f"{path}/{end}"]) for end in ("low", "high"))
        # Means that were taken back move values behind the first layer.
        assert ends == pytest.approx((low, high), rel=0.1, abs=0.05 * (high - low))
    first = ranges["conv1/input_range"]
    prepared = np.asarray(model.prepare(jnp.asarray(pixels)))
    assert first == pytest.approx((min(0, prepared.min()), prepared.max()), rel=1e-6)


@pytest.mark.slow
def test_the_file_is_the_model(workdir: Path, tmp_path: Path, capsys: Any):
    out, file = tmp_path / "rounded", tmp_path / "rounded.onnx"
    words = ["quantize", "--workdir", str(workdir), "--out", str(out), "--verbose"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "conv1/input_range" in shown and "from 1,024 images" in shown
    words = ["export", "--workdir", str(out), "--format", "onnx", "--out", str(file)]
    assert main([*words, "--images", str(workdir)]) == 0
    model, pixels = load_model(out), images("test", 256)
    assert model.description.model.quantize == "int8"
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    found = np.asarray(
        session.run(None, {"images": np.asarray(model.prepare(jnp.asarray(pixels)))})
    )
    ends = by_path(model.model_state)
    low, high = (ends[f"head/linear/output_range/{end}"] for end in ("low", "high"))
    away = np.abs(found[0] - model.logits(pixels))
    assert (away <= 1.001 * float(high - low) / 255).mean() >= 0.999
    # It goes on in training, with the ranges that it has.
    further = ["--config", str(workdir.parent / "recipe.py"), "--train.steps", "2"]
    further += ["--model.pretrained", str(out), "--model.quantize", "int8"]
    assert main([*further, "--workdir", str(tmp_path / "further")]) == 0


@pytest.mark.slow
def test_what_cannot_be_rounded_is_refused(workdir: Path, tmp_path: Path, capsys: Any):
    out = tmp_path / "out"

    def refusal(*words: object) -> str:
        assert main(["quantize", *map(str, words)]) == 2
        return capsys.readouterr().err

    given = ("--workdir", workdir, "--out")
    assert "--num-images 0: expected 1" in refusal(*given, out, "--num-images", 0)
    assert "already exists" in refusal(*given, workdir)
    assert main(["quantize", *map(str, given), str(out)]) == 0
    capsys.readouterr()
    words = ("--workdir", out, "--out", tmp_path / "again")
    assert "is already quantized" in refusal(*words)
    plain = tmp_path / "plain"
    words = ["export", "--workdir", str(workdir), "--format", "safetensors"]
    assert main([*words, "--out", str(plain)]) == 0
    capsys.readouterr()
    words = ("--workdir", plain, "--out", tmp_path / "new")
    assert "is a model without data" in refusal(*words)
    assert "no such file" in refusal(*words, "--images", tmp_path / "nothing")
    assert not (tmp_path / "new").exists()
    assert main(["quantize", *map(str, words), "--images", str(workdir)]) == 0
