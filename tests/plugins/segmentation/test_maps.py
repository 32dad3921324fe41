"""Models of maps against those of torchvision, with the same weights, and trained."""

import json
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxtrain.cli import main
from jaxtrain.errors import UserError
from jaxtrain.models.auxiliary import WithAuxiliary
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.plugins.segmentation import voc
from jaxtrain.plugins.segmentation.options import DeepLabConfig
from jaxtrain.training.forward import apply_model, predict
from jaxtrain.training.state import num_params, split_model
from jaxtrain.trees import by_path, path_name
from jaxtrain.weights import load
from jaxtrain.weights.names import ArrayNames
from jaxtrain.weights.sources import WEIGHTS
from tests.helpers import seeded
from tests.helpers.blueprints import make_blueprint
from tests.helpers.command import float64
from tests.helpers.discs import CLASSES
from tests.helpers.maps import EIGHT, FOUR_STAGES, PIXELS
from tests.helpers.parts import model_config
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines
from tests.helpers.tiers import thinned
from tests.helpers.words import quoted

# Written by tests/oracles/maps.py.
STORED = Path(__file__).parents[2] / "stored" / "maps"
NAMES = [name for name, rows in WEIGHTS.items() if rows[0].task == "segmentation"]
# Of torchvision's metadata, for 21 classes.
NUM_PARAMS = {
    "fcn_resnet50": 35_322_218,
    "fcn_resnet101": 54_314_346,
    "deeplabv3_resnet50": 42_004_074,
    "deeplabv3_resnet101": 60_996_202,
}


def stored(name: str) -> dict[str, Any]:
    return json.loads((STORED / f"torchvision.{name}.json").read_text())


def names_of(name: str) -> ArrayNames:
    return WEIGHTS[name][0].names


def blueprint(name: str, size: int, num_outputs: int, **options: Any) -> Blueprint:
    return make_blueprint(model_config(name, **options), (size, size, 3), num_outputs)


def torch_shapes(name: str, weights: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays of torchvision's model, by their names."""
    ours = {p.partition("/")[2]: x.shape for p, x in by_path(weights).items()}
    return dict(names_of(name).shapes(ours))


@pytest.mark.parametrize("name", thinned(3, NAMES))
def test_arrays_are_those_of_torchvision(name: str):
    assert {*NAMES} == {*NUM_PARAMS}
    found = stored(name)
    model = blueprint(name, 65, 10).abstract()
    _, *weights = split_model(model)
    assert seeded.digest(torch_shapes(name, weights)) == found["digest"]
    assert num_params(weights[0]) == found["num_params"]
    params = split_model(blueprint(name, 65, 21).abstract())[1]
    assert num_params(params) == NUM_PARAMS[name]


def fill(name: str, path: Any, x: Any) -> np.ndarray:
    """Return torchvision's weights of an array of ours."""
    ours, names = path_name(path).partition("/")[2], names_of(name)
    unfilled = np.broadcast_to(np.float32(0), x.shape)
    shape = names.layout(ours).to_torch(unfilled).shape
    array = names.layout(ours).from_torch(seeded.weights(names.name(ours), shape))
    return np.ascontiguousarray(array)


@pytest.mark.parametrize("name", thinned(3, NAMES))
def test_outputs_are_those_of_torchvision(name: str):
    found = stored(name)
    made = blueprint(name, found["image_size"], 10)
    graphdef, *abstract = split_model(made.abstract())
    weights = jax.tree_util.tree_map_with_path(partial(fill, name), abstract)
    images = jnp.asarray(seeded.images(found["image_size"]))

    @jax.jit
    def some(params: Any, state: Any, images: jax.Array) -> Any:
        # At the pixels that are stored.
        whole = predict(graphdef, params, state, images)
        return whole[:, :: found["every"], :: found["every"]]

    logits, expected = some(*weights, images), np.array(found["out"])
    # Float32 of a hundred layers against float64.
    assert np.abs(logits - expected).max() / np.abs(expected).max() <= 1e-5


@each_row(("name", "options"), [("fcn_resnet50", {}), ("unet", {"aux_weight": 0.5})])
def test_an_auxiliary_head_puts_out_a_map_in_training(
    name: str, options: dict[str, float]
):
    made = blueprint(name, 33, 4, backbone=FOUR_STAGES, width=0.1, **options)
    graphdef, *weights = split_model(made.abstract())
    arguments = *weights, made.images(2), jax.random.key(0)
    outputs, _ = jax.eval_shape(partial(apply_model, graphdef), *arguments)
    assert isinstance(outputs, WithAuxiliary) and outputs.weight == 0.5
    assert outputs.outputs.shape == outputs.auxiliary[0].shape == (2, 33, 33, 4)
    alone = jax.eval_shape(partial(predict, graphdef), *arguments[:3])
    assert alone == outputs.outputs


@each_row(
    ("options", "rows"),
    [
        ({}, 9),
        ({"output_stride": 16}, 5),
        ({"output_stride": 32}, 3),
        ({"stem": "cifar"}, 9),
    ],
)
def test_strides_become_dilation(options: dict[str, Any], rows: int):
    given = {"backbone": FOUR_STAGES, "width": 0.1, "aux_weight": 0.0, **options}
    made = blueprint("fcn_resnet50", 65, 4, **given)
    model = made.abstract()
    graphdef, *weights = split_model(model)
    cut = slice(0, len(model.pieces) - 1)
    features = jax.eval_shape(
        partial(predict, graphdef, part=cut), *weights, made.images(1)
    )[0]
    assert features.shape[1] == rows and model.stride == -(-64 // (rows - 1))
    dilations = {
        layer.kernel_dilation
        for block in (
            getattr(model, f"stage{name}")
            for name in ("3_block1", "3_block2", "4_block2")
        )
        for layer in (block.conv1, block.conv2)
    }
    wanted = {9: {1, 2, 4}, 5: {1, 2}, 3: {1}}[rows]
    if options.get("stem") == "cifar":
        wanted = {1}
    assert dilations == wanted


@each_row(
    ("options", "message"),
    [
        (
            {"backbone": "vgg11"},
            "output_stride = 8: .*'vgg11' does not support dilation",
        ),
        ({"stem": "cifar", "output_stride": 16}, "output_stride = 16 has no effect"),
        ({"padding": "same"}, "deeplabv3_resnet50 takes .*, not 'padding'"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        blueprint("deeplabv3_resnet50", 65, 4, **options).abstract()


def write_weights(path: Path, name: str, num_outputs: int, **options: Any) -> None:
    """Write a file of weights as torchvision has them, with both heads."""
    _, *abstract = split_model(blueprint(name, 65, num_outputs, **options).abstract())
    shapes = torch_shapes(name, abstract)
    save_file({k: seeded.weights(k, shape) for k, shape in shapes.items()}, path)


@pytest.mark.slow
def test_a_file_of_torchvision_is_known(tmp_path: Path):
    path = tmp_path / "fcn_resnet50_coco-1167a1af.safetensors"
    write_weights(path, "fcn_resnet50", 21)
    about = load(path).about
    assert about.model == DeepLabConfig(name="fcn_resnet50", aux_weight=0.0)
    assert about.task == "segmentation" and about.class_names == voc.LABELS
    assert about.output_spec == (520, 520, 21) and about.crop_pct == 1.0


RECIPE = f"""
from jaxtrain.config import *
from jaxtrain.plugins.segmentation.options import DeepLabConfig


def get_config():
    return Config(
        task=CustomConfig(name="{PIXELS}"),
        precision="fp64",
        data=DataConfig(
            source="{EIGHT}",
            batch_size=4,
            validation_fraction=0.0,
        ),
        model=DeepLabConfig(name="deeplabv3_resnet50", dropout=0.0),
        optimizer=SGDConfig(
            learning_rate=2.0**-15,
            momentum=0.9,
            nesterov=False,
            weight_decay=0.0,
            schedule=ConstantSchedule(),
            warmup_epochs=0.0,
        ),
        train=TrainConfig(steps=6),
        logging=LoggingConfig(every_steps=1, tensorboard=False, report=False),
    )
"""


@pytest.mark.exhaustive
def test_training_is_that_of_torchvision(tmp_path: Path):
    """The first steps of gradient descent on four images, from weights in a file.

    Twenty are stored, and with JAX 0.10 all of them agree. Two steps make a difference
    of rounding a hundred times as large: with JAX 0.12 it is 4e-8 after six, 2e-4 after
    eight.
    """
    path = tmp_path / "deeplabv3_resnet50-seeded.safetensors"
    write_weights(path, "deeplabv3_resnet50", CLASSES)
    (tmp_path / "recipe.py").write_text(RECIPE)
    words = f"--config {quoted(tmp_path)}/recipe.py --workdir {quoted(tmp_path)}/run"
    with float64(enable=True):
        assert main([*shlex.split(words), "--model.pretrained", str(path)]) == 0
    losses = [line["loss"] for line in read_lines(tmp_path / "run", "train")]
    expected = stored("deeplabv3_resnet50.training")["losses"]
    np.testing.assert_allclose(losses, expected[: len(losses)], rtol=1e-5)
    assert len(losses) == 6
