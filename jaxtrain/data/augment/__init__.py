"""Augmentation on the device, inside the step: each example by a key of its own.

One that moves pixels to other places says where (a row with `geometry`, a function of
the user's own with the attribute `moves`): targets then follow.

To add one: write its function, add its field to `AugmentConfig` and its row to
`AUGMENTATIONS`. Random windows (`windows`) and the flip that alternates (`alternate`)
come before them.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import own
from jaxtrain.config import AugmentConfig
from jaxtrain.data.augment import jitter, policies, simple
from jaxtrain.data.augment.apply import Follow, change, make_keys, stay
from jaxtrain.data.augment.geometry import Geometry
from jaxtrain.data.augment.normalize import normalize
from jaxtrain.errors import UserError
from jaxtrain.registry import call_own

__all__ = [
    "AUGMENTATIONS",
    "Follow",
    "augment",
    "check_augmentations",
    "make_keys",
    "normalize",
]

# (key, (H, W) of the image, config) -> where the image is taken.
RowGeometry = Callable[..., Geometry]
# (key, image (H, W, C), config, mean colour (C,)) -> image (H, W, C).
Paint = Callable[..., jax.Array]


class AugmentationRow(NamedTuple):
    """A row of the table.

    Attributes:
      number: part of the keys of its draws: a number, once used, stays.
      geometry: Where it takes an image, and its target; None if pixels stay.
      paint: What it does to an image; None if its geometry is all that it does.
    """

    number: int
    geometry: RowGeometry | None = None
    paint: Paint | None = None


# Config field, or property -> its row, applied in this order.
AUGMENTATIONS: dict[str, AugmentationRow] = {
    "crop_padding": AugmentationRow(0, simple.random_crop),
    "horizontal_flip": AugmentationRow(1, simple.horizontal_flip),
    "vertical_flip": AugmentationRow(4, simple.vertical_flip),
    "rotation": AugmentationRow(5, simple.rotation),
    "colour_jitter": AugmentationRow(6, paint=jitter.colour_jitter),
    "randaugment": AugmentationRow(7, policies.rand_geometry, policies.rand_augment),
    "trivialaugment": AugmentationRow(
        8, policies.trivial_geometry, policies.trivial_augment
    ),
    "augmix": AugmentationRow(9, paint=policies.aug_mix),
    "cutout_size": AugmentationRow(2, paint=simple.cutout),
    "erasing": AugmentationRow(10, paint=simple.erasing),
}

# Fields that need to know what the channels are; of grey images some change nothing.
NOT_GREY = ("saturation", "hue")
COLOURED = (
    *("contrast", *NOT_GREY),
    *("randaugment", "trivialaugment", "augmix"),
)

# The number of the first of the user's own, far behind those of the table.
FIRST_OWN = 1000


def augment(
    batch: dict[str, Any],
    keys: jax.Array,
    config: AugmentConfig,
    fill: jax.Array,
    follow: Follow = stay,
) -> dict[str, Any]:
    """Apply the augmentations that the config turns on.

    Args:
      batch: its `image` is uint8 (B, H, W, C); the `target` has any arrays (B, ...).
      keys: one an example, (B,).
      config: which augmentations, and how strong.
      fill: the mean colour in 0..255, (C,).
      follow: How a target goes along where the image moves.

    Returns:
      The batch with other images and targets of the same shapes.
    """
    colour = jnp.round(fill).astype(batch["image"].dtype)
    for field, row in AUGMENTATIONS.items():
        if getattr(config, field):
            moves = row.geometry and functools.partial(row.geometry, config=config)
            paint = row.paint and functools.partial(
                row.paint, config=config, fill=colour
            )
            batch = change(batch, keys, row.number, moves, paint, follow)
    for number, name in enumerate(config.own, start=FIRST_OWN):
        function = own.load("data.augment.own", name)
        paint = functools.partial(_call_own, name, function, colour)
        moves = getattr(function, "moves", None)
        moves = moves and functools.partial(_own_geometry, name, moves)
        changed = change(batch, keys, number, moves, paint, follow)
        _check_own(name, batch["image"], changed["image"])
        batch = changed
    return batch


def _call_own(
    name: str, function: Any, colour: jax.Array, key: jax.Array, image: jax.Array
) -> jax.Array:
    return call_own("data.augment.own", name, function, key, image, colour)


def _own_geometry(
    name: str, moves: Any, key: jax.Array, shape: tuple[int, int]
) -> Geometry:
    found = call_own("data.augment.own", name, moves, key, shape)
    if not isinstance(found, Geometry):
        raise UserError(
            f"data.augment.own = {name!r}: its attribute moves returned {found!r}; it "
            "is a function (key, (height, width)) that returns a Geometry "
            "(docs/extending.md)"
        )
    return found


def check_augmentations(
    config: AugmentConfig, image_shape: tuple[int, int, int]
) -> None:
    """Try the user's own augmentations on the shape of an image (H, W, C).

    Raises:
      UserError: one cannot be found, or does not keep shape and dtype; or one of the
        table takes colours that the images do not have.
    """
    for field in COLOURED:
        value, channels = getattr(config, field), image_shape[-1]
        if value and (channels not in (1, 3) or (channels == 1 and field in NOT_GREY)):
            raise UserError(
                f"data.augment.{field} = {value!r} is for images of "
                f"{'3' if field in NOT_GREY else '1 or 3'} channels; these have "
                f"{channels}: leave it out, or set data.channels"
            )
    if config.own:
        image = jax.ShapeDtypeStruct((1, *image_shape), np.uint8)
        colour = jax.ShapeDtypeStruct((image_shape[-1],), np.float32)
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
        batch = {"image": image, "target": {}}
        only = AugmentConfig(own=config.own)
        jax.eval_shape(lambda b, k, c: augment(b, k, only, c), batch, keys, colour)


def _check_own(name: str, before: jax.Array, after: Any) -> None:
    """Raise UserError if an augmentation of the user's own changes shape or dtype."""
    found = getattr(after, "shape", None), getattr(after, "dtype", None)
    if found != (before.shape, before.dtype):
        raise UserError(
            f"data.augment.own = {name!r} made {found[1]}{found[0] and found[0][1:]} "
            f"of an image {before.dtype}{before.shape[1:]}: it must keep both"
        )
