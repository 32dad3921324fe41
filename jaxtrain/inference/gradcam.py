"""Grad-CAM (Selvaraju et al. 2017, arXiv:1610.02391): what a class is seen by.

Of the last activations A that have rows and columns, and the logit y of a class:

    weights_k = mean over rows and columns of dy / dA_k
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

# Pixels of the shorter side, at least.
SIDE = 224
# How much of the colour of the map there is where it is largest.
STRENGTH = 0.6
# In pixels.
CAPTION_HEIGHT, CAPTION_SIZE, CAPTION_MARGIN = 24, 14, 4


def last_piece(model: TrainedModel) -> int:
    """Return the place of the last piece that leaves more than one row or column.

    Raises:
      UserError: there is none.
    """
    model.description.check_is_one("--explain: the model")
    num = len(model.description.abstract.pieces)

    def activations(params: Any, model_state: Any, images: jax.Array) -> list[Any]:
        found = [images]
        for i in range(num):
            part = slice(i, i + 1)
            x = forward.predict(model.graphdef, params, model_state, found[-1], part)
            found.append(x)
        return found[1:]

    shapes = model.shapes(activations)
    for index in reversed(range(num)):
        x = shapes[index]
        known = isinstance(x, jax.ShapeDtypeStruct) and len(x.shape) == 4
        if known and x.shape[1] * x.shape[2] > 1:
            return index
    raise UserError(
        f"--explain: no piece of model.name = {model.description.model.name!r} leaves "
        "rows and columns, so there is nothing to draw"
    )


def maps(
    model: TrainedModel,
    last: int,
    params: Any,
    model_state: Any,
    images: jax.Array,
    classes: jax.Array,
) -> jax.Array:
    """Return the maps of one class of each image, float32 (B, rows, columns).

    May be traced.

    Args:
      last: Place of the piece whose activations are weighed (`last_piece`).
      images: Normalised images, (B, H, W, C).
      classes: Class to explain for each image, (B,).
    """

    def apply(x: Any, part: slice) -> Any:
        return forward.predict(model.graphdef, params, model_state, x, part)

    def sum_of_logits(activations: jax.Array) -> jax.Array:
        logits = widen(apply(activations, slice(last + 1, None)))
        return jnp.take_along_axis(logits, classes[:, None], axis=1).sum()

    with jax.default_matmul_precision(model.policy.products):
        activations = apply(images, slice(last + 1))
        # No image has an effect on the logits of another.
        grads = widen(jax.grad(sum_of_logits)(activations))
    weights = grads.mean((1, 2), keepdims=True)
    return jax.nn.relu((weights * widen(activations)).sum(-1))


def draw(pixels: np.ndarray, heat: np.ndarray, caption: str = "") -> Image.Image:
    """Colour an image by a map: as it is where the map is 0, red where it is largest.

    Args:
      pixels: Image, uint8 (H, W, C).
      heat: Map of the image, (rows, columns), 0 or more.
      caption: One line below the picture; empty: there is none.
    """
    picture = Image.fromarray(np.broadcast_to(pixels[..., :3], (*pixels.shape[:2], 3)))
    factor = max(1, -(-SIDE // min(picture.size)))
    size = picture.width * factor, picture.height * factor
    largest = float(heat.max())
    part = np.asarray(heat / largest if largest > 0 else heat, np.float32)
    smooth = Image.fromarray(part).resize(size, Image.Resampling.BILINEAR)
    part = np.asarray(smooth)[..., None]
    colours = _colours()[(255 * part[..., 0]).astype(np.uint8)]
    image = np.asarray(picture.resize(size, Image.Resampling.NEAREST), np.float32)
    coloured = (image + STRENGTH * part * (colours - image)).astype("u1")
    return _with_caption(Image.fromarray(coloured), caption)


def _with_caption(picture: Image.Image, caption: str) -> Image.Image:
    if not caption:
        return picture
    width, height = picture.size
    whole = Image.new("RGB", (width, height + CAPTION_HEIGHT), "white")
    whole.paste(picture)
    words = fitted(caption, width - 2 * CAPTION_MARGIN, CAPTION_SIZE)
    place = CAPTION_MARGIN, height + CAPTION_MARGIN
    ImageDraw.Draw(whole).text(place, words, "black", font(CAPTION_SIZE))
    return whole


@functools.cache
def _colours() -> np.ndarray:
    """Return 256 colours, blue to red, (256, 3)."""
    return 255 * np.asarray(colormaps["turbo"](np.arange(256))[:, :3], np.float32)
