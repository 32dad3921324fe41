"""The network of the speed runs: its first kernels."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxtrain import load_model
from jaxtrain.cli import main
from jaxtrain.config import DataConfig, WhitenedCNNConfig
from jaxtrain.data import sources
from jaxtrain.data.image_statistics import statistics
from jaxtrain.models.blueprint import initial_rngs
from jaxtrain.models.layers import lecun_normal
from jaxtrain.models.whitened_cnn import identity_like
from jaxtrain.models.whitening import whitening_kernel
from jaxtrain.training.state import split_model
from tests.helpers.blueprints import make_blueprint
from tests.helpers.recipes import recipe, write_recipe

NHWC = ("NHWC", "HWIO", "NHWC")
DATA = 'DataConfig(source="digits", batch_size=64)'


def smooth_images(num: int, size: int, channels: int) -> np.ndarray:
    """Return images whose neighbours, and whose channels, are correlated."""
    noise = np.random.default_rng(0).normal(size=(num, size, size, channels))
    images = noise + 2 * np.roll(noise, 1, axis=1) + np.roll(noise, 1, axis=2)
    return images + 0.5 * images.mean(axis=-1, keepdims=True)


def convolve(images: np.ndarray, kernel: np.ndarray, padding: str) -> np.ndarray:
    outputs = lax.conv_general_dilated(
        jnp.asarray(images, np.float32),
        jnp.asarray(kernel, np.float32),
        (1, 1),
        padding,
        dimension_numbers=NHWC,
    )
    return np.asarray(outputs)


@pytest.mark.parametrize(("patch", "channels"), [((2, 2), 3), ((3, 2), 1)])
def test_outputs_are_uncorrelated_and_have_a_mean_square_of_1(
    patch: tuple[int, int], channels: int
):
    images = smooth_images(20, 16, channels)
    size = patch[0] * patch[1] * channels
    kernel = whitening_kernel(images, (*patch, channels, size))
    outputs = convolve(images, kernel, "VALID").reshape(-1, size)
    before = convolve(images, np.eye(size).reshape(kernel.shape), "VALID")
    before = before.reshape(-1, size)
    # What is added to the variances, the least of which is 0.3, takes 0.2 % of it.
    found = outputs.T @ outputs / len(outputs)
    np.testing.assert_allclose(found, np.eye(size), atol=4e-3)
    assert abs(before.T @ before / len(before) - np.eye(size)).max() > 1
    # The largest variance of the patches comes first.
    norms = np.linalg.norm(kernel.reshape(size, size), axis=0)
    assert (np.diff(norms) > 0).all()


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 5), (5, 3)])
def test_a_convolution_begins_as_the_identity(inputs: int, outputs: int):
    shape, key = (3, 3, inputs, outputs), jax.random.key(0)
    kernel = np.asarray(identity_like(lecun_normal)(key, shape, np.float32))
    images = smooth_images(2, 8, inputs).astype(np.float32)
    same = min(inputs, outputs)
    found = convolve(images, kernel, "SAME")
    np.testing.assert_array_equal(found[..., :same], images[..., :same])
    others = lecun_normal(key, shape, np.float32)[..., same:]
    np.testing.assert_array_equal(kernel[..., same:], others)


@pytest.mark.slow
def test_a_run_begins_with_the_kernel_of_its_images_and_keeps_it(tmp_path: Path):
    config = recipe(
        data=DATA,
        model='WhitenedCNNConfig(name="whitened_cnn_small", width=0.125)',
        train='TrainConfig(steps=3, freeze=("whiten",), ema_decay=0.9)',
        checkpoint="CheckpointConfig()",
        logging="LoggingConfig(every_steps=3, tensorboard=False)",
    )
    path = write_recipe(tmp_path / "recipe.py", config)
    words = ["--config", str(path), "--workdir", str(tmp_path / "run")]
    assert main([*words, "--seed", "3"]) == 0
    data = DataConfig(source="digits", batch_size=64)
    source = sources.load(data, 3).train
    mean, std = statistics(source)
    images = source.read(np.arange(len(source)))["image"] / 255
    expected = whitening_kernel((images - mean) / std, (2, 2, 1, 4))
    found = load_model(tmp_path / "run").params["whiten"]["kernel"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


WRAPPING = """
from flax import nnx

class Wrapped(nnx.Module):
    def __init__(self, inner):
        self.inner = inner

    def __call__(self, x):
        return self.inner(x)

def wrapped(model):
    model.whiten = Wrapped(model.whiten)
    return model
"""


def test_a_transform_that_takes_the_kernel_away_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "wrapping.py").write_text(WRAPPING)
    config = recipe(
        data=DATA,
        model='WhitenedCNNConfig(name="whitened_cnn_small", width=0.125)',
        train="TrainConfig(steps=3)",
    )
    path = write_recipe(tmp_path / "recipe.py", config)
    words = ["--config", str(path), "--workdir", str(tmp_path / "run")]
    code = main([*words, "--model.transform", f"{tmp_path / 'wrapping.py'}:wrapped"])
    assert code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "model.transform removed whiten/kernel" in told


def test_a_pooled_head_sees_the_largest_value_of_each_channel():
    made = make_blueprint(
        WhitenedCNNConfig(name="whitened_cnn_small", width=0.25, global_pool="max"),
        (20, 16, 1),
        3,
    )
    model = made.build(initial_rngs(jax.random.key(0)))
    model.eval()
    images = jax.random.uniform(jax.random.key(1), (2, 20, 16, 1))
    features = np.asarray(model(images, part=slice(len(model.pieces) - 1)))
    assert features.shape == (2, 2, 2, 16)
    head = split_model(model)[1]["head"]["linear"]
    expected = features.max((1, 2)) @ head["kernel"] + head["bias"]
    np.testing.assert_allclose(model(images), expected, rtol=1e-5, atol=1e-6)
