"""Cropping and resizing, on the host, of images with spatial targets.

Spatial targets, such as masks and boxes, are transformed with their images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxtrain.data import canvas, files, images, memory
from jaxtrain.data.defects import Unreadable
from jaxtrain.data.files import StoredFile, UnreadableError
from jaxtrain.data.target_transform import ResizedCrop, transform_of

if TYPE_CHECKING:
    from jaxtrain.data.image_source import Source
    from jaxtrain.data.random_windows import Box
    from jaxtrain.data.stores import Images


def read_with_targets(
    source: Source,
    stored: Images,
    targets: Sequence[Any],
    indices: np.ndarray,
    seeds: np.ndarray | None,
    unreadable: list[Unreadable],
) -> dict[str, Any]:
    """Crop and resize images, and transform their targets accordingly.

    Args:
      source: Source of the examples.
      stored: Stored images of the examples.
      targets: Stored target of each image.
      indices: Indices of the examples in the split, (n,).
      seeds: Seeds of random crops, (n, k). None means centre crops.
      unreadable: List that is extended by the unreadable images, which become black.

    Returns:
      Batch of `image`, uint8 (n, H, W, C), and `target`, a pytree (n, ...).
    """
    shape = source.image_shape if seeds is None else source.canvas_shape
    transform = transform_of(source.store)
    assert shape is not None and transform is not None
    pixels, transformed = memory.empty((len(indices), *shape)), []
    for i, (image, target) in enumerate(zip(stored, targets, strict=True)):
        seed = None if seeds is None else seeds[i].tolist()
        try:
            pixels[i], new_target = _read_one(source, image, target, seed, shape)
        except UnreadableError as error:
            unreadable.append(Unreadable.from_error(image, int(indices[i]), error))
            pixels[i], size = 0, shape[:2]
            new_target = transform(
                None, ResizedCrop(size, (0, 0, size[1], size[0]), size)
            )
        transformed.append(new_target)
    return {
        "image": pixels,
        "target": jax.tree.map(lambda *x: np.stack(x), *transformed),
    }


def _read_one(
    source: Source,
    image: np.ndarray | StoredFile,
    target: Any,
    seed: Sequence[int] | None,
    shape: tuple[int, int, int],
) -> tuple[np.ndarray, Any]:
    """Crop and resize an image and its target; without `seed`, crop the centre."""
    transform = transform_of(source.store)
    assert transform is not None
    opened = source.open(image) if isinstance(image, StoredFile) else image
    is_file = isinstance(opened, files.ImageFile)
    height, width = (opened.height, opened.width) if is_file else opened.shape[:2]
    size, channels = shape[:2], shape[-1]
    box: Box = 0, 0, width, height
    if seed is not None:
        box = canvas.draw(opened, seed, source.fit, size[0])
    elif (height, width) != size:
        box = source.fit.centre_box(height, width, size[0])
    orientation = opened.orientation if is_file else 1
    new_target = transform(target, ResizedCrop((height, width), box, size, orientation))
    if is_file:
        opened, box = images.decode_box(opened, size[0], channels, box)
    if opened.shape[:2] != size or box != (0, 0, *size[::-1]):
        opened = images.resize(opened, size, source.fit.interpolation, box)
    return images.to_channels(opened, channels), new_target
