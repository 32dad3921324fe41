"""`main.py quantize`: post-training quantization."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jaxtrain.config.command_options import platform_option, trust_option
from jaxtrain.config.metadata import field
from jaxtrain.errors import UserError
from jaxtrain.processes import collector
from jaxtrain.processes.signals import StopSignals
from jaxtrain.records.atomic_output import check_new_folder

if TYPE_CHECKING:
    from jaxtrain.plugins.quantization.quantize import Rounded

EXAMPLE = "--workdir runs/digits --out digits_int8"


@dataclass(frozen=True, kw_only=True)
class QuantizeArguments:
    """Quantize a trained model to 8 bits, to export it or to train it further."""

    workdir: Path = field(
        help="Directory of a run, or of a model if --images is given.",
    )
    out: Path = field(
        help="Directory to create for the quantized model, in the format that `export "
        "--format safetensors` writes.",
    )
    calibration: Literal["mse", "percentile", "minmax"] = field(
        "mse",
        help="Calibration of activation ranges: mse minimizes the rounding error; "
        "percentile clips 0.01 % of the values at each end; minmax covers all values.",
    )
    num_images: int = field(
        1024,
        help="Number of images for the calibration of activation ranges and for bias "
        "correction.",
    )
    max_drop: float = field(
        0.05,
        help="Maximum relative drop of the task's main metric, measured on up to "
        "--num-images images of the validation split, or of the test split if there is "
        "no validation split. Without labels: maximum fraction of predictions that "
        "change.",
    )
    images: Path | None = field(
        None,
        help="Folder of calibration images, or directory of a run whose training "
        "images are used; None: the training images of --workdir.",
    )
    checkpoint: str = field(
        "best",
        help="Checkpoint of a run: best (by validation), latest, or a step number.",
    )
    verbose: bool = field(
        False,
        help="Show all activation ranges.",
    )
    trust: bool = trust_option()
    platform: Literal["auto", "cpu", "gpu", "tpu"] = platform_option()


def run(arguments: QuantizeArguments, signals: StopSignals) -> None:
    """Quantize the model, check its quality drop, and write it to `--out`."""
    if arguments.num_images < 1:
        raise UserError(f"--num-images {arguments.num_images}: expected 1 or more")
    if arguments.max_drop < 0:
        raise UserError(f"--max-drop {arguments.max_drop:g}: expected 0 or more")
    check_new_folder("--out", arguments.out)
    with collector.held_back():
        from jaxtrain import load_model
        from jaxtrain.export import images
        from jaxtrain.inference import folder
        from jaxtrain.parallel import devices
        from jaxtrain.plugins.quantization.quantize import check, quantize
        from jaxtrain.plugins.quantization.rounding_loss import (
            check_loss,
            labelled_run,
            rounding_loss,
        )
        from jaxtrain.records.run_log import show_table
        from jaxtrain.weights.trust import trust

    if arguments.trust:
        trust(arguments.workdir)
    devices.start(arguments.platform)
    model = load_model(arguments.workdir, arguments.checkpoint)
    check(model)
    places, num = (arguments.workdir, arguments.images), arguments.num_images
    others, chosen = images.load(model, *places, calibration=num)
    assert chosen is not None
    found = quantize(model, chosen, others, arguments.calibration)
    loss = rounding_loss(model, found, labelled_run(*places), num)
    check_loss(loss, arguments.max_drop)
    folder.write(found.model, arguments.out)
    if arguments.verbose:
        ranges = found.ranges.items()
        rows = {path: f"{low:.4g} to {high:.4g}" for path, (low, high) in ranges}
        show_table("ranges", rows)
    rows = describe(found, len(chosen), len(others))
    if loss is not None:
        rows[loss.name] = loss.describe()
    show_table("quantize", {**rows, "wrote": str(arguments.out)})


def describe(found: "Rounded", num: int, num_others: int) -> dict[str, str]:
    """Return the rows of the result table, title -> text.

    Args:
      found: The quantized model.
      num: Number of calibration images.
      num_others: Number of images for the comparison with the float model.
    """
    return {
        "activations": f"{len(found.ranges)} ranges, from {num:,} images",
        "outputs": f"RMS error {found.difference:.2%} of their RMS, on {num_others:,} "
        "images",
    }
