"""Identification of timm and torchvision models by file name and array shapes."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jmp
from flax import nnx

from jaxtrain.config import ModelConfig
from jaxtrain.config.model import MODELS as MODEL_PARTS
from jaxtrain.config.part import make_part
from jaxtrain.errors import UserError, nearest
from jaxtrain.invocation import command
from jaxtrain.models import MODELS, defaults, lasting_options
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.trees import by_path
from jaxtrain.weights.names import Differences, Library, Shapes
from jaxtrain.weights.sources import WeightsSource, all_sources, sources_of

# (Name of a jaxtrain model, equivalent model of another library).
Row = tuple[str, WeightsSource]

FP32 = jmp.get_policy("params=float32,compute=float32,output=float32")
# Number of similar names that a message suggests.
NUM_NEAREST = 3
# Numbers of channels and outputs if a file lacks the first or the last layer.
CHANNELS, NUM_OUTPUTS = 3, 1000


class Identified(NamedTuple):
    """Model identified from a weight file.

    Attributes:
      model: Config of our model, with the options that make it equivalent to `source`.
      source: Equivalent model of the other library.
      channels: Number of input channels.
      num_outputs: Number of outputs of the classifier.
    """

    model: ModelConfig
    source: WeightsSource
    channels: int
    num_outputs: int


def find_named(
    architecture: str, where: str, library: Library | None = None
) -> list[Row]:
    """Find the models for an architecture name; a timm tag is ignored.

    Args:
      architecture: Name, such as `resnet50` or `resnet50.a1_in1k`.
      where: Origin of the name, for messages.
      library: Library of the architecture. None means any.

    Raises:
      UserError: The architecture is not supported.
    """
    rows = [row for row in _all_rows() if library in (None, row[1].library)]
    name = architecture.partition(".")[0]
    matches = [row for row in rows if row[1].architecture == name]
    if not matches:
        raise UserError(
            f"{where}: {architecture!r} is not a supported "
            f"architecture{_near(name, rows)}; list the supported architectures with "
            f"{command('models')}"
        )
    return matches


def find_by_file(file: Path, models: Iterable[ModelConfig]) -> list[Row]:
    """Return the models whose architecture is the prefix of a file name.

    Examples are resnet50-0676ba61.pth, efficientnet_b0_rwightman-7f5810bc.pth or
    resnet50.a1_in1k.safetensors.

    Args:
      file: Path of the file.
      models: Models of the recipe, whose equivalents are returned if no architecture
        is a prefix.

    Raises:
      UserError: No model matches.
    """
    rows = _all_rows()
    begins = [r for r in rows if re.match(rf"{r[1].architecture}(?![^\W_])", file.name)]
    if begins:
        longest = max((source.architecture for _, source in begins), key=len)
        return [row for row in begins if row[1].architecture == longest]
    matches = [
        (model.name, source)
        for model in models
        for source in sources_of(model.name)
        if _agree(model_of(source, model.name), model)
    ]
    if not matches:
        near = _near(re.split(r"[-.]", file.name)[0], rows)
        raise UserError(
            f"{file}: the file name does not start with a supported "
            f"architecture{near}: give timm:ARCHITECTURE={file} or "
            f"torchvision:ARCHITECTURE={file}; list the architectures with "
            f"{command('models')}"
        )
    return matches


def identify(
    stored: Shapes, where: str, rows: Iterable[Row], library: Library
) -> Identified:
    """Return the candidate model whose array shapes match a file.

    Args:
      stored: Shapes of the arrays, by name.
      where: Path of the file, for messages.
      rows: Candidate models to compare.
      library: Library to prefer if both libraries have the model.

    Raises:
      UserError: No candidate matches, or several matching candidates compute different
        functions.
    """
    tried = list[tuple[Identified, Differences]]()
    for name, source in sorted(rows, key=lambda row: row[1].library != library):
        model = model_of(source, name)
        # Building a model can take seconds; skip equal models of the two libraries.
        if not any(
            model == one.model and (not differences or source.names is one.source.names)
            for one, differences in tried
        ):
            tried.append(_compare(stored, model, source))
    fitting = [candidate for candidate, differences in tried if not differences]
    if not fitting:
        candidate, differences = min(tried, key=lambda one: one[1].number)
        raise UserError(
            f"{where} does not fit {candidate.source.architecture} of "
            f"{candidate.source.library} (model.name = {candidate.model.name!r}): "
            f"{differences}; for another architecture, give "
            f"{candidate.source.library}:ARCHITECTURE={where}"
        )
    if len(fitting) > 1:
        names = [f"{x.source.library}:{x.source.architecture}" for x in fitting]
        raise UserError(
            f"{where} fits {' and '.join(names)}, which have the same array names and "
            "shapes, but compute different functions: select an architecture, as in "
            f"{names[0]}={where}"
        )
    return fitting[0]


def model_of(source: WeightsSource, name: str) -> ModelConfig:
    """Return the config of our model that is equivalent to another library's model.

    Auxiliary heads are disabled.

    Args:
      source: Model of the other library.
      name: Name of our model.
    """
    options: dict[str, Any] = dict(source.options)
    if "aux_weight" in defaults(MODELS[name]):
        options["aux_weight"] = 0.0
    return make_part(MODEL_PARTS, name, options)


def shapes_there(
    source: WeightsSource, name: str, channels: int, num_outputs: int
) -> Shapes:
    """Return the array shapes of another library's model, by that library's names."""
    model = Blueprint(
        config=model_of(source, name),
        policy=FP32,
        image_shape=(source.image_size, source.image_size, channels),
        num_outputs=num_outputs,
    ).abstract()
    ours = by_path(nnx.to_pure_dict(nnx.state(model)))
    return source.names.shapes({path: x.shape for path, x in ours.items()})


def _compare(
    stored: Shapes, model: ModelConfig, source: WeightsSource
) -> tuple[Identified, Differences]:
    names = source.names
    first = stored.get(f"{names.first_conv}.weight", ())
    last = stored.get(f"{names.classifier}.weight", ())
    channels = first[1] if len(first) == 4 and first[1] else CHANNELS
    num_outputs = last[0] if len(last) >= 2 and last[0] else NUM_OUTPUTS
    wanted = shapes_there(source, model.name, channels, num_outputs)
    candidate = Identified(model, source, channels, num_outputs)
    return candidate, names.differences(names.renamed(stored), wanted)


def _agree(model: ModelConfig, wanted: ModelConfig) -> bool:
    """Whether the options that `wanted` sets have the same values in `model`."""
    given, options = wanted.arguments(), lasting_options(model).items()
    return all(given.get(option) in (None, value) for option, value in options)


def _all_rows() -> list[Row]:
    return [(name, row) for name, rows in all_sources().items() for row in rows]


def _near(name: str, rows: Iterable[Row]) -> str:
    names = dict.fromkeys(source.architecture for _, source in rows)
    return nearest(name, names, num=NUM_NEAREST)
