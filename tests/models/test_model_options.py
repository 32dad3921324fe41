"""Every option of `model` does something to a family of models, or is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxtrain.config import ModelConfig
from jaxtrain.config.model import MODELS as MODEL_PARTS
from jaxtrain.config.part import part_classes
from jaxtrain.errors import UserError
from jaxtrain.models import MODELS, defaults
from jaxtrain.models.base import Model
from jaxtrain.registry import find_row
from jaxtrain.training.forward import apply_model
from jaxtrain.training.state import split_model
from tests.helpers.blueprints import make_blueprint
from tests.helpers.maps import FOUR_STAGES
from tests.helpers.parts import model_config
from tests.helpers.rows import each_row
from tests.helpers.shallow import SHORT, SIZES
from tests.helpers.tiers import thinned

# Option -> a value that no model has by default.
VALUES: dict[str, Any] = {
    "width": 0.4,
    "dropout": 0.35,
    "drop_path": 0.35,
    "stem": "cifar",
    "norm_epsilon": 0.05,
    "padding": "same",
    "global_pool": "max",
    "aux_weight": 0.15,
    "backbone": "resnet34",
    "output_stride": 16,
    "decoder_channels": (24, 16),
    "pyramid_channels": 24,
    "head_layers": 3,
}
# What a short family has anyway.
CHANGED = {"resnet": {"stem"}, "mobilenet": {"padding"}}
# Every family, short or cut, in the place of its long models.
QUICK = ["lenet", "vgg11", "convnext"]
FAMILIES = {
    **{
        name: model_config(name)
        for name in (
            *("lenet", "convnet", "cnn4", "resnet18", "vgg11", "vgg11_bn"),
            "whitened_cnn",
        )
    },
    **{name: model_config(name) for name in ("mobilenet_v2", "efficientnet_b0")},
    **SHORT,
    # Over a classifier that takes all options.
    "unet": model_config("unet", backbone="mobilenet_v2"),
    "deeplab": model_config("deeplabv3_resnet50", backbone=FOUR_STAGES),
}


@pytest.fixture(autouse=True)
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave of long nets the first two stages."""
    for name in ("mobilenet_v2", "efficientnet_b0"):
        model: Any = MODELS[name]
        monkeypatch.setattr(model, "stages", model.stages[:2])


def takes(config: ModelConfig) -> set[str]:
    model = find_row(MODELS, "model.name", config.name)
    return VALUES.keys() & defaults(model).keys()


def abstract(config: ModelConfig, size: int, **options: Any) -> Model:
    return make_blueprint(config.updated(options), (size, size, 3), 4).abstract()


def program(family: str, **options: Any) -> tuple[str, str]:
    """Return the traced program of a call in training, and what it puts out."""
    size = SIZES.get(family, 32)
    model = abstract(FAMILIES[family], size, **options)
    graphdef, params, state = split_model(model)
    images = jax.ShapeDtypeStruct((2, size, size, 3), jnp.float32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    traced, outputs = jax.make_jaxpr(
        lambda *args: apply_model(graphdef, *args), return_shape=True
    )(params, state, images, key)
    return str(traced), str(outputs)


def test_the_values_are_of_all_options():
    kinds = part_classes(MODEL_PARTS).values()
    assert VALUES.keys() == {name for kind in kinds for name in kind.option_names()}


@pytest.mark.parametrize(
    "family",
    [*QUICK, *thinned(5, [name for name in FAMILIES if name not in QUICK])],
)
def test_an_option_that_is_taken_changes_the_program(family: str):
    programs = {
        option: program(family, **{option: VALUES[option]})
        for option in takes(FAMILIES[family]) - CHANGED.get(family, set())
    }
    programs["none"] = program(family)
    assert len(set(programs.values())) == len(programs)


@each_row("name", MODELS)
def test_the_options_of_a_model_are_those_of_its_constructor(name: str):
    config = model_config(name)
    assert {*config.option_names()} == takes(config) == defaults(MODELS[name]).keys()
    for option in VALUES.keys() - takes(config):
        with pytest.raises(UserError, match=f"{name} takes .*, not '{option}'"):
            config.updated({option: VALUES[option]})
