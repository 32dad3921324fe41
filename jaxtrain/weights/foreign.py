"""Weights of other libraries: a directory in timm's format, or a single file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxtrain import tasks
from jaxtrain.config import ModelConfig
from jaxtrain.config.recipe import CONFIG, WEIGHTS
from jaxtrain.data.images import FILTERS
from jaxtrain.data.pixel_classes import PIXEL_CLASSES
from jaxtrain.errors import UserError, counted
from jaxtrain.json_files.read import read_object
from jaxtrain.weights import files
from jaxtrain.weights.channels import statistics
from jaxtrain.weights.description import Description
from jaxtrain.weights.identify import (
    Identified,
    Row,
    find_by_file,
    find_named,
    identify,
)
from jaxtrain.weights.names import Library
from jaxtrain.weights.spec import Reference
from jaxtrain.weights.stored import Weights

# timm model arguments: `IMPLIED` follow from the array shapes; `POOL` is the only
# supported pooling.
IMPLIED, POOL = ("in_chans", "num_classes"), ("global_pool", "avg")


def open_folder(
    folder: Path, config: Mapping[str, Any], weights: tuple[str, ...] = WEIGHTS
) -> Weights:
    """Open a directory in timm's format.

    Args:
      folder: Path of the directory.
      config: Contents of config.json.
      weights: Names of weight files; the first that exists is read.

    Raises:
      UserError: The architecture is unknown, or the directory is incomplete.
    """
    where = str(folder / CONFIG)
    architecture = config.get("architecture")
    about = config.get("pretrained_cfg", config)
    if not isinstance(architecture, str) or not isinstance(about, dict):
        raise UserError(
            f"{where} is not a timm config: expected the fields architecture and "
            "pretrained_cfg"
        )
    _check_arguments(config, where)
    path = next((folder / n for n in weights if (folder / n).is_file()), None)
    if path is None:
        raise UserError(
            f"{folder} has no {' or '.join(weights)}: add one of these files"
        )
    rows = find_named(architecture, where)
    return _open(path, rows, "timm", about, config.get("label_names"), where)


def _check_arguments(config: Mapping[str, Any], where: str) -> None:
    """Reject timm arguments that change a model, but not its array shapes."""
    given = config.get("model_args") or {}
    if not isinstance(given, dict):
        raise UserError(f"{where}: model_args = {given!r}: expected a JSON object")
    pool = {k: v for k, v in config.items() if k == POOL[0]}
    for name, value in {**pool, **given}.items():
        if name not in IMPLIED and (name, value) != POOL:
            raise UserError(
                f"{where}: jaxtrain does not support {name} = {value!r} for "
                f"{config['architecture']}"
            )


def open_file(
    path: Path, reference: Reference | None = None, models: Sequence[ModelConfig] = ()
) -> Weights:
    """Open a weight file of a known architecture.

    Args:
      path: Path of the file.
      reference: Architecture given by the user. Defaults to an architecture from the
        file name or `models`.
      models: Models of the recipe, used if the file name has no architecture.

    Raises:
      UserError: The architecture is missing, unknown or does not match the arrays; or
        the file is damaged.
    """
    library: Library = "torchvision" if path.suffix in files.TORCH else "timm"
    if reference is None:
        rows = find_by_file(path, models)
    else:
        library = reference.library
        rows = find_named(reference.architecture, str(path), library)
    return _open(path, rows, library, {}, None, str(path))


def _open(
    path: Path,
    rows: Sequence[Row],
    library: Library,
    about: Mapping[str, Any],
    labels: Any,
    where: str,
) -> Weights:
    stored = files.read(path)
    shapes = {name: x.shape for name, x in stored.items()}
    identified = identify(shapes, str(path), rows, library)
    names = identified.source.names
    described = _describe(identified, about, labels, where)
    return Weights.from_file(path, described, names.renamed(stored), names)


def _describe(
    found: Identified, about: Mapping[str, Any], labels: Any, where: str
) -> Description:
    """Describe a model, with the source's defaults for values that `about` lacks."""
    source, num = found.source, found.num_outputs
    size = about.get("input_size") or [found.channels, *2 * [source.image_size]]
    if not _are(size, int) or len(size) != 3 or size[0] != found.channels:
        raise UserError(
            f"{where}: input_size = {size!r}: expected [channels, height, width], with "
            f"the {counted(found.channels, 'channel')} of the weights"
        )
    if not source.takes((size[1], size[2], size[0])):
        raise UserError(
            f"{where}: input_size = {size}, but {source.architecture} is equivalent to "
            f"{found.model.name} only up to {source.max_size} pixels: set a smaller "
            "input_size, or give the weight file without config.json"
        )
    mean, std = statistics(source.mean, source.std, found.channels)
    mean = _numbers(about, "mean", mean, found.channels, where)
    std = _numbers(about, "std", std, found.channels, where)
    (crop_pct,) = _numbers(about, "crop_pct", (source.crop_pct,), 1, where)
    interpolation = about.get("interpolation") or source.interpolation
    known = isinstance(interpolation, str) and interpolation in FILTERS
    if not known or about.get("crop_mode") not in (None, "center"):
        raise UserError(
            f"{where}: interpolation = {interpolation!r} and crop_mode = "
            f"{about.get('crop_mode')!r}: expected interpolation "
            f"{' or '.join(FILTERS)}, and crop_mode center; edit the file if other "
            "preprocessing is acceptable"
        )
    if not (_are(labels, str) and len(labels) == num):
        # Unnamed classes are numbered.
        known = len(source.labels) == num
        labels = source.labels if known else map(str, range(num))
    has_maps = tasks.kind(source.task).classes_fact == PIXEL_CLASSES
    return Description(
        task=source.task,
        model=found.model,
        precision="fp32",
        image_shape=(size[1], size[2], size[0]),
        num_outputs=num,
        class_names=tuple(labels),
        mean=mean,
        std=std,
        crop_pct=crop_pct,
        interpolation=interpolation,
        output_spec=(size[1], size[2], num) if has_maps else None,
    )


def _numbers(
    about: Mapping[str, Any], key: str, default: tuple[float, ...], num: int, where: str
) -> tuple[float, ...]:
    value = about.get(key)
    if value is None:
        return default
    values = value if isinstance(value, list) else [value]
    if not _are(values, (int, float)) or len(values) != num:
        raise UserError(
            f"{where}: {key} = {value!r}: expected {counted(num, 'number')}"
        )
    if not all(0 <= x <= 1 for x in values) or (key != "mean" and 0 in values):
        raise UserError(f"{where}: {key} = {value!r}: expected numbers in 0..1")
    return tuple(map(float, values))


def _are(values: Any, kind: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(x, kind) and not isinstance(x, bool) for x in values
    )


def read_config(path: Path) -> dict[str, Any]:
    """Read the config.json of a model.

    Raises:
      UserError: The file is missing, unreadable or damaged.
    """
    config = read_object(path)
    if config is None:
        raise UserError(f"{path} does not exist: give the directory of a model")
    return config
