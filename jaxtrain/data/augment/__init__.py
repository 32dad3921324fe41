"""Augmentation on the device, inside the compiled step, with a PRNG key per example.

A geometric augmentation declares its transform of coordinates, so that targets are
transformed, too: `AugmentationRow.geometry`, or the attribute `moves` of a custom
function.

To add an augmentation, write its function, and add a field to `AugmentConfig` and an
entry to `AUGMENTATIONS`. Random windows (`windows`) and alternating flips (`simple`)
are applied before the entries of `AUGMENTATIONS`.
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
from jaxtrain.data.augment.apply import map_examples
from jaxtrain.data.augment.geometry import Geometry
from jaxtrain.data.target_changes import Follow, keep_target
from jaxtrain.errors import UserError
from jaxtrain.plugin import resolve
from jaxtrain.problems import Problem, ProblemList
from jaxtrain.registry import call_own


class AugmentationRow(NamedTuple):
    """Entry of `AUGMENTATIONS`; functions are given as "module:function".

    Attributes:
      number: Constant folded into the PRNG keys; never change or reuse it.
      geometry: Function (key, (H, W), config) -> `Geometry`, applied to the target and,
        if `paint` is None, to the image. None if pixels do not move.
      paint: Function (key, image, config, fill) -> image, where the image is (H, W, C)
        and `fill` is the mean colour, (C,). None for purely geometric augmentations.
    """

    number: int
    geometry: str | None = None
    paint: str | None = None


class Change(NamedTuple):
    """An augmentation bound to a config; see `AugmentationRow`.

    Attributes:
      number: Constant folded into the PRNG keys.
      geometry: Function (key, (H, W)) -> `Geometry`, or None.
      paint: Function (key, image) -> image, or None.
    """

    number: int
    geometry: Callable[..., Geometry] | None
    paint: Callable[..., jax.Array] | None


# Config field or property -> augmentation, in the order of application.
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

# Config field or property -> "module:function" of a batch augmentation.
BATCH_CHANGES = {
    "alternating_flip": "simple:alternating_flip",
    "mosaic": "mosaic:mosaics",
    "mixes_pairs": "mix:mix_pairs",
}

# Constant folded into the PRNG keys of the first custom augmentation, larger than all
# constants in `AUGMENTATIONS`.
FIRST_OWN = 1000


def augment(
    batch: dict[str, Any],
    keys: jax.Array,
    config: AugmentConfig,
    fill: jax.Array,
    follow: Follow = keep_target,
) -> dict[str, Any]:
    """Apply the per-example augmentations that the config enables.

    Args:
      batch: Batch with `image`, uint8 (B, H, W, C), and `target`, a pytree (B, ...).
      keys: PRNG key of each example, (B,).
      config: Augmentations to apply.
      fill: Mean colour in 0..255, (C,).
      follow: Function (target, `Geometry`) -> target, which applies the geometric
        transform of an image to its target.

    Returns:
      The batch with augmented images and targets of the same shapes.
    """
    colour = jnp.round(fill).astype(batch["image"].dtype)
    for field, row in AUGMENTATIONS.items():
        if getattr(config, field):
            geometry = _read(row.geometry, config=config)
            paint = _read(row.paint, config=config, fill=colour)
            batch = _apply(Change(row.number, geometry, paint), batch, keys, follow)
    for number, name in enumerate(config.own, start=FIRST_OWN):
        batch = _apply(_custom_change(number, name, colour), batch, keys, follow)
    return batch


def batch_change(field: str) -> Callable[..., dict[str, Any]]:
    """Import and return the batch augmentation of a config field."""
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

    return map_examples(batch, one, keys)


def _custom_change(number: int, name: str, colour: jax.Array) -> Change:
    """Wrap a custom augmentation: a function (key, image, mean colour) -> image."""
    field = "data.augment.own"
    function = own.load(field, name)
    moves = getattr(function, "moves", None)

    def paint(key: jax.Array, image: jax.Array) -> jax.Array:
        changed = call_own(field, name, function, key, image, colour)
        result = getattr(changed, "shape", None), getattr(changed, "dtype", None)
        if result != (image.shape, image.dtype):
            raise UserError(
                f"{field} = {name!r} returned an array of {result[1]}{result[0]} for "
                f"an image of {image.dtype}{image.shape}: return an array of the "
                "same dtype and shape"
            )
        return changed

    def geometry(key: jax.Array, shape: tuple[int, int]) -> Geometry:
        result = call_own(field, name, moves, key, shape)
        if not isinstance(result, Geometry):
            raise UserError(
                f"{field} = {name!r}: the attribute `moves` returned {result!r}, "
                "expected a Geometry; see docs/extending.md"
            )
        return result

    return Change(number, geometry if moves else None, paint)


def check_augmentations(
    config: AugmentConfig, image_shape: tuple[int, int, int]
) -> list[Problem]:
    """Check that the enabled augmentations support images of a shape.

    Some augmentations require a certain number of channels. Custom augmentations are
    traced, to check that they exist and preserve shape and dtype.

    Args:
      config: Augmentations to check.
      image_shape: Shape of the images, (H, W, C).
    """
    channels, problems = image_shape[-1], ProblemList()
    for field, taken in with_metadata(AugmentConfig, "for_channels").items():
        value, path = getattr(config, field), f"data.augment.{field}"
        if value and channels not in taken:
            problem = Problem(
                f"{path} = {value!r} requires images of {' or '.join(map(str, taken))} "
                f"channels, but the images have {channels}: leave {path} out, or set "
                "data.channels",
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
