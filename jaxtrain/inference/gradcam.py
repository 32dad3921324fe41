"""Grad-CAM heat maps (Selvaraju et al. 2017, arXiv:1610.02391).

For the last spatial activations A and the logit y of a class:

    weights_k = mean over height and width of dy / dA_k
    map       = relu(sum over channels k of weights_k A_k)
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import colormaps
from PIL import Image, ImageDraw

from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError
from jaxtrain.font import fitted, font
from jaxtrain.inference.model import TrainedModel
from jaxtrain.training import forward

# Minimum length of the shorter side, in pixels.
SIDE = 224
# Opacity of the heat map at its maximum.
STRENGTH = 0.6
# Height, font size and margin in pixels.
CAPTION_HEIGHT, CAPTION_SIZE, CAPTION_MARGIN = 24, 14, 4


def last_piece(model: TrainedModel) -> int:
    """Return the index of the last piece whose output has more than one pixel.

    Raises:
      UserError: No piece has such an output.
    """
    model.description.check_is_one("--explain: the model")
    num = len(model.description.abstract.pieces)

    def activations(params: Any, model_state: Any, images: jax.Array) -> list[Any]:
        outputs = [images]
        for i in range(num):
            part = slice(i, i + 1)
            x = forward.predict(model.graphdef, params, model_state, outputs[-1], part)
            outputs.append(x)
        return outputs[1:]

    shapes = model.shapes(activations)
    for index in reversed(range(num)):
        x = shapes[index]
        known = isinstance(x, jax.ShapeDtypeStruct) and len(x.shape) == 4
        if known and x.shape[1] * x.shape[2] > 1:
            return index
    raise UserError(
        f"--explain: model.name = {model.description.model.name!r} has no piece with "
        "spatial activations, which Grad-CAM needs; leave it out"
    )


def heat_maps(
    model: TrainedModel,
    last: int,
    params: Any,
    model_state: Any,
    images: jax.Array,
    classes: jax.Array,
) -> jax.Array:
    """Compute Grad-CAM for one class of each image. Traceable.

    Args:
      last: Index of the piece whose activations are weighted (`last_piece`).
      images: Normalised images, (B, H, W, C).
      classes: Class to explain for each image, (B,).

    Returns:
      Heat maps, float32 (B, height, width).
    """

    def apply(x: Any, part: slice) -> Any:
        return forward.predict(model.graphdef, params, model_state, x, part)

    def sum_of_logits(activations: jax.Array) -> jax.Array:
        logits = widen(apply(activations, slice(last + 1, None)))
        return jnp.take_along_axis(logits, classes[:, None], axis=1).sum()

    with jax.default_matmul_precision(model.policy.products):
        activations = apply(images, slice(last + 1))
        # The logits of an image do not depend on the other images.
        grads = widen(jax.grad(sum_of_logits)(activations))
    weights = grads.mean((1, 2), keepdims=True)
    return jax.nn.relu((weights * widen(activations)).sum(-1))


def overlay(pixels: np.ndarray, heat: np.ndarray, caption: str = "") -> Image.Image:
    """Overlay a heat map on an image: transparent at 0, red at the maximum.

    Args:
      pixels: Image, uint8 (H, W, C).
      heat: Non-negative heat map of the image, (height, width).
      caption: Line of text below the image; empty for no caption.
    """
    picture = Image.fromarray(np.broadcast_to(pixels[..., :3], (*pixels.shape[:2], 3)))
    factor = max(1, -(-SIDE // min(picture.size)))
    size = picture.width * factor, picture.height * factor
    largest = float(heat.max())
    opacity = np.asarray(heat / largest if largest > 0 else heat, np.float32)
    smooth = Image.fromarray(opacity).resize(size, Image.Resampling.BILINEAR)
    opacity = np.asarray(smooth)[..., None]
    colours = _colour_map()[(255 * opacity[..., 0]).astype(np.uint8)]
    image = np.asarray(picture.resize(size, Image.Resampling.NEAREST), np.float32)
    coloured = (image + STRENGTH * opacity * (colours - image)).astype("u1")
    return _with_caption(Image.fromarray(coloured), caption)


def _with_caption(picture: Image.Image, caption: str) -> Image.Image:
    if not caption:
        return picture
    width, height = picture.size
    canvas = Image.new("RGB", (width, height + CAPTION_HEIGHT), "white")
    canvas.paste(picture)
    words = fitted(caption, width - 2 * CAPTION_MARGIN, CAPTION_SIZE)
    place = CAPTION_MARGIN, height + CAPTION_MARGIN
    ImageDraw.Draw(canvas).text(place, words, "black", font(CAPTION_SIZE))
    return canvas


@functools.cache
def _colour_map() -> np.ndarray:
    """Return the colour map from blue to red, float32 (256, 3), in 0..255."""
    return 255 * np.asarray(colormaps["turbo"](np.arange(256))[:, :3], np.float32)
