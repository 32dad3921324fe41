"""The U-Net: its decoder, and what it computes."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.errors import UserError
from jaxtrain.models.blueprint import initial_rngs
from jaxtrain.training.forward import predict
from jaxtrain.training.state import num_params, split_model
from tests.helpers.by_means import by_means
from tests.helpers.map_models import CLASSES, blueprint, outputs_of
from tests.helpers.rows import each_row


def test_parameters_are_those_of_the_layers():
    """ResNet-18 without its last layer, and five blocks of two convolutions."""
    inputs, outputs = (512 + 256, 256 + 128, 128 + 64, 64, 32), (256, 128, 64, 32, 16)
    blocks = [9 * (i + o) * o + 4 * o for i, o in zip(inputs, outputs, strict=True)]
    params = split_model(blueprint().abstract())[1]
    resnet18 = 11_689_512 - 513 * 1000
    assert num_params(params) == resnet18 + sum(blocks) + 17 * CLASSES


def test_a_width_scales_the_decoder_too():
    params = split_model(blueprint(width=0.5).abstract())[1]
    assert params["up16"]["conv1"]["conv"]["kernel"].shape == (3, 3, 256 + 128, 128)
    assert params["up1"]["conv2"]["conv"]["kernel"].shape == (3, 3, 8, 8)


def test_a_short_decoder_ends_before_the_size_of_the_image():
    """Its logits, at half of the image, are resized as PyTorch's bilinear means."""
    made = blueprint((12, 16), backbone="convnet", width=0.1, decoder_channels=(7,))
    graphdef, params, rest = split_model(made.build(initial_rngs(jax.random.key(1))))
    assert params["up2"]["conv1"]["conv"]["kernel"].shape[3] == 7
    assert "up1" not in params
    images = jax.random.uniform(jax.random.key(2), (2, 12, 16, 3))
    found = predict(graphdef, params, rest, images)
    model = made.build(initial_rngs(jax.random.key(1)))
    model.eval()
    small = model(images, part=slice(len(model.pieces) - 1))[0]
    assert small.shape == (2, 6, 8, 7)
    head = params["head"]["linear"]
    logits = np.asarray(small @ head["kernel"] + head["bias"])
    np.testing.assert_allclose(found, by_means(logits, (12, 16)), atol=1e-6)


def test_a_decoder_longer_than_the_backbone_is_refused():
    made = blueprint((12, 16), backbone="convnet", decoder_channels=(8, 8, 8))
    with pytest.raises(UserError, match="expected at most 2 numbers"):
        made.abstract()


def test_logits_are_summed_in_float32_and_have_the_output_dtype():
    made = blueprint((9, 8), policy="bf16", backbone="convnet", width=0.1)
    assert outputs_of(made, made.abstract()).dtype == jnp.float32


def by_hand(params: Any, state: Any, images: np.ndarray) -> np.ndarray:
    """Return the logits of a U-Net over a convnet, in evaluation, in float64."""

    def conv(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
        return np.einsum("nhwcij,ijco->nhwo", windows, kernel)

    def block(x: np.ndarray, kernel: Any, norm: Any, stats: Any) -> np.ndarray:
        x = (conv(x, kernel["kernel"]) - stats["mean"]) / np.sqrt(stats["var"] + 1e-5)
        return np.maximum(x * norm["scale"] + norm["bias"], 0)

    def pooled(x: np.ndarray) -> np.ndarray:
        num, rows, columns, channels = x.shape
        x = x[:, : rows // 2 * 2, : columns // 2 * 2]
        parts = x.reshape(num, rows // 2, 2, columns // 2, 2, channels)
        return parts.max((2, 4))

    levels = [images]
    for number in (1, 2):
        layers = params[f"conv{number}"], params[f"norm{number}"]
        levels.append(pooled(block(levels[-1], *layers, state[f"norm{number}"])))
    x = levels[2]
    for name, size, skip in (
        ("up2", levels[1].shape, levels[1]),
        ("up1", images.shape, None),
    ):
        x = x.repeat(2, 1).repeat(2, 2)[:, : size[1], : size[2]]
        if x.shape[1:3] != size[1:3]:
            x = by_means(x, size[1:3])
        if skip is not None:
            x = np.concatenate([x, skip], -1)
        for part in ("conv1", "conv2"):
            layer = params[name][part]
            x = block(x, layer["conv"], layer["norm"], state[name][part]["norm"])
    head = params["head"]["linear"]
    return x @ head["kernel"] + head["bias"]


# Of the last, pools leave out rows, and twice what is left is too little.
@each_row("size", [(12, 16), (15, 14)])
def test_what_a_unet_computes(size: tuple[int, int]):
    made = blueprint(size, backbone="convnet", width=0.1)
    graphdef, *abstract = split_model(made.abstract())
    rng = np.random.default_rng(0)

    def fill(x: Any) -> np.ndarray:
        kernel = x.ndim > 1
        return (
            rng.standard_normal(x.shape) if kernel else rng.uniform(0.5, 1.5, x.shape)
        )

    weights = jax.tree.map(fill, abstract)
    images = rng.standard_normal((2, *size, 3))
    expected = by_hand(weights[0], weights[1], images)
    single = jax.tree.map(np.float32, (*weights, images))
    found = jax.jit(functools.partial(predict, graphdef))(*single)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
