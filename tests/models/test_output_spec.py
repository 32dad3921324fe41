"""A model is given the output spec of its task, and must put out just that."""

import dataclasses
import json
import re
from typing import Any, ClassVar

import jax
import pytest

from jaxtrain import own
from jaxtrain.config import Config, CustomConfig
from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.models.blueprint import plain_spec
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.build import build_task
from jaxtrain.trainer.model_checks import check_outputs
from jaxtrain.training.state import split_model
from jaxtrain.weights.description import Description
from jaxtrain.weights.names import OWN
from jaxtrain.weights.stored import Weights, shapes_of
from jaxtrain.weights.transfer_learning import compare
from tests.helpers import described

HERE = "tests.models.test_output_spec"
own.allow(f"{HERE}:{name}" for name in ("TwoHeads", "TwoOutputs", "Nothing", "Flat"))


class TwoHeads(Model):
    """Puts out as many numbers as each shape of the spec has, by its name."""

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        output_spec: dict[str, tuple[int]],
    ):
        assert num_outputs == sum(shape[0] for shape in output_spec.values())
        features = image_shape[2]
        heads = {
            name: Head(features, shape[0], 0.0, layers=layers)
            for name, shape in output_spec.items()
        }

        def apply(first: Any, second: Any, x: jax.Array, rngs: Any) -> Any:
            parts = (head(x.mean((1, 2)), rngs) for head in (first, second))
            return dict(zip(output_spec, parts, strict=True))

        self.add_piece(apply, **heads)


class TwoOutputs(Task):
    output_spec: ClassVar[Any] = {"kind": (3,), "box": (4,)}

    def __init__(self, image_shape: Any, facts: Any):
        pass


class Flat(Task):
    output_spec: ClassVar[Any] = [32, 32, 3]

    def __init__(self, image_shape: Any, facts: Any):
        pass


class Nothing(Task):
    def __init__(self, image_shape: Any, facts: Any):
        pass


def describe(name: str) -> Description:
    return described.describe(
        name,
        (32, 32, 3),
        task=f"{HERE}:TwoOutputs",
        num_outputs=7,
        output_spec=TwoOutputs.output_spec,
        std=(0.2,) * 3,
        crop_pct=0.875,
    )


def make_task(name: str) -> Task:
    return build_task(Config(task=CustomConfig(name=f"{HERE}:{name}")), (32, 32, 3), {})


def test_a_model_with_several_heads_is_given_the_spec_and_read_back():
    task, about = make_task("TwoOutputs"), describe(f"{HERE}:TwoHeads")
    assert task.num_outputs == 7
    read = Description.from_dict(json.loads(json.dumps(about.to_dict())), "model.json")
    assert read == about
    blueprint = read.blueprint()
    assert not [*check_outputs(blueprint.abstract(), blueprint.images(2), task)]


def test_outputs_of_another_shape_are_refused_with_both():
    blueprint = describe("lenet").blueprint()
    told = (
        r"output shape is \(2, 7\) for images .*: expected {'box': \(2, 4\), 'kind': "
    )
    task = make_task("TwoOutputs")
    (problem,) = check_outputs(blueprint.abstract(), blueprint.images(2), task)
    assert re.search(told, problem.text)


@pytest.mark.parametrize(
    "spec", [[0, 2], {"a": [-1]}, {"a": "x"}, 3, [[[[[[[[[2]]]]]]]]]]
)
def test_what_is_no_shape_is_refused(spec: Any):
    assert plain_spec(spec) is None
    values = {**describe("lenet").to_dict(), "output_spec": spec}
    with pytest.raises(UserError, match="output_spec: expected shapes"):
        Description.from_dict(values, "model.json")


def test_a_task_says_its_outputs():
    with pytest.raises(UserError, match=r"num_outputs \(an int\) or output_spec"):
        make_task("Nothing")
    with pytest.raises(UserError, match=r"output_spec = \[32, 32, 3\]: expected a sha"):
        make_task("Flat")


@pytest.mark.parametrize("same", [True, False])
def test_classes_of_other_names_get_new_heads(same: bool):
    """What the last layers are, only the spec tells."""
    names = tuple("abcdefg")
    about = dataclasses.replace(describe(f"{HERE}:TwoHeads"), class_names=names)
    params, model_state = split_model(about.blueprint().abstract())[1:]
    shapes = shapes_of((params, model_state))
    stored = {OWN.name(path): shape for path, shape in shapes.items()}
    weights = Weights("here", about, stored, str, dict)
    mine = names if same else names[::-1]
    start = compare(weights, about.blueprint(), class_names=mine)
    assert start.kept == (set() if same else shapes.keys())
