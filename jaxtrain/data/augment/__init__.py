"""Augmentation on the device, inside the step: each example by a key of its own.

One that moves pixels to other places says where (a row with `geometry`, a function of
the user's own with the attribute `moves`): targets then follow.

To add one: write its function, add its field to `AugmentConfig` and its row to
`AUGMENTATIONS`. Random windows (`windows`) and the flip that alternates (`simple`) come
before them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import own
from jaxtrain.config import AugmentConfig
from jaxtrain.config.metadata import with_metadata
from jaxtrain.data.augment.apply import Follow, change_each, stay
from jaxtrain.data.augment.geometry import Geometry
from jaxtrain.errors import UserError
from jaxtrain.plugin import resolve
from jaxtrain.problems import Problem, ProblemList
from jaxtrain.registry import call_own


class AugmentationRow(NamedTuple):
    """A row of the table.

    Attributes:
      number: part of the keys of its draws: a number, once used, stays.
      geometry: Where it takes an image, and its target: "module:function" of the key,
        (H, W) and the config; None if pixels stay.
      paint: What it does to an image (H, W, C): "module:function" of the key, the
        image, the config and the mean colour (C,); None if its geometry is all that it
        does.
    """

    number: int
    geometry: str | None = None
    paint: str | None = None


class Change(NamedTuple):
    """An augmentation as a config turns it on; see `AugmentationRow`.

    Attributes:
      number: Part of the keys of its draws.
      geometry: Function of the key and (H, W).
      paint: Function of the key and the image.
    """

    number: int
    geometry: Callable[..., Geometry] | None
    paint: Callable[..., jax.Array] | None


# Config field, or property -> its row, applied in this order.
AUGMENTATIONS: dict[str, AugmentationRow] = {
    "crop_padding": AugmentationRow(0, "simple:random_crop"),
    "horizontal_flip": AugmentationRow(1, "simple:horizontal_flip"),
    "vertical_flip": AugmentationRow(4, "simple:vertical_flip"),
    "rotation": AugmentationRow(5, "simple:rotation"),
    "colour_jitter": AugmentationRow(6, paint="colour:colour_jitter"),
    "grayscale": AugmentationRow(14, paint="colour:grayscale"),
    "blur": AugmentationRow(15, paint="blur:blur"),
    "randaugment": AugmentationRow(
        7, "policies:rand_geometry", "policies:rand_augment"
    ),
    "trivialaugment": AugmentationRow(
        8, "policies:trivial_geometry", "policies:trivial_augment"
    ),
    "augmix": AugmentationRow(9, paint="policies:aug_mix"),
    "cutout_size": AugmentationRow(2, paint="simple:cutout"),
    "erasing": AugmentationRow(10, paint="simple:erasing"),
    "time_masks": AugmentationRow(11, paint="spectrogram:time_masks"),
    "frequency_masks": AugmentationRow(12, paint="spectrogram:frequency_masks"),
}

# Change of a whole batch: config field, or property -> its function.
BATCH_CHANGES = {
    "alternating_flip": "simple:alternating_flip",
    "mosaic": "mosaic:mosaics",
    "mixes_pairs": "mix:mix_pairs",
}

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
      batch: Batch whose `image` is uint8 (B, H, W, C); the `target` has any arrays
        (B, ...).
      keys: One key an example, (B,).
      fill: The mean colour in 0..255, (C,).
      follow: How a target goes along where the image moves.

    Returns:
      The batch with other images and targets of the same shapes.
    """
    colour = jnp.round(fill).astype(batch["image"].dtype)
    for field, row in AUGMENTATIONS.items():
        if getattr(config, field):
            geometry = _read(row.geometry, config=config)
            paint = _read(row.paint, config=config, fill=colour)
            batch = _apply(Change(row.number, geometry, paint), batch, keys, follow)
    for number, name in enumerate(config.own, start=FIRST_OWN):
        batch = _apply(_own_change(number, name, colour), batch, keys, follow)
    return batch


def batch_change(field: str) -> Callable[..., dict[str, Any]]:
    """Import the change of a batch that a field of the config turns on."""
    return resolve(f"{__name__}.{BATCH_CHANGES[field]}")


def _read(function: str | None, **given: Any) -> Callable[..., Any] | None:
    return (
        None
        if function is None
        else partial(resolve(f"{__name__}.{function}"), **given)
    )


def _apply(
    change: Change, batch: dict[str, Any], keys: jax.Array, follow: Follow
) -> dict[str, Any]:
    def one(key: jax.Array, image: jax.Array, target: Any) -> tuple[jax.Array, Any]:
        key = jax.random.fold_in(key, change.number)
        if change.geometry is not None:
            geometry = change.geometry(key, image.shape[:2])
            target = follow(target, geometry)
            if change.paint is None:
                return geometry.pixels(image), target
        assert change.paint is not None
        return change.paint(key, image), target

    return change_each(batch, one, keys)


def _own_change(number: int, name: str, colour: jax.Array) -> Change:
    """Return the change by a function of the user's own; it knows no config."""
    field = "data.augment.own"
    function = own.load(field, name)
    moves = getattr(function, "moves", None)

    def paint(key: jax.Array, image: jax.Array) -> jax.Array:
        changed = call_own(field, name, function, key, image, colour)
        found = getattr(changed, "shape", None), getattr(changed, "dtype", None)
        if found != (image.shape, image.dtype):
            raise UserError(
                f"{field} = {name!r} made {found[1]}{found[0]} of an image "
                f"{image.dtype}{image.shape}: it must keep both"
            )
        return changed

    def geometry(key: jax.Array, shape: tuple[int, int]) -> Geometry:
        found = call_own(field, name, moves, key, shape)
        if not isinstance(found, Geometry):
            raise UserError(
                f"{field} = {name!r}: its attribute moves returned {found!r}; it is a "
                "function (key, (height, width)) that returns a Geometry "
                "(docs/extending.md)"
            )
        return found

    return Change(number, geometry if moves else None, paint)


def check_augmentations(
    config: AugmentConfig, image_shape: tuple[int, int, int]
) -> list[Problem]:
    """Check that images (H, W, C) have the colours that augmentations of them take.

    Custom augmentations are tried on their shape: each is found, and keeps shape and
    dtype.
    """
    channels, problems = image_shape[-1], ProblemList()
    for field, taken in with_metadata(AugmentConfig, "for_channels").items():
        value, path = getattr(config, field), f"data.augment.{field}"
        if value and channels not in taken:
            problem = Problem(
                f"{path} = {value!r} is for images of {' or '.join(map(str, taken))} "
                f"channels; these have {channels}: leave it out, or set data.channels",
                (path,),
            )
            problems.add([problem])
    image = jax.ShapeDtypeStruct((1, *image_shape), np.uint8)
    colour = jax.ShapeDtypeStruct((channels,), np.float32)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
    batch = {"image": image, "target": {}}
    for name in config.own:
        function = partial(augment, config=AugmentConfig(own=(name,)))
        trace = partial(jax.eval_shape, lambda b, k, c, f=function: f(b, k, fill=c))
        problems.build(trace, batch, keys, colour)
    return problems.found
