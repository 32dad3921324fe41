"""What the model is shown of an image: itself, or several views of it.

The probabilities of the views are averaged, as by Krizhevsky et al. 2012: the result
is that of an ensemble, a distribution whatever the scale of the logits of one view. A
mean of logits would let a single confident view outvote all others.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxtrain.dtypes import widen
from jaxtrain.training.scan import repeat

# Images (B, H, W, C) -> outputs of the model, (B, outputs).
Apply = Callable[[jax.Array], jax.Array]
# (apply, images that may be more than the model takes, height and width that it takes).
View = Callable[[Apply, jax.Array, tuple[int, int]], jax.Array]


def plain(apply: Apply, pixels: jax.Array, size: tuple[int, int]) -> jax.Array:
    """Return the outputs for the images as they are."""
    return apply(pixels)


def flip(apply: Apply, pixels: jax.Array, size: tuple[int, int]) -> jax.Array:
    """Average over the images and their mirror images, left to right."""
    return _mean(apply, jnp.stack([pixels, pixels[:, :, ::-1]]))


def five_crop(apply: Apply, pixels: jax.Array, size: tuple[int, int]) -> jax.Array:
    """Average over the four corners and the centre, as torchvision's FiveCrop."""
    return _mean(apply, crops(pixels, size))


def ten_crop(apply: Apply, pixels: jax.Array, size: tuple[int, int]) -> jax.Array:
    """Average over these and their mirror images (Krizhevsky et al. 2012)."""
    five = crops(pixels, size)
    return _mean(apply, jnp.concatenate([five, five[:, :, :, ::-1]]))


def crops(pixels: jax.Array, size: tuple[int, int]) -> jax.Array:
    """Return the corners and the centre, (5, B, height, width, C).

    In the order of torchvision: top left, top right, bottom left, bottom right, centre.
    """
    (height, width), (whole, wide) = size, pixels.shape[1:3]
    down, right = whole - height, wide - width
    places = [(0, 0), (0, right), (down, 0), (down, right)]
    places.append((round(down / 2), round(right / 2)))
    return jnp.stack([pixels[:, y : y + height, x : x + width] for y, x in places])


def _mean(apply: Apply, views: jax.Array) -> jax.Array:
    """Return the logarithms of mean probabilities of views (V, B, H, W, C).

    They are logits, for who takes them; one view is computed after the other.
    """

    def body(carry: None, pixels: jax.Array) -> tuple[None, jax.Array]:
        return carry, apply(pixels)

    logits = repeat(body, None, views)[1]
    logs = jax.nn.log_softmax(widen(logits), axis=-1)
    return jax.nn.logsumexp(logs, axis=0) - jnp.log(len(logs))


# By the name of the option.
VIEWS: dict[str, View] = {"flip": flip, "five_crop": five_crop, "ten_crop": ten_crop}
# Those that take larger images than the model.
CROPS = ("five_crop", "ten_crop")


def named(name: str | None) -> View:
    """Return the view by the name of an option; None: of the image as it is."""
    return plain if name is None else VIEWS[name]
