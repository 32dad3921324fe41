"""`main.py export`: a trained model in a format for other programs."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from jaxtrain.config.command_options import platform_option, trust_option
from jaxtrain.config.metadata import field
from jaxtrain.errors import UserError
from jaxtrain.export import Precision
from jaxtrain.plugin import hints_on
from jaxtrain.processes.signals import StopSignals

if TYPE_CHECKING:
    import numpy as np

    from jaxtrain.inference.model import TrainedModel

EXAMPLE = "--workdir runs/digits --format saved --out digits"
FORMATS = (
    "stablehlo: one file for JAX; saved: a directory with the program, the weights and "
    "a script; safetensors: a directory with the weights, for load_model and timm"
)


@dataclass(frozen=True, kw_only=True)
class ExportArguments:
    """Export a trained model to a file that other programs can run."""

    workdir: Path = field(
        help="Directory of a run or of a model, a weight file, or hf:OWNER/REPO.",
    )
    format: Annotated[str, tyro.conf.arg(help=FORMATS + hints_on("formats"))] = field(
        help="Format of the exported model.",
    )
    out: Path = field(
        help="New file or directory to write.",
    )
    checkpoint: str = field(
        "best",
        help="Checkpoint of a run: best (by validation), latest, or a step number.",
    )
    batch: str | None = field(
        None,
        help="Batch size: a number, or dynamic for any size. None: dynamic, or 1 if "
        "the format does not support dynamic.",
    )
    precision: Precision | None = field(
        None,
        help="Compute precision; inputs and outputs are float32. The weight-only "
        "formats int8_weights, fp8_weights and int4_weights make a smaller file and "
        "compute in float32. None: int8 if the model was trained with model.quantize "
        "and the format stores integers, else fp32.",
    )
    include_preprocessing: bool = field(
        False,
        help="Include the preprocessing of uint8 pixels and, for models with classes, "
        "the softmax or sigmoid.",
    )
    include_nms: bool = field(
        False,
        help="For detection models: return boxes after non-maximum suppression.",
    )
    images: Path | None = field(
        None,
        help="Images for checking the exported file and calibrating int8 ranges: a "
        "directory of images, or of another run, whose images are used. None: the "
        "images of the exported run.",
    )
    trust: bool = trust_option()
    platform: Literal["auto", "cpu", "gpu", "tpu"] = platform_option()


def run(arguments: ExportArguments, signals: StopSignals) -> None:
    """Export the model, verify the file, and print a summary."""
    if arguments.format == "safetensors":
        options = "batch", "precision", "include_preprocessing", "include_nms", "images"
        for name in options:
            if getattr(arguments, name):
                raise UserError(
                    f"--{name.replace('_', '-')} has no effect with --format "
                    "safetensors, which contains only the trained weights: leave the "
                    "option out"
                )
    batch = _batch(arguments.batch)
    from jaxtrain import load_model
    from jaxtrain.export.export import check_format, check_out
    from jaxtrain.parallel import devices
    from jaxtrain.records.run_log import show_table
    from jaxtrain.training.sparsity import sparsity_of
    from jaxtrain.weights.trust import trust

    check_out(arguments.out)
    if arguments.format != "safetensors":
        check_format(arguments.format, arguments.precision)
    if arguments.trust:
        trust(arguments.workdir)
    devices.start(arguments.platform)
    model = load_model(arguments.workdir, arguments.checkpoint)
    if arguments.format == "safetensors":
        from jaxtrain.inference import folder

        folder.write(model, arguments.out)
        rows = {"weights": "as they were trained"}
    else:
        rows = _export(arguments, model, batch)
    files = [arguments.out, *arguments.out.rglob("*")]
    size = sum(path.stat().st_size for path in files if path.is_file())
    rows = {"file": arguments.out, "size": f"{size / 1e6:.2f} MB", **rows}
    sparsity = sparsity_of(model.params)
    if sparsity is not None:
        rows["sparsity"] = f"{sparsity['sparsity']:.2%} of the weights of kernels are 0"
    show_table(f"exported, {arguments.format}", rows)


def _export(
    arguments: ExportArguments, model: "TrainedModel", batch: int | None
) -> dict[str, str]:
    """Write and verify the file; return the rows of the summary table."""

    from jaxtrain.export import images
    from jaxtrain.export.export import export
    from jaxtrain.export.exporter import find_exporter
    from jaxtrain.export.request import Request

    was_rounded = model.description.model.quantize is not None
    exporter = find_exporter(arguments.format)
    default = "int8" if was_rounded and exporter.has_integers else "fp32"
    precision = arguments.precision or default
    calibrate = precision == "int8" and not was_rounded
    num = images.CALIBRATION if calibrate else 0
    places = arguments.workdir, arguments.images
    pixels = images.load(model, *places, calibration=num)
    preprocessing = arguments.include_preprocessing
    checked, calibration = (
        x if preprocessing or x is None else _prepared(model, x) for x in pixels
    )
    assert checked is not None
    request = Request(
        model=model,
        precision=precision,
        batch=exporter.default_batch if arguments.batch is None else batch,
        preprocessing=preprocessing,
        nms=arguments.include_nms,
        calibration=calibration,
    )
    check = export(arguments.format, request, arguments.out, checked)
    time = f"not measured: {exporter.untimed}"
    if check.seconds is not None:
        times = check.model_seconds / check.seconds
        time = f"{1e3 * check.seconds:.2f} ms for {check.batch} images "
        time += f"({times:.2f}x the speed of JAX here)"
    rows = {"checked": check.describe(), "time": time}
    if request.exported.remark is not None:
        rows["values"] = request.exported.remark
    return rows


def _prepared(model: "TrainedModel", pixels: "np.ndarray") -> "np.ndarray":
    import jax.numpy as jnp
    import numpy as np

    from jaxtrain.data.preprocess import normalize

    about = model.description
    images = about.input.to_images(jnp.asarray(pixels))
    return np.asarray(normalize(images, about.mean, about.std, np.float32))


def _batch(text: str | None) -> int | None:
    if text is None or text == "dynamic":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"--batch {text}: expected dynamic, or a number from 1 up")
    return int(text)
