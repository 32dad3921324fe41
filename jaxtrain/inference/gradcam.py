"""Grad-CAM (Selvaraju et al. 2017, arXiv:1610.02391): what a class is seen by.

Of the last activations A that have rows and columns, and the logit y of a class:

    weights_k = mean over rows and columns of dy / dA_k
    map       = relu(sum over channels k of weights_k A_k)
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from matplotlib import colormaps
from PIL import Image, ImageDraw

from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError
from jaxtrain.font import fitted, font
from jaxtrain.inference.model import TrainedModel
from jaxtrain.models.taps import Taps, shapes_read, tapping
from jaxtrain.training import forward

# Outputs of the model -> sum of the logits to explain.
Score = Callable[[Any], jax.Array]
# Pixels of the shorter side, at least.
SIDE = 224
# How much of the colour of the map there is where it is largest.
STRENGTH = 0.6
# In pixels.
CAPTION_HEIGHT, CAPTION_SIZE, CAPTION_MARGIN = 24, 14, 4


def last_place(model: TrainedModel) -> int:
    """Return the place of the last activations with more than one row or column.

    Of a model of pieces that of the piece; of a plain Flax module that of the call
    among those of its layers (`jaxtrain.models.taps`).

    Raises:
      UserError: There are none.
    """
    model.description.check_is_one("--explain: the model")
    abstract = model.description.abstract
    if not abstract.has_pieces:
        return _last_call(model)
    num = len(abstract.pieces)

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
    raise _nothing_to_draw(model, "piece")


def maps(
    model: TrainedModel,
    place: int,
    params: Any,
    model_state: Any,
    images: jax.Array,
    classes: jax.Array,
) -> jax.Array:
    """Return the maps of one class of each image, float32 (B, rows, columns).

    May be traced.

    Args:
      place: Place of the activations that are weighed (`last_place`).
      images: Normalised images, (B, H, W, C).
      classes: Class to explain for each image, (B,).
    """
    has_pieces = model.description.abstract.has_pieces
    found = _of_piece if has_pieces else _of_call

    def sum_of_logits(logits: Any) -> jax.Array:
        # No image has an effect on the logits of another.
        return jnp.take_along_axis(widen(logits), classes[:, None], axis=1).sum()

    with jax.default_matmul_precision(model.policy.products):
        weights = params, model_state
        activations, grads = found(model, place, weights, images, sum_of_logits)
    means = widen(grads).mean((1, 2), keepdims=True)
    return jax.nn.relu((means * widen(activations)).sum(-1))


def _of_piece(
    model: TrainedModel, place: int, weights: Any, images: Any, score: Score
) -> tuple[jax.Array, jax.Array]:
    """Return the activations behind a piece, and the gradients of the score."""

    def apply(x: Any, part: slice) -> Any:
        params, model_state = weights
        return forward.predict(model.graphdef, params, model_state, x, part)

    def rest(activations: jax.Array) -> jax.Array:
        return score(apply(activations, slice(place + 1, None)))

    activations = apply(images, slice(place + 1))
    return activations, jax.grad(rest)(activations)


def _of_call(
    model: TrainedModel, place: int, weights: Any, images: Any, score: Score
) -> tuple[jax.Array, jax.Array]:
    """Return the activations of a layer's call, and the gradients of the score."""
    taps = Taps()
    jax.eval_shape(lambda: _tapped(model, weights, images, taps))
    _, found = taps.found[place]
    zeros = jnp.zeros(found.shape, found.dtype)

    def scored(*arrays: Any) -> jax.Array:
        return score(_tapped(model, weights, images, Taps(place, arrays)))

    return jax.grad(scored, (0, 1))(zeros, zeros)


def _tapped(model: TrainedModel, weights: Any, images: Any, taps: Taps) -> Any:
    copy = nnx.merge(model.graphdef, *weights, copy=True)
    copy.eval()
    with tapping(copy, taps):
        return copy(images)


def _last_call(model: TrainedModel) -> int:
    """Return the place of the last call that is made once, and of the whole batch."""
    places = list[int]()

    def forward(params: Any, model_state: Any, images: jax.Array) -> Any:
        weights, taps = (params, model_state), Taps()
        outputs = _tapped(model, weights, images, taps)
        for place, (_, found) in enumerate(taps.found):

            def tapped(*arrays: Any, place: int = place) -> Any:
                return _tapped(model, weights, images, Taps(place, arrays))

            jaxpr = jax.make_jaxpr(tapped)(found, found).jaxpr
            if shapes_read(jaxpr) == [found.shape]:
                places.append(place)
        return outputs

    model.shapes(forward)
    if not places:
        raise _nothing_to_draw(model, "layer")
    return places[-1]


def _nothing_to_draw(model: TrainedModel, part: str) -> UserError:
    return UserError(
        f"--explain: no {part} of model.name = {model.description.model.name!r} leaves "
        "rows and columns, so there is nothing to draw"
    )


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
