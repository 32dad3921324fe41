"""Every recipe loads, says how to run it, and fits its data, without the data."""

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxtrain import config as config_lib, tasks
from jaxtrain.config import (
    PlainConfig,
    from_json,
    get,
    to_json,
)
from jaxtrain.config.overrides import clear_replaced
from jaxtrain.config.recipe import load_config
from jaxtrain.data.fit import Fit
from jaxtrain.data.pixel_classes import PIXEL_CLASSES
from jaxtrain.errors import UserError
from jaxtrain.tasks.build import build_task
from jaxtrain.trainer import checks
from jaxtrain.trainer.learning_rate import build_schedule
from jaxtrain.trainer.periods import make_timetable
from jaxtrain.trainer.setup import build_setup
from jaxtrain.training.state import num_params
from tests.helpers.processes import ROOT
from tests.helpers.rows import each_row
from tests.helpers.tiers import thinned

IMAGENET = ((224, 224, 3), 1000, 1_255_544)
# Recipe -> image shape as the model sees it, classes, training examples, parameters of
# its model.
FACTS: dict[str, tuple[Any, ...]] = {
    "digits": ((8, 8, 1), 10, 1293, 40_266),
    "mnist": ((28, 28, 1), 10, 54_000, 61_706),
    "fashion_mnist": ((28, 28, 1), 10, 54_000, 25_322),
    "fashion_mnist_distilled": ((28, 28, 1), 10, 5400, 25_322),
    "fashion_mnist_compact": ((28, 28, 1), 10, 60_000, 72_986),
    "fashion_mnist_fast": ((28, 28, 1), 10, 60_000, 72_986),
    "fashion_mnist_robust": ((28, 28, 1), 10, 58_800, 62_634),
    "cifar10": ((32, 32, 3), 10, 45_000, 79_818),
    "cifar10_fast": ((32, 32, 3), 10, 50_000, 1_993_114),
    "cifar10_resnet18": ((32, 32, 3), 10, 45_000, 11_173_962),
    "cifar10_wide_resnet28_10": ((32, 32, 3), 10, 45_000, 36_479_194),
    "folder": ((28, 28, 1), 10, 54_000, 69_066),
    "embedding": ((28, 28, 1), 10, 54_000, 110_688),
    # Of some folder.
    "finetune_folder": ((224, 224, 3), 10, 6400, 23_528_522),
    "imagenet_cnn4": (*IMAGENET, 1_911_528),
    "imagenet_resnet50": (*IMAGENET, 25_557_032),
    "imagenet_resnet50_a1": (*IMAGENET, 25_557_032),
    "imagenet_resnet50_a2": (*IMAGENET, 25_557_032),
    "imagenet_resnet50_a3": (*IMAGENET, 25_557_032),
    "imagenet_resnet50_torchvision_v1": (*IMAGENET, 25_557_032),
    "imagenet_resnet50_torchvision_v2": (*IMAGENET, 25_557_032),
    "imagenet_convnext_tiny": (*IMAGENET, 28_589_128),
    "imagenet_efficientnet_b0": (*IMAGENET, 5_288_548),
    "imagenet_inception_v3": ((299, 299, 3), *IMAGENET[1:], 27_161_264),
    "imagenet_mobilenet_v3_large": (*IMAGENET, 5_483_032),
    "imagenet_vgg16_bn": (*IMAGENET, 138_365_992),
    # Of columns, not classes; tests/users/test_recipes_of_columns.py has their models.
    "multilabel": ((64, 64, 3), 10, 54_000),
    "regression": ((32, 32, 3), 3, 7200),
    "segmentation": ((64, 64, 3), 11, 54_000),
    # Of boxes.
    "detection": ((64, 64, 3), 10, 6000),
    # Of views; tests/plugins/self_supervised/test_self_supervised.py trains such runs.
    "simclr": ((28, 28, 1), 10, 54_000),
    "byol": ((28, 28, 1), 10, 54_000),
    # Of sounds; tests/plugins/sound/test_sound.py trains it.
    "sound": ((64, 101, 1), 10, 1080),
}
FILES = sorted((ROOT / "configs").glob("*.py"))


def loads(path: Path) -> bool:
    """Whether the plug-ins of a recipe are installed."""
    try:
        load_config(path)
    except UserError as error:
        if "No module named 'jaxtrain.plugins'" not in str(error):
            raise
        return False
    return True


RECIPES = [path for path in FILES if loads(path)]
OF_CLASSES = [
    path
    for path in RECIPES
    if load_config(path).task.name in ("classification", "embedding")
    and path.stem != "sound"
]


@each_row("path", RECIPES)
def test_any_length_goes_with_a_recipe(path: Path) -> None:
    """Warm-up, drops of the rate and frozen layers shrink with the run."""
    recipe, num_examples = load_config(path), FACTS[path.stem][2]
    for field, value in (("epochs", 1), ("epochs", 0.5), ("steps", 20)):
        given = {f"train.{field}": str(value)}
        config = clear_replaced(recipe, given)
        config = config_lib.replace(config, f"train.{field}", value)
        timetable = make_timetable(config, num_examples, has_validation=True)
        assert not [*checks.check_unfreezing(config, timetable)]
        assert build_schedule(config, timetable) is not None


# Recipe -> steps of the run, and learning rates at the first step, near the middle, at
# the last and where they turn. An epoch of ImageNet has 1,255,544 // batch steps; half
# way down a cosine is the mean of its ends.
RATES: dict[str, tuple[int, dict[int, float]]] = {
    "digits": (2400, {0: 0, 40: 2e-3, 1220: 1e-3, 2399: 0}),
    "mnist": (6315, {0: 0, 421: 2e-3, 3368: 1e-3, 6314: 0}),
    "fashion_mnist": (2526, {0: 0, 421: 0.02, 2525: 0}),
    # A cosine down from 30 % of the run on, to a ten thousandth.
    "fashion_mnist_robust": (
        3672,
        {0: 1.6e-4, 1102: 4e-3, 1958: 3.0015e-3, 3671: 4.0155e-7},
    ),
    "fashion_mnist_distilled": (1008, {0: 0, 42: 0.02, 525: 0.01, 1007: 5.3048e-8}),
    "fashion_mnist_fast": (1500, {0: 0, 150: 0.12, 825: 0.06, 1499: 0.12 / 1350}),
    "fashion_mnist_compact": (1500, {0: 0, 150: 0.04, 825: 0.02, 1499: 0.04 / 1350}),
    "cifar10": (14_060, {0: 0.01, 7030: 0.01, 14_059: 0.01}),
    "cifar10_fast": (200, {0: 0, 40: 0.05, 120: 0.025, 199: 0.05 / 160}),
    "cifar10_resnet18": (70_200, {0: 0, 1755: 0.1, 35_977: 0.05, 70_199: 0}),
    # 351 steps an epoch; a fifth at epochs 60, 120 and 160.
    "cifar10_wide_resnet28_10": (
        70_200,
        {0: 0.1, 21_059: 0.1, 21_060: 0.02, 42_120: 4e-3, 56_160: 8e-4, 70_199: 8e-4},
    ),
    "embedding": (2526, {0: 0, 421: 0.02, 2525: 0}),
    "simclr": (315, {0: 0, 32: 2e-3, 173: 1.00555e-3, 314: 6.1631e-8}),
    "byol": (315, {0: 0, 32: 2e-3, 173: 1.00555e-3, 314: 6.1631e-8}),
    "folder": (4200, {0: 0, 210: 2e-3, 2205: 1e-3, 4199: 0}),
    # 100 steps of the last layer from a 25th of the peak on, 900 of all from a fifth of
    # half of it on; to 1e-5 of the peak of each.
    "finetune_folder": (
        1000,
        {0: 8e-5, 99: 2e-3, 100: 2e-4, 370: 1e-3, 685: 5.00005e-4, 999: 1.62e-8},
    ),
    "imagenet_cnn4": (147_120, {0: 0, 4904: 1e-3, 76_012: 5e-4, 147_119: 0}),
    # 1,226 steps an epoch.
    "imagenet_resnet50": (110_340, {0: 0, 6130: 0.4, 58_235: 0.2, 110_339: 0}),
    # 622 steps an epoch; the paper's 375,000 are of all 1,281,167 images.
    "imagenet_resnet50_a1": (
        373_200,
        {0: 1e-4, 1555: 2.55e-3, 3110: 5e-3, 188_155: 2.5005e-3, 373_199: 1e-6},
    ),
    "imagenet_resnet50_a2": (
        186_600,
        {0: 1e-4, 3110: 5e-3, 94_855: 2.5005e-3, 186_599: 1e-6},
    ),
    # 613 steps an epoch.
    "imagenet_resnet50_a3": (
        61_300,
        {0: 1e-4, 3065: 8e-3, 32_182: 4.0005e-3, 61_299: 1e-6},
    ),
    # 4,904 steps an epoch: a tenth at epochs 30 and 60.
    "imagenet_resnet50_torchvision_v1": (
        441_360,
        {0: 0.1, 147_119: 0.1, 147_120: 0.01, 294_240: 1e-3, 441_359: 1e-3},
    ),
    "imagenet_vgg16_bn": (
        441_360,
        {0: 0.1, 147_119: 0.1, 147_120: 0.01, 294_240: 1e-3, 441_359: 1e-3},
    ),
    "imagenet_resnet50_torchvision_v2": (
        735_600,
        {0: 5e-3, 6130: 0.5, 370_865: 0.25, 735_599: 0},
    ),
    # 306 steps an epoch.
    "imagenet_convnext_tiny": (
        91_800,
        {0: 0, 6120: 4e-3, 48_960: 2.0005e-3, 91_799: 1e-6},
    ),
    # 1,634 steps an epoch, 2.4 of which are 3,922 steps.
    "imagenet_efficientnet_b0": (
        735_300,
        {
            0: 1e-6,
            2451: 0.0240005,
            4902: 0.048 * 0.97,
            7843: 0.048 * 0.97,
            7844: 0.048 * 0.97**2,
            367_650: 0.048 * 0.97**93,
            735_299: 0.048 * 0.97**187,
        },
    ),
    # 1,226 steps an epoch, two of which are 2,452.
    "imagenet_mobilenet_v3_large": (
        735_600,
        {0: 0.064, 2451: 0.064, 2452: 0.064 * 0.973, 367_800: 0.064 * 0.973**150}
        | {735_599: 0.064 * 0.973**299},
    ),
    "imagenet_inception_v3": (
        208_420,
        {0: 0.66, 3677: 0.66, 3678: 0.66 * 0.94, 104_210: 0.66 * 0.94**28}
        | {208_419: 0.66 * 0.94**56},
    ),
    # 450 steps an epoch.
    "multilabel": (2250, {0: 0, 225: 0.06, 1440: 0.024, 2249: 0.06 / 2025}),
    "segmentation": (
        1800,
        {0: 0, 90: 0.025, 180: 0.05, 990: 0.025, 1799: 0.05 / 1620},
    ),
    "regression": (1344, {0: 0, 134: 2e-3, 739: 1e-3, 1343: 3.37e-9}),
    # 93 steps an epoch.
    "detection": (930, {0: 0, 93: 3e-3, 372: 2.25e-3, 651: 0.75e-3, 929: 1.06e-8}),
    # 18 steps an epoch.
    "sound": (270, {0: 0, 27: 2e-3, 108: 1.5e-3, 269: 8.3571e-8}),
}


def test_facts_cover_the_recipes():
    assert {path.stem for path in FILES} == set(FACTS) == set(RATES)


@pytest.mark.plugins
@each_row("name", ["detection", "segmentation"])
def test_recipes_with_places_see_the_whole_image(name: str):
    data = load_config(ROOT / "configs" / f"{name}.py").data
    assert data.image_size is not None
    left, top, right, bottom = Fit(*data.fit).centre_box(150, 200, data.image_size)
    assert left <= 0 and top <= 0 and right >= 200 and bottom >= 150


@each_row("path", RECIPES)
def test_learning_rates_are_those_of_the_source(path: Path):
    config = load_config(path)
    num_examples, (total_steps, rates) = FACTS[path.stem][2], RATES[path.stem]
    timetable = make_timetable(config, num_examples, has_validation=True)
    assert timetable.total_steps == total_steps
    schedule = build_schedule(config, timetable)
    assert schedule is not None
    found = jax.jit(jax.vmap(schedule))(np.array(list(rates)))
    # A step beside the middle, 299 roundings of a power, and a step before 0.
    peak = config.optimizer.learning_rate or 0.0
    np.testing.assert_allclose(found, list(rates.values()), rtol=5e-5, atol=1e-6 * peak)


@each_row("path", RECIPES)
def test_devices_of_the_recipe_share_its_batches(path: Path):
    config, doc = (
        load_config(path),
        ast.get_docstring(ast.parse(path.read_text())) or "",
    )
    if config.task.name not in tasks.TASKS:
        return  # Of a plug-in that is not here (`tests/machines/core.sh`).
    devices = 8 if "Hardware: 8 GPUs" in doc else 1
    mesh: Any = jax.sharding.AbstractMesh((devices, 1), ("data", "fsdp"))
    image_shape, num_classes, *_ = FACTS[path.stem]
    facts: dict[str, Any] = {"num_classes": num_classes}
    if config.data.targets:
        targets = np.eye(num_classes)
        facts = {
            "target_names": config.data.targets,
            "training_targets": lambda: targets,
        }
    if config.task.name == "segmentation":
        facts = {PIXEL_CLASSES: tuple(map(str, range(num_classes)))}
    if tasks.kind(config.task.name).classes_fact == "box_names":
        names = tuple(map(str, range(num_classes)))
        facts = {"box_names": names, "num_boxes": 4}
    task = build_task(config, image_shape, facts)
    assert not [*checks.check_batches(config, mesh)]
    assert not [*checks.check_mixing(config, mesh, task)]
    assert from_json(to_json(config)) == config


@pytest.mark.plugins
@pytest.mark.parametrize("path", thinned(2, OF_CLASSES), ids=lambda path: path.stem)
def test_recipe_builds_abstractly(path: Path):
    """On generated images, as many as the training split has, from random weights."""
    config = load_config(path)
    # Weights to begin with, or to be taught by, are not there.
    config = replace(
        config,
        model=replace(config.model, pretrained=None),
        method=PlainConfig(),
    )
    shape, num_classes, num_examples, expected = FACTS[path.stem]
    data = config.data
    if data.source != "digits":
        # There is no validation split to evaluate on.
        config = replace(config, train=replace(config.train, eval_every_epochs=None))
        stored = (256, 256, 3) if data.augment.random_resized_crop else shape
        size = "x".join(map(str, stored))
        data = replace(
            data,
            source=f"synthetic:{size}/{num_classes}/{num_examples}",
            train_split="train",
            validation_split=None,
            validation_fraction=0.0,
            test_split="test",
        )
    setup = build_setup(replace(config, data=data))
    assert setup.timetable.total_steps == RATES[path.stem][0]
    assert setup.splits.input_shape == shape
    assert num_params(setup.abstract_state.params) == expected
    assert jax.tree.leaves(setup.abstract_state.opt_state)


# What the sources that a recipe names say, where it follows them.
SOURCED = {
    # airbench94_muon.py of KellerJordan/cifar10-airbench.
    "cifar10_fast": {
        "data.augment.alternating_flip": True,
        "data.augment.crop_padding": 2,
        "data.batch_size": 2000,
        "optimizer.momentum": 0.6,
        "train.epochs": 8,
        "task.label_smoothing": 0.2,
    },
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
    "cifar10_wide_resnet28_10": {
        "data.augment.cutout_size": 16,
        "data.batch_size": 128,
        "optimizer.nesterov": True,
        "optimizer.weight_decay": 5e-4,
        "model.dropout": 0.3,
    },
    # Goyal et al. 2017, section 5.1.
    "imagenet_resnet50": {
        "optimizer.learning_rate": 0.1 * 1024 / 256,
        "optimizer.warmup_fraction": 5 / 90,
        "optimizer.momentum": 0.9,
        "optimizer.nesterov": True,
        "optimizer.weight_decay": 1e-4,
        "parallel.batch_norm": 32,
        "train.epochs": 90,
    },
    # Wightman et al. 2021, table 2.
    "imagenet_resnet50_a1": {
        "data.repeats": 3,
        "data.crop_pct": 0.95,
        "data.augment.mixup": 0.2,
        "data.augment.cutmix": 1.0,
        "data.augment.randaugment_magnitude": 7 * 3,
        "model.drop_path": 0.05,
        "optimizer.weight_decay": 0.01,
        "task.label_smoothing": 0.1,
    },
    "imagenet_resnet50_a2": {
        "data.repeats": 3,
        "data.augment.mixup": 0.1,
        "data.augment.randaugment_magnitude": 7 * 3,
        "model.drop_path": 0.05,
        "optimizer.weight_decay": 0.02,
        "task.label_smoothing": 0.0,
    },
    "imagenet_resnet50_a3": {
        "data.batch_size": 2048,
        "data.repeats": 1,
        "data.train_image_size": 160,
        "data.image_size": 224,
        "data.augment.mixup": 0.1,
        "data.augment.randaugment_magnitude": 6 * 3,
        "model.drop_path": None,
        "optimizer.weight_decay": 0.02,
        "task.label_smoothing": 0.0,
    },
    # pytorch/vision, issue 3995; the average of the weights from its train.py: a decay
    # of 0.99998 by 32 x batch / epochs every 32 steps.
    "imagenet_resnet50_torchvision_v2": {
        "data.repeats": 4,
        "data.train_image_size": 176,
        "data.crop_pct": 224 / 232,
        "data.augment.erasing": 0.1,
        "data.augment.mixup": 0.2,
        "data.augment.cutmix": 1.0,
        "optimizer.weight_decay": 2e-5,
        "task.label_smoothing": 0.1,
        "train.ema_decay": round((1 - 2e-5 * 32 * 1024 / 600) ** (1 / 32), 6),
    },
    # Liu et al. 2022, table 5.
    "imagenet_convnext_tiny": {
        "data.batch_size": 4096,
        "data.augment.mixup": 0.8,
        "data.augment.cutmix": 1.0,
        "data.augment.erasing": 0.25,
        "data.augment.randaugment_magnitude": 9 * 3,
        "model.drop_path": 0.1,
        "optimizer.weight_decay": 0.05,
        "train.ema_decay": 0.9999,
        "task.label_smoothing": 0.1,
    },
    # https://huggingface.co/docs/timm/training_script, "EfficientNet-B0 with
    # RandAugment - 77.7 top-1"; two GPUs with 384 images each, label smoothing and
    # RMSprop's decays by default.
    "imagenet_efficientnet_b0": {
        "data.batch_size": 2 * 384,
        "data.augment.erasing": 0.2,
        "data.augment.randaugment_magnitude": 9 * 3,
        "model.dropout": 0.2,
        "model.drop_path": 0.2,
        "optimizer.b2": 0.9,
        "optimizer.eps": 1e-3,
        "optimizer.momentum": 0.9,
        "optimizer.weight_decay": 1e-5,
        "train.epochs": 450,
        "train.ema_decay": 0.9999,
        "task.label_smoothing": 0.1,
    },
    # torchvision's README, eight GPUs with 128 images each; the norms of its model;
    # epsilon and decays of RMSprop in its train.py.
    "imagenet_mobilenet_v3_large": {
        "data.batch_size": 8 * 128,
        "data.augment.erasing": 0.2,
        "model.dropout": 0.2,
        "model.norm_epsilon": 1e-3,
        "optimizer.b2": 0.9,
        "optimizer.eps": 1e-3,  # 0.0316 squared
        "optimizer.momentum": 0.9,
        "optimizer.weight_decay": 1e-5,
        "train.epochs": 600,
    },
    "imagenet_resnet50_torchvision_v1": {
        "data.batch_size": 8 * 32,
        "optimizer.learning_rate": 0.1,
        "optimizer.momentum": 0.9,
        "optimizer.weight_decay": 1e-4,
        "train.epochs": 90,
    },
    # Those of the ResNet: it names no others for VGGs with batch norm.
    "imagenet_vgg16_bn": {
        "data.batch_size": 8 * 32,
        "optimizer.learning_rate": 0.1,
        "optimizer.momentum": 0.9,
        "optimizer.weight_decay": 1e-4,
        "train.epochs": 90,
    },
    # tensorflow/tpu, models/experimental/inception: 0.165 for 256 images.
    "imagenet_inception_v3": {
        "data.augment.brightness": 32 / 255,
        "data.augment.contrast": 0.5,
        "data.augment.hue": 0.2,
        "data.augment.saturation": 0.5,
        "model.aux_weight": 0.4,
        "model.dropout": 0.2,
        "optimizer.b2": 0.9,
        "optimizer.eps": 1.0,
        "optimizer.learning_rate": 0.165 * 1024 / 256,
        "optimizer.momentum": 0.9,
        "optimizer.weight_decay": 4e-5,
        "train.ema_decay": 0.995,
        "task.label_smoothing": 0.1,
    },
}


@each_row("name", SOURCED)
def test_recipe_has_the_numbers_of_its_source(name: str):
    config = load_config(ROOT / "configs" / f"{name}.py")
    assert {path: get(config, path) for path in SOURCED[name]} == SOURCED[name]


@each_row("path", RECIPES)
def test_recipe_says_how_to_run_it_and_what_to_expect(path: Path):
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert f"python main.py --config configs/{path.name}" in doc
    assert "Hardware" in doc and "Recipe" in doc
    told = ("accuracy",) if path in OF_CLASSES else ("Measured", "unmeasured")
    assert any(word in doc for word in told), "measured, or said to be unmeasured"
