"""Every recipe loads, says how to run it, and fits its data, without the data."""

import ast
from pathlib import Path

import jax
import pytest

from jaxtrain import keys
from jaxtrain.config import from_json, get, to_json
from jaxtrain.config.recipe import load_config
from jaxtrain.run.setup import make_blueprint
from jaxtrain.run.timetable import make_timetable
from jaxtrain.training import precision
from jaxtrain.training.optimizers import make_optimizer
from jaxtrain.training.schedules import make_schedule
from jaxtrain.training.state import CreateState, num_params
from tests.helpers.processes import ROOT

# Source -> image shape as the model sees it, classes, training examples, parameters of
# the recipe's model.
FACTS = {
    "digits": ((8, 8, 1), 10, 1293, 40_266),
    "mnist": ((28, 28, 1), 10, 54_000, 61_706),
    "fashion_mnist": ((28, 28, 1), 10, 54_000, 25_322),
    "cifar10": ((32, 32, 3), 10, 45_000, 79_818),
    "cifar10_resnet18": ((32, 32, 3), 10, 45_000, 11_173_962),
    "folder": ((28, 28, 1), 10, 54_000, 69_066),
    "imagenet_cnn4": ((224, 224, 3), 1000, 1_255_544, 1_911_528),
    "imagenet_resnet50": ((224, 224, 3), 1000, 1_255_544, 25_557_032),
}
RECIPES = sorted((ROOT / "configs").glob("*.py"))


def test_facts_cover_the_recipes():
    assert {path.stem for path in RECIPES} == set(FACTS)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_builds_abstractly(path: Path):
    config = load_config(path)
    shape, num_classes, num_examples, expected = FACTS[path.stem]
    assert from_json(to_json(config)) == config
    timetable = make_timetable(config, num_examples, has_validation=True)
    schedule = make_schedule(
        config.optimizer,
        total_steps=timetable.total_steps,
        warmup_steps=timetable.warmup_steps,
    )
    tx = make_optimizer(config.optimizer, schedule)
    policy = precision.parse(config.precision)
    blueprint = make_blueprint(config, policy, shape, num_classes)
    create = CreateState(blueprint, config.train, tx)
    state = jax.eval_shape(create, keys.root_key(config.seed))
    assert num_params(state.params) == expected


# What the sources that a recipe names say, where it follows them.
SOURCED = {
    # DeVries & Taylor 2017, section 4.1; 8 is for CIFAR-100.
    "cifar10_resnet18": {
        "data.augment.cutout_size": 16,
        "data.augment.crop_padding": 4,
        "data.batch_size": 128,
        "optimizer.learning_rate": 0.1,
        "optimizer.momentum": 0.9,
        "optimizer.nesterov": True,
        "optimizer.weight_decay": 5e-4,
        "train.epochs": 200,
    },
    # Goyal et al. 2017, section 5.1.
    "imagenet_resnet50": {
        "optimizer.learning_rate": 0.1 * 1024 / 256,
        "optimizer.warmup_epochs": 5,
        "optimizer.momentum": 0.9,
        "optimizer.nesterov": True,
        "optimizer.weight_decay": 1e-4,
        "parallel.batch_norm": 32,
        "train.epochs": 90,
    },
}


@pytest.mark.parametrize("name", SOURCED)
def test_recipe_has_the_numbers_of_its_source(name: str):
    config = load_config(ROOT / "configs" / f"{name}.py")
    assert {path: get(config, path) for path in SOURCED[name]} == SOURCED[name]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_says_how_to_run_it_and_what_to_expect(path: Path):
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert f"python main.py --config configs/{path.name}" in doc
    assert "Hardware" in doc and "Recipe" in doc
    assert "accuracy" in doc, "measured, or said to be unmeasured"
