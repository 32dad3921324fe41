"""`main.py data --prepare`, `--pack`, `--verify` and `--preview`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtrain.config import ParallelConfig
from jaxtrain.console import printable
from jaxtrain.errors import UserError
from jaxtrain.plugins.packed.store import verify as verify_packed
from jaxtrain.plugins.packed.writer import pack as pack_data

if TYPE_CHECKING:
    from jaxtrain.plugins.doctor.data_command import DataArguments

PREVIEW = Path("preview.png")
# Number of batches in the preview. Each batch is a row of images, because some
# augmentations are sampled per batch.
NUM_STEPS = 4


def prepare(arguments: "DataArguments") -> None:
    """Prepare a TFDS data set, and print its path."""
    from jaxtrain.plugins.doctor.tfds_prepare import prepare

    assert arguments.prepare is not None
    path = prepare(
        arguments.prepare,
        data_dir=arguments.data_dir,
        manual_dir=arguments.manual_dir,
    )
    print(f"{arguments.prepare} is prepared in {path}")


def pack(arguments: "DataArguments") -> None:
    """Pack a data set, and print the skipped images."""
    assert arguments.pack is not None
    if arguments.out is None:
        raise UserError("--pack requires the output directory: give --out DIR")
    fields = ("data_dir", "include", "max_bad_fraction")
    given = {name: getattr(arguments, name) for name in fields}
    known: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in given.items()
        if value is not None
    }
    # Options that are None do not override the config.
    config = replace(arguments.overrides.data, source=arguments.pack, **known)
    form = arguments.format or "jpeg"
    index = pack_data(config, arguments.out, size=arguments.size, format=form)
    print(f"{arguments.pack} is packed in {arguments.out}: {index.describe()}")
    for split, left_out in index.left_out.items():
        for _, name, reason in left_out:
            print(printable(f"excluded from {split}: {name} is unreadable: {reason}"))


def verify(arguments: "DataArguments") -> None:
    """Verify the checksums of a packed data set."""
    assert arguments.verify is not None
    index = verify_packed(arguments.verify)
    print(f"{arguments.verify} matches its checksums: {index.describe()}")


def preview(arguments: "DataArguments") -> None:
    """Write a PNG of the first training images of a recipe."""
    import jax

    from jaxtrain.parallel import devices
    from jaxtrain.plugins.report.preview import draw_preview
    from jaxtrain.records.atomic_output import atomic_output, reported
    from jaxtrain.trainer.setup import build_setup
    from jaxtrain.weights.trust import trust_recipe

    if arguments.config is None:
        raise UserError("--preview requires a recipe: give --config FILE")
    out = arguments.out or PREVIEW
    if out.suffix.lower() != ".png":
        raise UserError(f"--out {out}: expected a PNG file, such as {PREVIEW}")
    if arguments.trust:
        trust_recipe(arguments.config, arguments.overrides)
    devices.start("auto")
    # Ignore the recipe's `parallel` section, which may require several devices and does
    # not affect images.
    plain = replace(arguments.overrides, parallel=ParallelConfig())
    setup = build_setup(plain, devices=jax.devices()[:1])
    image = draw_preview(setup, min(NUM_STEPS, setup.timetable.total_steps))
    with atomic_output("--out", out) as partial, reported("--out", out):
        image.save(partial, "PNG")
    print(f"{out} shows training images: above as stored, below as augmented")
