"""Small folders of images with masks, and runs on them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from tests.helpers.recipes import recipe

NAMES = ("around", "disc", "square")
SIDE = 16
MODEL = f'"{Path(__file__).with_name("mask_model.py")}:Maps"'


def shapes(num: int, side: int = SIDE, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return grey noise with a disc and a square, uint8 (N, side, side), and masks."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:side, :side]
    masks = np.zeros((num, side, side), np.uint8)
    for mask in masks:
        y, x, v, u = rng.integers(3, side - 3, 4)
        mask[(rows - y) ** 2 + (columns - x) ** 2 < 9] = 1
        mask[np.maximum(abs(rows - v), abs(columns - u)) < 3] = 2
    images = 70 * masks + rng.integers(0, 60, masks.shape)
    return images.astype(np.uint8), masks


def write_masks(
    folder: Path,
    splits: Mapping[str, int] | None = None,
    *,
    classes: str = "\n".join(NAMES),
    side: int = SIDE,
) -> Path:
    """Write a folder for `masks:DIR`: splits by the number of their images."""
    for seed, (split, num) in enumerate((splits or {"": 48}).items()):
        for name in ("images", "masks"):
            (folder / name / split).mkdir(parents=True, exist_ok=True)
        for i, (image, mask) in enumerate(zip(*shapes(num, side, seed), strict=True)):
            Image.fromarray(image).save(folder / "images" / split / f"{i:03}.png")
            Image.fromarray(mask).save(folder / "masks" / split / f"{i:03}.png")
    if classes:
        (folder / "classes.txt").write_text(classes + "\n")
    return folder


def mask_recipe(
    source: str = "masks:set",
    *,
    data: str = "",
    options: str = "",
    model: str = f"CustomModelConfig(name={MODEL})",
    train: str = "steps=12",
    **parts: str,
) -> str:
    """Return the config expression of a tiny run on such a folder."""
    fields = f'source="{source}", channels=1, image_size={SIDE}, crop_pct=1.0'
    return recipe(
        task=f"SegmentationConfig({options})",
        data=f"DataConfig({fields}, batch_size=8, {data})",
        model=model,
        optimizer="AdamConfig(learning_rate=0.01)",
        train=f"TrainConfig({train})",
        checkpoint="CheckpointConfig(every_steps=6)",
        logging="LoggingConfig(every_steps=3, tensorboard=False)",
        **parts,
    )
