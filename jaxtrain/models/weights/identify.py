"""Which model of another library a file has the weights of, by its names and shapes."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jmp
from flax import nnx

from jaxtrain.config import ModelConfig
from jaxtrain.errors import UserError, nearest
from jaxtrain.invocation import command
from jaxtrain.models import MODELS, defaults
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.models.weights import alike
from jaxtrain.models.weights.names import Differences, Shapes
from jaxtrain.models.weights.sources import (
    SOURCES,
    Library,
    WeightsSource,
    lasting_options,
    of_architecture,
)
from jaxtrain.trees import by_path

# Our name of a model, and the same model there.
Row = tuple[str, WeightsSource]

FP32 = jmp.get_policy("params=float32,compute=float32,output=float32")


@dataclass(frozen=True)
class Identified:
    """A model that a file has the weights of.

    Attributes:
      model: our name, and the options with which it computes the same.
      source: the model there.
      channels: of the images.
      num_outputs: of the classifier.
      differences: what does not fit after all; empty of one that does.
      alternatives: Architectures with the same arrays that compute something else,
        where neither a file's name nor a config.json told them apart.
    """

    model: ModelConfig
    source: WeightsSource
    channels: int
    num_outputs: int
    differences: Differences
    alternatives: tuple[str, ...] = ()


def identify(
    stored: Shapes,
    where: str,
    *,
    library: Library,
    architecture: str | None = None,
    hint: str = "",
    wanted: ModelConfig | None = None,
) -> Identified:
    """Find the model that a file has the weights of.

    Args:
      stored: the shapes of its arrays.
      where: it lies, for messages.
      library: that is tried first, where several have a model alike.
      architecture: its name there, if a config beside the file tells it.
      hint: name of the file, which may begin with that of the model there.
      wanted: our model that it is likely of.

    Raises:
      UserError: it is none of those that we have, may be either of two, or its name
        says that it is of another architecture.
    """
    if architecture is not None:
        rows = _rows_of(architecture.partition(".")[0], where)
    else:
        rows = [(name, row) for name, rows in SOURCES.items() for row in rows]
    rows = [row for row in rows if _has_ends(stored, row[1])]
    best: Identified | None = None
    for name, source in _in_order(rows, stored, library, hint, wanted):
        found = _try(stored, name, source)
        if not found.differences:
            if architecture is not None:
                return found
            if not _num_told(source, hint):
                found = _only(stored, found, where, wanted)
            return _checked(found, where, alike.named_by(hint))
        if best is None or found.differences.number < best.differences.number:
            best = found
    if best is None:
        raise UserError(
            f"{where} has the weights of no model that is known: none of its "
            f"{len(stored)} arrays is the first and the last layer of one"
        )
    raise UserError(
        f"{where} does not fit {best.source.architecture}, the nearest model that is "
        f"known (model.name = {best.model.name!r}): {best.differences}"
    )


def _rows_of(architecture: str, where: str) -> list[Row]:
    """Return the models that an architecture of a config.json can be.

    Raises:
      UserError: it is none that we have.
    """
    rows = list(of_architecture(architecture))
    if rows:
        return rows
    other = alike.sharing_arrays(architecture)
    if other is not None:
        raise UserError(
            f"{where}: architecture = {architecture!r} has arrays of the same names "
            f"and shapes as {other.architecture}, but computes something else, which "
            f"jaxtrain does not have; if the weights really are of "
            f"{other.architecture}, change it in that file"
        )
    raise UserError(
        f"{where}: architecture = {architecture!r} is none of the models whose "
        f"weights are read{nearest(architecture, _ours())}; {command('models')} lists "
        "them"
    )


def _checked(found: Identified, where: str, named: str | None) -> Identified:
    """Compare the model of a file with the architecture that its name begins with.

    Raises:
      UserError: they differ.
    """
    source, options = found.source, lasting_options(found.model)
    if named is None:
        others = tuple(sorted(alike.other_function(source) - _ours()))
        return replace(found, alternatives=others)
    for other in SOURCES[found.model.name]:
        equal = lasting_options(model_of(other, found.model.name)) == options
        if equal and named in {other.architecture, *alike.same_function(other)}:
            return found
    reason = "whose arrays have other names or shapes"
    if named in alike.other_function(source):
        reason = "whose arrays have the same names and shapes, but which computes "
        reason += "something else and is no model of jaxtrain"
    raise UserError(
        f"{where} has the arrays of {source.architecture} (model.name = "
        f"{found.model.name!r}), but its name says {named}, {reason}: if it really has "
        f"weights of {source.architecture}, rename the file so that it begins with "
        f"{source.architecture}"
    )


@functools.cache
def _ours() -> frozenset[str]:
    """Return the architectures of other libraries that we have."""
    return frozenset(s.architecture for rows in SOURCES.values() for s in rows)


def _in_order(
    rows: list[Row],
    stored: Shapes,
    library: Library,
    hint: str,
    wanted: ModelConfig | None,
) -> list[Row]:
    """Return the likeliest models first."""

    def place(row: Row) -> tuple[Any, ...]:
        name, source = row
        told, last = _num_told(source, hint), source.library != library
        if told:
            return -told, last
        other = wanted is not None and wanted.name != name
        return 0, other, source.names.num_strangers(stored), last

    return sorted(rows, key=place)


def _num_told(source: WeightsSource, hint: str) -> int:
    """Return how many letters of the name of a file are those of a model's.

    Such as resnet50-0676ba61.pth, efficientnet_b0_rwightman-7f5810bc.pth or
    resnet50.a1_in1k.safetensors.
    """
    named = alike.begins_with(hint, source.architecture)
    return len(source.architecture) if named else 0


def _only(
    stored: Shapes, found: Identified, where: str, wanted: ModelConfig | None
) -> Identified:
    """Return the model of a file; its arrays must leave no other function.

    Raises:
      UserError: another model has arrays alike and computes something else.
    """
    name = found.model.name
    fitting = [_try(stored, name, s) for s in SOURCES[name] if _has_ends(stored, s)]
    fitting = [one for one in fitting if not one.differences]
    if wanted is not None:
        fitting = [one for one in fitting if _agree(one.model, wanted)] or fitting
    functions = {str(one.model): one for one in reversed(fitting)}
    if len(functions) > 1:
        known = " and of ".join(
            sorted(x.source.architecture for x in functions.values())
        )
        raise UserError(
            f"{where} may have the weights of {known}, whose arrays are alike, though "
            "not what they compute: let the name of the file begin with the one that "
            "it is, or give a folder in timm's form, with its config.json"
        )
    return found if str(found.model) in functions else fitting[0]


def _agree(model: ModelConfig, wanted: ModelConfig) -> bool:
    """Say whether a model has the options that are set of the wanted one."""
    return all(
        getattr(wanted, option) in (None, value)
        for option, value in lasting_options(model).items()
    )


def _has_ends(stored: Shapes, source: WeightsSource) -> bool:
    """Say whether the first and the last layer of a model are in a file."""
    first = stored.get(f"{source.names.first_conv}.weight", ())
    last = stored.get(f"{source.names.classifier}.weight", ())
    return len(first) == 4 and len(last) >= 2 and 0 not in (first[1], last[0])


def _try(stored: Shapes, name: str, source: WeightsSource) -> Identified:
    """Compare a file, which has its first and its last layer, with a model."""
    channels = stored[f"{source.names.first_conv}.weight"][1]
    num_outputs = stored[f"{source.names.classifier}.weight"][0]
    wanted = shapes_there(source, name, channels, num_outputs)
    found = source.names.differences(source.names.renamed(stored), wanted)
    return Identified(model_of(source, name), source, channels, num_outputs, found)


def model_of(source: WeightsSource, name: str) -> ModelConfig:
    """Return the model that computes what the source does, without auxiliary heads."""
    options: dict[str, Any] = dict(source.options)
    if "aux_weight" in defaults(MODELS[name]):
        options["aux_weight"] = 0.0
    return ModelConfig(name=name, **options)


def shapes_there(
    source: WeightsSource, name: str, channels: int, num_outputs: int
) -> Shapes:
    """Return the shapes of the arrays of a source by their names, as it has them."""
    size = source.image_size
    options = vars(model_of(source, name)).items()
    # No source names options of a user's own or channels: both are empty dicts.
    given = tuple((k, v) for k, v in options if k not in ("options", "channels"))
    ours = _shapes_here(given, (size, size, channels), num_outputs)
    return source.names.shapes(ours)


@functools.lru_cache(maxsize=64)
def _shapes_here(
    options: tuple[tuple[str, Any], ...],
    image_shape: tuple[int, int, int],
    num_outputs: int,
) -> Mapping[str, tuple[int, ...]]:
    model = Blueprint(
        config=ModelConfig(**dict(options)),
        policy=FP32,
        image_shape=image_shape,
        num_outputs=num_outputs,
    ).abstract()
    arrays = nnx.to_pure_dict(nnx.state(model))
    return {path: x.shape for path, x in by_path(arrays).items()}
