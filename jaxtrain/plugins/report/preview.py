"""Preview of augmentation: training images before and after, in one image."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from PIL import Image, ImageDraw

from jaxtrain import keys
from jaxtrain.data import loader
from jaxtrain.data.batch import BOX
from jaxtrain.data.datasets import make_datasets
from jaxtrain.data.image_statistics import mean_and_std
from jaxtrain.data.order import DataOrder
from jaxtrain.data.preprocess import restored
from jaxtrain.font import fitted, font
from jaxtrain.trainer.programs import augmented, unaugmented
from jaxtrain.trainer.setup import Setup

# Minimum length in pixels of the longer side of an image; smaller images are enlarged.
SIDE = 96
GAP, TEXT_HEIGHT = 8, 16


def draw_preview(setup: Setup, num_steps: int, columns: int = 8) -> Image.Image:
    """Draw the first training images, each above its augmented image.

    Args:
      setup: Setup of the run.
      num_steps: Number of batches to show, one row of such pairs per batch.
      columns: Maximum number of images per batch.

    Raises:
      UserError: Too many images are unreadable.
    """
    rows = list(first_images(setup, num_steps, columns))
    before, after, _ = rows[0]
    side = max(SIDE, *before.shape[1:3], *after.shape[1:3])
    width, height = side + GAP, 2 * side + TEXT_HEIGHT + 2 * GAP
    size = len(after) * width + GAP, num_steps * height + GAP
    picture = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(picture)
    for row, (before, after, labels) in enumerate(rows):
        for column, label in enumerate(labels):
            left, top = GAP + column * width, GAP + row * height
            draw.text((left, top), fitted(label, side), fill="black", font=font())
            top += TEXT_HEIGHT
            picture.paste(_enlarged(before[column], side), (left, top))
            picture.paste(_enlarged(after[column], side), (left, top + side + GAP // 2))
    return picture


def first_images(
    setup: Setup,
    num_steps: int,
    num_images: int,
    *,
    order: DataOrder | None = None,
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
    rows: slice | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray, list[str]]]:
    """Yield the first training images with their labels, one tuple per step.

    A tuple has the images before and after augmentation, both uint8 (n, H, W, C), and
    their labels. Boxes, masks and other spatial targets are drawn on the images.

    Args:
      setup: Setup of the run.
      num_steps: Number of steps, from step 0.
      num_images: Maximum number of images per step.
      order: Order of the training examples. Computed by default.
      statistics: Mean and standard deviation per channel. Computed by default.
      rows: Slice of each global batch to load and augment. Defaults to this process's
        slice.

    Raises:
      UserError: Too many images are unreadable.
    """
    data = dataclasses.replace(setup.config.data, workers=0)
    seed, fraction = setup.config.seed, data.max_bad_fraction
    dataset, _, _ = make_datasets(setup.splits, setup.mesh, False, fraction)
    mean, std = statistics or mean_and_std(data, setup.splits, dataset.source)
    order = order or loader.make_order(data, dataset.source, seed)
    batches = loader.train_batches(data, dataset, setup.mesh, order, 0, num_steps, rows)
    # Only the last phase always has the full image size. It may disable mosaics, so its
    # augmentation is replaced by the one in the config.
    phase = dataclasses.replace(setup.phases[-1], augment=setup.config.data.augment)
    prepare = augmented(setup, phase, mean, std, np.float32)
    augmenting, plain = map(
        jax.jit, (prepare, unaugmented(setup, mean, std, np.float32))
    )

    def show(preprocess: Any, batch: dict[str, Any], step: int) -> np.ndarray:
        prepared = preprocess({}, batch, keys.root_key(seed), np.int32(step))
        images = restored(prepared["image"], mean, std)[:num_images]
        targets = jax.device_get(prepared["target"])
        return np.stack(
            [
                setup.task.draw_target(
                    image, jax.tree.map(lambda x, n=n: x[n], targets)
                )
                for n, image in enumerate(images)
            ]
        )

    for step, batch in enumerate(batches):
        stored = dict(batch)
        if dataset.source.canvas_shape:
            stored |= dataset.source.read(batch["index"], unreadable=[])
            # Remove the box of the training crop: the image was reread without a crop.
            stored.pop(BOX, None)
        targets = [
            jax.tree.map(lambda x, n=n: x[n], batch["target"])
            for n in range(min(num_images, len(batch["index"])))
        ]
        labels = [setup.task.label(target) for target in targets]
        yield show(plain, stored, step), show(augmenting, batch, step), labels


def _enlarged(pixels: np.ndarray, side: int) -> Image.Image:
    """Resize an image so that its longer side has `side` pixels, without smoothing."""
    height, width, channels = pixels.shape
    image = Image.fromarray(pixels[..., 0] if channels == 1 else pixels[..., :3])
    scale = side / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return image.convert("RGB").resize(size, Image.Resampling.NEAREST)
