"""Training images before and after augmentation, in one picture."""

import dataclasses
from typing import Any

import jax
import numpy as np
from PIL import Image, ImageDraw

from jaxtrain import keys
from jaxtrain.console import printable
from jaxtrain.data import loader, sources
from jaxtrain.run.programs import make_preprocesses
from jaxtrain.run.setup import Setup

# Side of an image in the picture, in pixels, at least: small ones are enlarged.
SIDE = 96
GAP, TEXT_HEIGHT = 8, 16
# Pixels that a letter of Pillow's own font takes.
LETTER = 6


def draw_preview(setup: Setup, num_images: int, columns: int = 8) -> Image.Image:
    """Return a picture of the first training images: above as stored, below augmented.

    Args:
      setup: of the run.
      num_images: at most; a batch may have fewer.
      columns: of the picture.

    Raises:
      UserError: too many images are unreadable.
    """
    before, after, targets = _first_batch(setup, num_images)
    side = max(SIDE, *after.shape[1:3])
    cell = side + GAP, 2 * side + TEXT_HEIGHT + 2 * GAP
    columns = min(columns, len(after))
    rows = -(-len(after) // columns)
    picture = Image.new("RGB", (columns * cell[0] + GAP, rows * cell[1] + GAP), "white")
    draw = ImageDraw.Draw(picture)
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        row, column = divmod(number, columns)
        left, top = GAP + column * cell[0], GAP + row * cell[1]
        target = jax.tree.map(lambda x, n=number: x[n], targets)
        text = printable(setup.task.label(target))[: side // LETTER]
        # The font knows the letters of Latin-1.
        text = text.encode("latin-1", "replace").decode("latin-1")
        draw.text((left, top), text, fill="black")
        picture.paste(_enlarged(old, side), (left, top + TEXT_HEIGHT))
        picture.paste(_enlarged(new, side), (left, top + TEXT_HEIGHT + side + GAP // 2))
    return picture


def _first_batch(setup: Setup, num_images: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return images before and after, uint8 (n, H, W, C) both, and their targets."""
    data = dataclasses.replace(setup.config.data, workers=0)
    seed, fraction = setup.config.seed, data.max_bad_fraction
    dataset, _, _ = loader.make_datasets(setup.splits, setup.mesh, False, fraction)
    mean, std = data.mean, data.std
    if mean is None or std is None:
        mean, std = sources.statistics(dataset.source)
    order = loader.make_order(data, dataset.source, seed)
    batches = loader.train_batches(data, dataset, setup.mesh, order, 0, 1)
    batch = next(batches)
    augmenting, plain = make_preprocesses(setup, mean, std, np.float32)
    stored = dict(batch)
    if dataset.source.takes_windows:
        stored["image"] = dataset.source.read(batch["index"], unreadable=[])["image"]

    def show(preprocess: Any, batch: dict[str, Any]) -> np.ndarray:
        step = np.int32(0)
        prepared = jax.jit(preprocess)({}, batch, keys.root_key(seed), step)
        pixels = np.asarray(prepared["image"]) * np.array(std) + np.array(mean)
        return np.clip(np.rint(255 * pixels), 0, 255).astype(np.uint8)[:num_images]

    targets = jax.tree.map(lambda x: x[:num_images], batch["target"])
    return show(plain, stored), show(augmenting, batch), targets


def _enlarged(pixels: np.ndarray, side: int) -> Image.Image:
    """Return an image whose longer side is `side`, without smoothing."""
    height, width, channels = pixels.shape
    image = Image.fromarray(pixels[..., 0] if channels == 1 else pixels[..., :3])
    scale = side / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return image.convert("RGB").resize(size, Image.Resampling.NEAREST)
