"""The schema: what it refuses, how it is read back, what a resumed run may change."""

from typing import Any

import pytest

from jaxtrain import config as config_lib
from jaxtrain.config import (
    AdamWConfig,
    AugmentConfig,
    ClassificationConfig,
    Config,
    DataConfig,
    ParallelConfig,
    ResNetConfig,
    SGDConfig,
    StepSchedule,
    TrainConfig,
)
from jaxtrain.config.metadata import with_metadata
from jaxtrain.errors import UserError
from tests.helpers.rows import each_row


def test_config_survives_json():
    config = Config(
        seed=3,
        data=DataConfig(mean=(0.5,), std=(0.25,), augment=AugmentConfig(cutout_size=2)),
        model=ResNetConfig(name="resnet18", stem="cifar"),
        optimizer=AdamWConfig(b2=0.99, schedule=StepSchedule(milestones=(0.25, 0.5))),
        train=TrainConfig(steps=7),
    )
    assert config_lib.from_json(config_lib.to_json(config)) == config


@each_row("text", ["{", '{"data": {"sauce": "digits"}}', "[1]"])
def test_json_that_is_no_config_is_refused(text: str):
    with pytest.raises(UserError):
        config_lib.from_json(text)


@each_row(
    ("make", "named"),
    [
        (lambda: SGDConfig(learning_rate="0.1"), "learning_rate = '0.1'"),  # pyright: ignore
        (lambda: SGDConfig(momentum=1.0), "momentum = 1.0"),
        (lambda: StepSchedule(milestones=(0.5, 0.2)), "milestones"),
        (lambda: ResNetConfig(stem="big"), "stem = 'big'"),  # pyright: ignore
        (lambda: DataConfig(batch_size=0), "batch_size = 0"),
        (lambda: DataConfig(batch_size=1.5), "batch_size = 1.5"),  # pyright: ignore
        (lambda: DataConfig(channels=2), "channels = 2"),
        (lambda: DataConfig(mean=(0.5,)), "data.mean and data.std"),
        (lambda: DataConfig(mean=(0.5, 123.7), std=(1.0,)), "divided by 255"),
        (lambda: DataConfig(mean=(0.5, "x"), std=(1.0,)), "mean = (0.5, 'x')"),  # pyright: ignore
        (lambda: StepSchedule(factor=10.0), "factor = 10.0"),
        (lambda: StepSchedule(milestones=(0.5,), every=0.1), "both set the drops"),
        (
            lambda: ParallelConfig(batch_norm=True),  # pyright: ignore
            "batch_norm = True: expected one of global or int",
        ),
        (lambda: TrainConfig(step_timeout_seconds=1e9), "31536000 seconds"),
        (lambda: TrainConfig(epochs=float("inf")), "epochs = inf: expected a finite"),
        (
            lambda: TrainConfig(steps=10**5000),
            "expected a number of at most 2147483647",
        ),
        (lambda: TrainConfig(), "train.epochs or train.steps"),
        (lambda: TrainConfig(steps=0), "steps = 0"),
        (lambda: ClassificationConfig(label_smoothing=1.0), "label_smoothing"),
        (lambda: Config(seed=2**32), "seed = 4294967296"),
        (
            lambda: Config(train=TrainConfig(epochs=1, steps=2)),
            "train.epochs = 1 and train.steps = 2",
        ),
        (
            lambda: Config(
                data=DataConfig(batch_size=10),
                train=TrainConfig(steps=1, accumulate_steps=3),
            ),
            "data.batch_size = 10 is not divisible by train.accumulate_steps = 3",
        ),
    ],
)
def test_bad_value_is_refused_by_name(make, named: str):
    with pytest.raises(UserError) as error:
        make()
    assert named in str(error.value)


def test_largest_counts_hold():
    Config(seed=2**32 - 1)
    TrainConfig(steps=2**31 - 1)


def test_one_of_names_existing_fields():
    known = set(config_lib.paths())
    for group in config_lib.ONE_OF.values():
        assert set(group) <= known


def test_metadata_of_a_section_is_that_of_its_fields():
    may_change = with_metadata(Config, "may_change_on_resume")
    assert may_change["logging.every_steps"] is True
    assert may_change["data.source"] == "same data"
    assert "optimizer.learning_rate" not in may_change
    assert may_change.keys() <= set(config_lib.paths())


def test_differences_are_those_that_change_training():
    old = Config(train=TrainConfig(epochs=1))
    longer = config_lib.replace(old, "train.epochs", 5)
    longer = config_lib.replace(longer, "logging.every_steps", 3)
    longer = config_lib.replace(longer, "data.workers", 2)
    assert config_lib.differences(old, longer) == []
    other = config_lib.replace(longer, "optimizer.weight_decay", 0.5)
    other = config_lib.replace(other, "data.augment.cutout_size", 4)
    assert config_lib.differences(old, other) == [
        "data.augment.cutout_size: 0 -> 4",
        "optimizer.weight_decay: 0.0 -> 0.5",
    ]


@each_row(
    ("options", "told"),
    [
        ({"label_smoothing": 1.0}, "label_smoothing = 1.0: expected 0 <= value < 1"),
        ({"class_weights": "a,b"}, "class_weights = 'a,b': expected one of balanced"),
        ({"target_threshold": 0.2}, "no effect with task.loss = 'cross_entropy'"),
    ],
)
def test_a_wrong_option_of_classification_is_refused(
    options: dict[str, Any], told: str
):
    with pytest.raises(UserError, match=told):
        ClassificationConfig(**options)
