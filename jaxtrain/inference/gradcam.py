"""Grad-CAM heat maps (Selvaraju et al. 2017, arXiv:1610.02391).

For the last spatial activations A and the logit y of a class:

    weights_k = mean over height and width of dy / dA_k
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

# Function that maps outputs of the model to the sum of the logits to explain.
Score = Callable[[Any], jax.Array]
# Minimum length of the shorter side of an overlay, in pixels.
SIDE = 224
# Opacity of the heat map at its maximum.
STRENGTH = 0.6
# Height, font size and margin of the caption, in pixels.
CAPTION_HEIGHT, CAPTION_SIZE, CAPTION_MARGIN = 24, 14, 4


def last_place(model: TrainedModel) -> int:
    """Locate the last spatial activations (B, H, W, C) with more than one pixel.

    Returns:
      Index of the piece (stem, block or head) of the model that outputs the
      activations; for a plain Flax module, index of the layer call in
      `jaxtrain.models.taps.Taps.calls`.

    Raises:
      UserError: The model has no spatial activations.
    """
    model.description.check_is_one("--explain: the model")
    abstract = model.description.abstract
    if not abstract.has_pieces:
        return _last_call(model)
    num = len(abstract.pieces)

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
    raise _no_activations(model)


def heat_maps(
    model: TrainedModel,
    place: int,
    params: Any,
    model_state: Any,
    images: jax.Array,
    classes: jax.Array,
) -> jax.Array:
    """Compute Grad-CAM for one class of each image. Traceable.

    Args:
      model: Model to explain.
      place: Index of the activations A (`last_place`).
      params: Parameters of the model.
      model_state: Other state of the model.
      images: Normalized images, (B, H, W, C).
      classes: Class to explain for each image, (B,).

    Returns:
      Heat maps, float32 (B, height, width).
    """
    has_pieces = model.description.abstract.has_pieces
    found = _piece_gradients if has_pieces else _call_gradients

    def sum_of_logits(logits: Any) -> jax.Array:
        # The images are independent, so the gradient of the sum holds the gradient of
        # each image's logit with respect to the activations of the image.
        return jnp.take_along_axis(widen(logits), classes[:, None], axis=1).sum()

    with jax.default_matmul_precision(model.policy.products):
        weights = params, model_state
        activations, grads = found(model, place, weights, images, sum_of_logits)
    means = widen(grads).mean((1, 2), keepdims=True)
    return jax.nn.relu((means * widen(activations)).sum(-1))


def _piece_gradients(
    model: TrainedModel, place: int, weights: Any, images: Any, score: Score
) -> tuple[jax.Array, jax.Array]:
    """Return the outputs y of piece `place`, and the gradient d score / dy."""

    def apply(x: Any, part: slice) -> Any:
        params, model_state = weights
        return forward.predict(model.graphdef, params, model_state, x, part)

    def rest(activations: jax.Array) -> jax.Array:
        return score(apply(activations, slice(place + 1, None)))

    activations = apply(images, slice(place + 1))
    return activations, jax.grad(rest)(activations)


def _call_gradients(
    model: TrainedModel, place: int, weights: Any, images: Any, score: Score
) -> tuple[jax.Array, jax.Array]:
    """Return the outputs y of layer call `place`, and the gradient d score / dy."""
    taps = Taps()
    jax.eval_shape(lambda: _tapped(model, weights, images, taps))
    _, found = taps.calls[place]
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
    """Return the index in `Taps.calls` of the last call that is not in a loop."""
    places = list[int]()

    def forward(params: Any, model_state: Any, images: jax.Array) -> Any:
        weights, taps = (params, model_state), Taps()
        outputs = _tapped(model, weights, images, taps)
        for place, (_, found) in enumerate(taps.calls):

            def tapped(*arrays: Any, place: int = place) -> Any:
                return _tapped(model, weights, images, Taps(place, arrays))

            jaxpr = jax.make_jaxpr(tapped)(found, found).jaxpr
            if shapes_read(jaxpr) == [found.shape]:
                places.append(place)
        return outputs

    model.shapes(forward)
    if not places:
        raise _no_activations(model)
    return places[-1]


def _no_activations(model: TrainedModel) -> UserError:
    return UserError(
        f"--explain: model.name = {model.description.model.name!r} has no layer "
        "with spatial activations, which Grad-CAM requires; leave --explain out"
    )


def overlay(pixels: np.ndarray, heat: np.ndarray, caption: str = "") -> Image.Image:
    """Overlay a heat map, transparent at 0 and red at its maximum, on an image.

    Args:
      pixels: Image, uint8 (H, W, C).
      heat: Non-negative heat map of the image, (h, w), which is resized to (H, W).
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
    """Return the colour map `turbo`, from blue to red: float32 (256, 3), in 0..255."""
    return 255 * np.asarray(colormaps["turbo"](np.arange(256))[:, :3], np.float32)
