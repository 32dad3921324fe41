"""Models against those of timm and torchvision, with the same weights."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jmp
import numpy as np
import pytest
from flax import nnx

from jaxtrain.models import CLASSIFIERS
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.training.forward import predict
from jaxtrain.training.state import split_model
from jaxtrain.trees import by_path, path_name
from jaxtrain.weights.identify import find_by_file, find_named
from jaxtrain.weights.names import ArrayNames
from jaxtrain.weights.sources import SOURCES, WeightsSource, all_sources, find
from tests.helpers import seeded
from tests.helpers.parts import model_config
from tests.helpers.rows import each_row
from tests.helpers.tiers import thinned

FP32 = jmp.get_policy("params=float32,compute=float32,output=float32")
# Written by tests/oracles/zoo.py.
STORED = Path(__file__).parents[1] / "stored" / "zoo"
# The quickest; the others are left to the slow half.
QUICK = ["resnet18"]
BLOCK = r"stage(\d+)_block(\d+)"
# Compared with, but not a source of weights.
WIDE_RESNET = ArrayNames(
    layers={
        r"stem_conv": "features.init_block",
        rf"{BLOCK}/conv(\d)": "features.stage{0}.unit{1}.body.conv{2}.conv",
        rf"{BLOCK}/norm(\d)": "features.stage{0}.unit{1}.body.conv{2}.bn",
        rf"{BLOCK}/shortcut_conv": "features.stage{0}.unit{1}.identity_conv",
        r"last_norm": "features.post_activ.bn",
        r"head/linear": "output",
    },
)
ORACLES: dict[str, tuple[WeightsSource, ...]] = {
    "wide_resnet28_10": (
        WeightsSource("pytorchcv", "wrn28_10_cifar10", WIDE_RESNET),  # pyright: ignore
    )
}
# Models of maps have a test of their own.
CLASSIFYING = {name: x for name, x in SOURCES.items() if name in CLASSIFIERS}
ALL = [*CLASSIFYING.items(), *ORACLES.items()]


def key(source: WeightsSource) -> str:
    return f"{source.library}.{source.architecture}"


@pytest.mark.parametrize(
    ("ours", "sources"),
    [
        *(pytest.param(*row, id=row[0]) for row in ALL if row[0] in QUICK),
        *thinned(
            9, [pytest.param(*row, id=row[0]) for row in ALL if row[0] not in QUICK]
        ),
    ],
)
def test_outputs_are_those_of_other_libraries(
    ours: str, sources: tuple[WeightsSource, ...]
) -> None:
    made: dict[str, Any] = {}  # Those with the same options are one model of ours.
    for source in sources:
        stored = json.loads((STORED / f"{key(source)}.json").read_text())
        size, expected = stored["image_size"], np.array(stored["logits"])
        which = repr((size, source.options, expected.shape))
        if which not in made:
            made[which] = make(ours, source, size, expected.shape[1])
        abstract, apply = made[which]
        assert_same(source, abstract, apply, stored["digest"], size, expected)


def make(ours: str, source: WeightsSource, size: int, num_outputs: int) -> Any:
    """Return our model as shapes, and its compiled function of weights and images."""
    blueprint = Blueprint(
        config=model_config(ours, **source.options),  # type: ignore[arg-type]
        policy=FP32,
        image_shape=(size, size, 3),
        num_outputs=num_outputs,
    )
    model = blueprint.abstract()
    # What no piece applies has parameters, too, and what two apply has them once.
    named = [name for piece in model.pieces for name in piece.names]
    held = {path[0] for path, _ in nnx.to_flat_state(nnx.state(model))}
    assert sorted(named) == sorted(held)
    graphdef, *abstract = split_model(model)
    return tuple(abstract), jax.jit(partial(predict, graphdef))


def assert_same(
    source: WeightsSource,
    abstract: Any,
    apply: Callable[..., jax.Array],
    digest: str,
    size: int,
    expected: np.ndarray,
) -> None:
    """Check the names, the shapes and the outputs of a model of another library."""
    named, shapes = {}, {}
    for path, x in by_path(abstract).items():
        path = path.partition("/")[2]
        named[path] = source.names.name(path)
        unfilled = np.broadcast_to(np.float32(0), x.shape)
        shapes[named[path]] = source.names.layout(path).to_torch(unfilled).shape
    # Every array of theirs that takes part, exactly once, in its shape.
    assert len(shapes) == len(named)
    assert seeded.digest(shapes) == digest, (key(source), sorted(shapes))

    def fill(path: Any, x: Any) -> np.ndarray:
        ours = path_name(path).partition("/")[2]
        theirs = named[ours]
        array = seeded.weights(theirs, shapes[theirs])
        array = source.names.layout(ours).from_torch(array)
        assert array.shape == x.shape
        return np.ascontiguousarray(array)

    weights = jax.tree_util.tree_map_with_path(fill, abstract)
    logits = apply(*weights, jnp.asarray(seeded.images(size)))
    # Float32 of a hundred layers against float64: 1e-6 of the largest, about.
    worst = np.abs(logits - expected).max() / np.abs(expected).max()
    assert worst <= 1e-5, key(source)


KNOWN = [
    (ours, source) for ours, sources in all_sources().items() for source in sources
]


@each_row(("ours", "source"), KNOWN)
def test_a_name_is_that_of_one_model_of_a_library(
    ours: str, source: WeightsSource
) -> None:
    named = find_named(source.architecture, "file", source.library)
    assert named == [(ours, source)]
    of_file = find_by_file(Path(f"{source.architecture}-1.pth"), ())
    assert of_file == find_named(source.architecture, "file")


@each_row(("ours", "source"), KNOWN)
def test_options_tell_the_architecture(ours: str, source: WeightsSource) -> None:
    """An export of a model with these options gets the name that the library has."""
    config = model_config(ours, **source.options)  # type: ignore[arg-type]
    shape = (source.image_size, source.image_size, 3)
    assert find(source.library, config, shape) is source


def test_half_of_the_options_of_tensorflow_are_no_model_of_timm() -> None:
    for options in {"padding": "same"}, {"norm_epsilon": 1e-3}:
        config = model_config("efficientnet_b0", **options)  # type: ignore[arg-type]
        assert find("timm", config, (224, 224, 3)) is None
