"""Which model of another library a file has the weights of, by its names and shapes."""

import functools
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jmp
import numpy as np
from flax import nnx

from jaxtrain.config import ModelConfig
from jaxtrain.errors import UserError, nearest
from jaxtrain.models import MODELS
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.models.weights.compare import Differences, Shapes, compare
from jaxtrain.models.weights.names import Names
from jaxtrain.models.weights.sources import SOURCES, Library, Source, of_architecture

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
    """

    model: ModelConfig
    source: Source
    channels: int
    num_outputs: int
    differences: Differences


def identify(
    stored: Shapes,
    where: str,
    *,
    library: Library,
    architecture: str | None = None,
    guesses: Sequence[str] = (),
) -> Identified:
    """Find the model that a file has the weights of.

    Args:
      stored: the shapes of its arrays.
      where: it lies, for messages.
      library: that is tried first, where several have a model alike.
      architecture: its name there, if a config beside the file tells it.
      guesses: our names, or names there, that are tried first.

    Raises:
      UserError: it is none of those that we have.
    """
    if architecture is not None:
        rows = list(of_architecture(architecture.partition(".")[0]))
        if not rows:
            known = {s.architecture for sources in SOURCES.values() for s in sources}
            raise UserError(
                f"{where}: architecture = {architecture!r} is none of the models whose "
                f"weights are read{nearest(architecture, known)}; `python main.py "
                "models` lists them"
            )
    else:
        rows = [(name, row) for name, rows in SOURCES.items() for row in rows]
    rows.sort(key=lambda row: (_rank(row, guesses), row[1].library != library))
    best: Identified | None = None
    for name, source in rows:
        found = _try(stored, name, source)
        if found is None:
            continue
        if not found.differences:
            return found
        if best is None or len(found.differences) < len(best.differences):
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


def _rank(row: tuple[str, Source], guesses: Sequence[str]) -> int:
    """Return the position of the first guess that is meant by a row."""
    name, source = row
    for i, guess in enumerate(guesses):
        if guess in (name, source.architecture):
            return i
    return len(guesses)


def _try(stored: Shapes, name: str, source: Source) -> Identified | None:
    """Compare a file with a model; None: its first or last layer is not there."""
    first = stored.get(f"{source.names.first_conv}.weight")
    last = stored.get(f"{source.names.classifier}.weight")
    if first is None or last is None or len(first) != 4 or len(last) < 2:
        return None
    channels, num_outputs = first[1], last[0]
    if not (channels and num_outputs):
        return None
    wanted = shapes_there(source, name, channels, num_outputs)
    found = compare(stored, wanted, source.names.is_unused)
    return Identified(model_of(source, name), source, channels, num_outputs, found)


def model_of(source: Source, name: str) -> ModelConfig:
    """Return the model that computes what the source does, without auxiliary heads."""
    options: dict[str, Any] = dict(source.options)
    if "aux_weight" in inspect.signature(MODELS[name].__init__).parameters:
        options["aux_weight"] = 0.0
    return ModelConfig(name=name, **options)


def shapes_there(source: Source, name: str, channels: int, num_outputs: int) -> Shapes:
    """Return the shapes of the arrays of a source by their names, as it has them."""
    size = source.image_size
    options = vars(model_of(source, name)).items()
    given = tuple((k, v) for k, v in options if k != "options")
    ours = _shapes_here(given, (size, size, channels), num_outputs)
    return {
        source.names.name(path): shape_there(source.names, path, shape)
        for path, shape in ours.items()
    }


def shape_there(names: Names, path: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that an array of ours has there."""
    unfilled = np.broadcast_to(np.float32(0), shape)
    return names.layout(path).to_torch(unfilled).shape


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
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): x.shape
        for path, x in jax.tree_util.tree_leaves_with_path(arrays)
    }
