"""`main.py data --preview`: training images before and after augmentation."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtrain.config import ParallelConfig
from jaxtrain.errors import UserError

if TYPE_CHECKING:
    from jaxtrain.commands.data import DataArguments

OUT = Path("preview.png")
# Batches that are shown, one in a row: some augmentations are drawn for each.
NUM_STEPS = 4


def run(arguments: "DataArguments") -> None:
    """Draw the first training images of a recipe into a PNG file."""
    import jax

    from jaxtrain.inference.trust import trust_pretrained
    from jaxtrain.parallel import devices
    from jaxtrain.records.whole import reported, whole
    from jaxtrain.run.setup import build_setup
    from jaxtrain.tools.preview import draw_preview

    if arguments.config is None:
        raise UserError("--preview: give the recipe, --config FILE")
    out = arguments.out or OUT
    if out.suffix.lower() != ".png":
        raise UserError(f"--out {out}: the picture is a PNG file, such as {OUT}")
    if arguments.trust:
        trust_pretrained(arguments.overrides)
    devices.start("auto")
    # What shares the work changes no image, and several may not be able to.
    plain = replace(arguments.overrides, parallel=ParallelConfig())
    setup = build_setup(plain, devices=jax.devices()[:1])
    picture = draw_preview(setup, min(NUM_STEPS, setup.timetable.total_steps))
    with whole("--out", out) as partial, reported("--out", out):
        picture.save(partial, "PNG")
    print(f"{out} shows training images: above as stored, below as augmented")
