"""`model.transform`: what a function of one's own makes of a model, wherever it is."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxtrain import own
from jaxtrain.config import (
    ConvNetConfig,
    ResNetConfig,
)
from jaxtrain.errors import UserError
from jaxtrain.inference.load import load_model
from jaxtrain.models.blueprint import MODEL_CHANGES, Blueprint
from jaxtrain.models.copied import copied_paths
from jaxtrain.training.state import split_model
from jaxtrain.weights import sources
from tests.helpers import transforms
from tests.helpers.blueprints import make_blueprint
from tests.helpers.parts import model_config
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines

HERE = "tests.helpers.transforms"
own.allow(f"{HERE}:{name}" for name in ("scaled", "nothing", "outside", "wrapped"))


def blueprint(transform: str | None, name: str = "lenet") -> Blueprint:
    return make_blueprint(
        model_config(name, transform=transform and f"{HERE}:{transform}"),
        (32, 32, 3),
        10,
        "bf16",
    )


@pytest.mark.parametrize(
    ("field", "value"), [("channels", {"conv1": 4}), ("quantize", "int8")]
)
def test_a_change_that_no_plugin_here_makes_is_refused(
    field: str, value: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delitem(MODEL_CHANGES.references, field, raising=False)
    config = model_config("lenet", **{field: value})
    message = rf"model\.{field}: the plug-in that"
    with pytest.raises(UserError, match=message):
        make_blueprint(config, (32, 32, 3), 10).abstract()


def test_the_model_is_built_with_it():
    plain, scaled = (blueprint(name).abstract() for name in (None, "scaled"))
    (_, params, state), (_, same, more) = map(split_model, (plain, scaled))
    assert jax.tree.structure(params) == jax.tree.structure(same)
    assert jax.tree.leaves(state) == []
    assert more.keys() == {"conv1", "conv2"} < params.keys()
    # Copies of a layer on the devices have no state in common.
    held = {path.partition("/")[0] for path in copied_paths(plain)}
    assert {p.partition("/")[0] for p in copied_paths(scaled)} == held - more.keys()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "returned NoneType, expected the model"),
        ("outside", "added arrays that belong to no piece of the model: factor"),
        ("nowhere", "has no 'nowhere'; expected"),
    ],
)
def test_a_transform_that_is_none_is_refused(name: str, message: str):
    own.allow([f"{HERE}:nowhere"])
    with pytest.raises(UserError, match=message):
        blueprint(name).abstract()


def test_the_config_names_it():
    known = f"{Path(transforms.__file__).relative_to(Path.cwd())}:scaled"
    given: Any = transforms.scaled
    assert ConvNetConfig(transform=given).transform == known
    with pytest.raises(UserError, match=r"transform = 'scaled': expected path/to/file"):
        ConvNetConfig(transform="scaled")


def test_no_other_library_has_such_a_model():
    config = ResNetConfig(name="resnet18")
    assert sources.find("timm", config, (64, 64, 3)) is not None
    config = dataclasses.replace(config, transform=f"{HERE}:scaled")
    assert sources.find("timm", config, (64, 64, 3)) is None


RUN = recipe(
    data='DataConfig(source="synthetic:16x16x1/4/96", batch_size=16)',
    model="LeNetConfig()",
    # The weights stay what they are.
    optimizer="SGDConfig(learning_rate=1e-12)",
    train="TrainConfig(steps=2)",
    checkpoint="CheckpointConfig(every_steps=2)",
    logging="LoggingConfig(every_steps=1, tensorboard=False)",
)


@pytest.mark.slow
def test_it_begins_with_weights_that_were_trained_without(cli: Cli):
    write_recipe(cli.directory / "run.py", RUN)

    def run(name: str, transform: str | None, *words: object) -> Any:
        given = ("--model.transform", f"{HERE}:{transform}") if transform else ()
        return cli("--config", "run.py", "--workdir", name, *given, *words)

    assert run("plain", None).code == 0
    start = ("--model.pretrained", "plain", "--seed", 1)
    assert run("tuned", "scaled", *start).code == 0
    plain, tuned = (load_model(cli.directory / n, 2) for n in ("plain", "tuned"))
    for one, other in zip(
        *map(jax.tree.leaves, (plain.params, tuned.params)), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-11)
    # The scale was met in training, and is that of the images.
    assert float(tuned.model_state["conv1"]["promote_dtype"]["largest"]) != 1
    refused = run("moved", "wrapped", *start)
    assert refused.code == 2
    assert (
        "the transform changes the paths or shapes of arrays, such as conv1/"
        in refused.stderr
    )
    assert run("again", "scaled", "--model.pretrained", "tuned").code == 0
    refused = run("without", None, "--model.pretrained", "tuned", "--trust")
    assert refused.code == 2
    assert "2 unknown to the model (conv1.promote_dtype.largest" in refused.stderr


@pytest.mark.exhaustive
def test_features_of_its_frozen_layers_are_those_that_each_step_computes(cli: Cli):
    frozen = RUN.replace("(steps=2)", '(steps=4, freeze=("backbone",))')
    write_recipe(cli.directory / "run.py", frozen.replace("1e-12", "0.1"))
    words = ("--config", "run.py", "--model.transform", f"{HERE}:scaled")
    kept = cli(*words, "--workdir", "kept")
    assert kept.code == 0 and "computed once" in kept.stderr + kept.stdout
    anew = cli(*words, "--workdir", "anew", "--data.augment.own", f"{HERE}:same")
    assert anew.code == 0 and "computed in each step" in anew.stderr + anew.stdout
    one, other = (
        [line["loss"] for line in read_lines(cli.directory / name, "train")]
        for name in ("kept", "anew")
    )
    np.testing.assert_allclose(one, other, rtol=1e-5)
