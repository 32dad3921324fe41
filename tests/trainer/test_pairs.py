"""Pairs of options whose rules lie beyond the config: each works, or says why not.

`tests/config/test_combinations.py` tries the pairs that the config itself refuses.
"""

from pathlib import Path

import pytest

from tests.helpers.composed import compose
from tests.helpers.composed_boxes import write_coco
from tests.helpers.masked import write_masks
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_summary
from tests.helpers.tiers import thinned

SHORT = {
    "optimizer": "AdamConfig(learning_rate=0.01)",
    "train": "TrainConfig(steps=2)",
    "logging": "LoggingConfig(every_steps=1, tensorboard=False)",
}
CLASSES = recipe(
    task="EmbeddingConfig()",
    data='DataConfig(source="digits", batch_size=16, hold_out="classes")',
    **SHORT,
)
MASKS = recipe(
    task="SegmentationConfig()",
    data='DataConfig(source="masks:set", channels=1, image_size=32, batch_size=8)',
    model='UNetConfig(backbone="convnet", width=0.125)',
    **SHORT,
)
WINDOWS = MASKS.replace(
    "batch_size=8",
    "batch_size=8, sliding_size=40, augment=AugmentConfig(scale_jitter=(0.5, 2.0))",
)
STRIDES = MASKS.replace(
    'UNetConfig(backbone="convnet"',
    'DeepLabConfig(name="fcn_resnet50", backbone="resnet18", output_stride=16',
)
BOXES = recipe(
    task="DetectionConfig(strides=(4, 8))",
    data='DataConfig(source="coco:boxes/annotations/instances_train.json", '
    'image_size=32, batch_size=8, images_dir="boxes/train", max_boxes=60)',
    model='FCOSConfig(backbone="convnet", width=0.125, '
    "pyramid_channels=8, head_layers=1)",
    **SHORT,
)
RECIPES = {
    "classes": CLASSES,
    "masks": MASKS,
    "windows": WINDOWS,
    "strides": STRIDES,
    "boxes": BOXES,
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recipes and their images."""
    folder = tmp_path_factory.mktemp("pairs")
    write_masks(folder / "set", {"train": 40, "test": 6}, side=40)
    write_coco(folder / "boxes", {"train": compose(32)})
    for name, text in RECIPES.items():
        write_recipe(folder / f"{name}.py", text)
    return folder


@pytest.mark.slow
@each_row(
    ("name", "words", "told"),
    [
        ("classes", "--task classification", "cannot predict classes"),
        ("classes", "--data.allow-overlap True", "has no effect: the splits share no"),
        (
            "classes",
            "--data.test-split test[:50%] --data.validation-split test[50%:]",
            "data.hold_out = 'classes' has no effect",
        ),
        ("masks", "--data.hold-out classes", "requires one class per image"),
        ("masks", "--model.backbone vgg11 --model.stem cifar", "model.stem = 'cifar'"),
        ("masks", "--model.norm-epsilon 0.1", "has no effect on model.backbone"),
        ("masks", "--model.output-stride 8", "is an option of deeplabv3_resnet50"),
        ("masks", "--model convnet", "as the task requires"),
        ("strides", "--model.backbone vgg11", "does not support dilation"),
        ("strides", "--model.stem cifar", "output_stride = 16 has no effect"),
        ("boxes", "--data.max-boxes 1", "data.max_boxes = 1"),
        (
            "boxes",
            "--data.sliding-size 64 --data.augment.scale-jitter 0.5 2",
            "each pixel",
        ),
        ("boxes", "--model.output-stride 16", "is an option of deeplabv3_resnet50"),
        ("windows", "--train.tta flip", "tta"),
        ("windows", "--data.augment.augmix 1", "geometric transforms"),
        ("windows", "--data.progressive-sizes 16 32", "2 sizes need"),
    ],
)
def test_a_pair_is_refused(here: Path, name: str, words: str, told: str):
    result = Cli(here)(*f"--config {name}.py --workdir x {words}".split())
    assert result.code == 2, result.stdout
    assert told in result.stderr, result.stderr
    assert not [*(here / "x").glob("checkpoints/[0-9]*")]


# Several pairs a run: each option of a row goes with the others.
WORKING = [
    (
        "classes",
        "--data.sampling balanced --data.repeats 2 --data.train-split train[:90%] "
        "--data.augment.horizontal-flip True --train.ema-decay 0.9",
    ),
    ("classes", "--data.cache stream --data.validation-fraction 0"),
    ("classes", "--data.test-split test[:50%]"),
    (
        "masks",
        "--data.classes set/classes.txt --data.allow-outside True --data.cache stream "
        "--train.accumulate-steps 2 --task.class-weights balanced --task.loss focal",
    ),
    (
        "masks",
        "--data.train-image-size 16 --train.freeze backbone --train.freeze-epochs 0.1",
    ),
    ("masks", "--optimizer.layer-decay 0.8 --train.remat block"),
    (
        "windows",
        "--data.train-image-size 16 --data.repeats 2 --data.crop-mode border "
        "--data.augment.cutmix 1 --data.augment.rotation 10 --precision bf16 "
        "--train.ema-decay 0.9",
    ),
    ("windows", "--data.progressive-sizes 16 32 --train.steps 12"),
    (
        "windows",
        "--data.crop-pct 0.5 --data.workers 1 --data.interpolation bicubic "
        "--train.accumulate-steps 2",
    ),
    (
        "boxes",
        "--data.augment.scale-jitter 0.3 1.5 --data.crop-mode border "
        "--data.augment.horizontal-flip True --data.cache stream",
    ),
    ("boxes", "--train.freeze backbone --data.allow-outside True"),
    ("strides", "--train.freeze backbone --model.aux-weight 0"),
    (
        "strides",
        "--data.train-image-size 16 --train.remat block --model.drop-path 0.1",
    ),
    (
        "windows",
        "--model.backbone whitened_cnn_small "
        "--task.class-weights balanced --task.loss focal",
    ),
    ("masks", "--model.backbone mobilenet_v2 --model.norm-epsilon 0.01"),
    ("classes", "--data.validation-split test --data.test-fraction 0.3"),
]


@pytest.mark.parametrize(("name", "words"), thinned(3, WORKING))
def test_a_pair_works(here: Path, tmp_path: Path, name: str, words: str):
    run = tmp_path / "run"
    Cli(here).done("--config", f"{name}.py", "--workdir", run, *words.split())
    assert read_summary(run)["eval"]["num_examples"] > 0
