"""Each kind of finding of the doctor: an error where a run ends, and only there."""

import dataclasses
import html
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

from jaxtrain.config import (
    AugmentConfig,
    Config,
    DataConfig,
    LoggingConfig,
    ModelConfig,
    OptimizerConfig,
    SoundConfig,
    TrainConfig,
    to_json,
)
from jaxtrain.data import loader, sources
from jaxtrain.data.doctor.check import check
from jaxtrain.data.doctor.report import ADVICE, ERRORS
from jaxtrain.errors import UserError
from jaxtrain.run import data_checks
from tests.helpers import waves
from tests.helpers.composed import compose
from tests.helpers.composed_boxes import coco_values, write_coco
from tests.helpers.images import encode, write_tfds
from tests.helpers.masked import SIDE, write_masks
from tests.helpers.messy import make_messy
from tests.helpers.processes import Cli
from tests.helpers.rows import each_row
from tests.helpers.zoo import make_zoo, read_report, texture

DOCS = Path(__file__).parents[2] / "docs" / "doctor.md"
OWN = '''
import numpy as np

from jaxtrain.data.stores import ArrayStore


def open_set(path):
    """Open arrays, whatever they hold; the last 12 examples are the test split."""
    with np.load(path) as saved:
        store = ArrayStore(saved["image"], saved["label"], FACTS)
    train, test = np.split(np.arange(len(store.images)), [-12])
    return store, {"train": [train], "test": [test]}
'''
MULTILABEL: dict[str, Any] = {"task": "multilabel"}
UNIT = {"mean": "0,0", "std": "1,1"}
Kinds = dict[str, str]


def run_config(source: str, *, task: str = "classification", **given: Any) -> Config:
    """Return the config of a tiny run; options of the task, the rest is of the data."""
    options = given.pop("options", {})
    data = {"validation_fraction": 0.0, "batch_size": 4, **given}
    return Config(
        task=task,
        task_options=options,
        data=DataConfig(source=source, **data),
        model=ModelConfig(name="convnet", width=0.125),
        optimizer=OptimizerConfig(learning_rate=0.1),
        train=TrainConfig(steps=1),
        logging=LoggingConfig(report=False, tensorboard=False),
    )


def own(label: Any, *, channels: int = 1, facts: Any = None, **given: Any) -> Any:
    """Return what makes a set of pictures with targets, by a source of the user's."""
    target = np.array(label)
    facts = {"num_classes": 3} if facts is None else facts

    def make(folder: Path) -> Config:
        pictures = [texture(i, 16)[..., :channels] for i in range(len(target))]
        np.savez(folder / "set.npz", image=np.stack(pictures), label=target)
        (folder / "own.py").write_text(OWN.replace("FACTS", repr(facts)))
        options = {"path": str(folder / "set.npz")}
        return run_config(f"{folder / 'own.py'}:open_set", options_=options, **given)

    return make


def columns(rows: np.ndarray, **given: Any) -> Any:
    names = tuple("abc"[: rows.shape[1]])
    return own(rows.astype(np.float32), facts={"target_names": names}, **given)


def zoo(folder: Path, **given: Any) -> Config:
    root = make_zoo(folder / "zoo").root
    return run_config(f"folder:{root}", **{"image_size": 16, **given})


def messy(folder: Path) -> Config:
    root = make_messy(folder / "birds", num=12).root
    held_out = {"test_fraction": 0.2, "max_bad_fraction": 0.1}
    return run_config(f"folder:{root}", image_size=16, **held_out)


def lost_class(folder: Path) -> Config:
    train = [(encode(texture(i, 16)), i % 2) for i in range(24)] + [(b"", 2)] * 2
    test = [(encode(texture(40 + i, 16)), i % 2) for i in range(12)]
    write_tfds(folder, {"train": train, "test": test}, (-1, -1, 3))
    allowed = {"max_bad_fraction": 0.5, "image_size": 16}
    return run_config("tfds:tiny", data_dir=str(folder), **allowed)


def boxes(folder: Path) -> Config:
    made = compose(24)
    write_coco(folder / "set", {"train": made})
    values = coco_values(made)
    values["categories"] += [{"id": 77, "name": "rare"}, {"id": 78, "name": "none"}]
    # In the corner, of 9 square pixels, of which the middle shows 0.
    box = {"image_id": 0, "category_id": 77, "bbox": [0, 0, 3, 3]}
    values["annotations"].append({**box, "id": 999})
    place = folder / "set" / "annotations" / "instances_train.json"
    place.write_text(json.dumps(values))
    # Neither so large a stride nor the default ones fit 16 pixels.
    given = {"image_size": 16, "test_fraction": 0.1, "options": {"strides": "8"}}
    return run_config(f"coco:{place}", task="detection", **given)


def masks(
    folder: Path, change: Callable[[Path], None], classes: str = "", **given: Any
) -> Config:
    root = write_masks(folder / "set", {"train": 24, "test": 12})
    with (root / "classes.txt").open("a") as file:
        file.write(classes)
    change(root / "masks")
    fields = {"channels": 1, "image_size": SIDE, **given}
    return run_config(f"masks:{root}", task="segmentation", **fields)


def unfit(folder: Path) -> None:
    for name in ("002.png", "003.png"):
        Image.new("L", (SIDE, SIDE), 77).save(folder / "train" / name)


def lacking(folder: Path) -> None:
    """Leave one pixel of the disc, and no square, to training."""
    for i, path in enumerate(sorted((folder / "train").iterdir())):
        mask = np.zeros((SIDE, SIDE), np.uint8)
        mask[0, 0] = i == 0
        Image.fromarray(mask).save(path)


def blank(folder: Path) -> None:
    for path in (folder / "train").iterdir():
        Image.new("L", (SIDE, SIDE)).save(path)


def sounds(folder: Path) -> Config:
    soundfile: Any = pytest.importorskip("soundfile")
    place = waves.write_tones(folder / "tones", num=10)
    tone = 0.3 * np.sin(0.05 * np.arange(3 * waves.RATE))
    added = {
        "silent": (np.zeros(waves.RATE // 4), waves.RATE),
        "clipped": (np.clip(10 * tone[: waves.RATE // 4], -1, 1), waves.RATE),
        "long": (tone, waves.RATE),
        "short": (tone[: waves.RATE // 20], waves.RATE),
        "other": (np.stack([tone, tone], 1)[: waves.RATE // 2], 2 * waves.RATE),
    }
    for name, (wave, rate) in added.items():
        soundfile.write(place / "train" / "low" / f"{name}.wav", wave, rate)
    sound = SoundConfig(
        sample_rate=waves.RATE, seconds=0.3, window=128, hop=64, mels=16
    )
    return run_config(f"audio:{place}", sound=sound)


def warnings(*kinds: str) -> Kinds:
    return dict.fromkeys(kinds, "warning")


def notes(*kinds: str) -> Kinds:
    return dict.fromkeys(kinds, "note")


def errors(*kinds: str) -> Kinds:
    return dict.fromkeys(kinds, "error")


EVEN = [0, 1, 2] * 12
PAIRS = np.array([[0, 1], [1, 0], [1, 1]] * 12)
NUMBERS = np.random.default_rng(0).normal(0, 1, (36, 2))
FAR = np.where(np.arange(72).reshape(36, 2) == 9, 1e4, NUMBERS)
HOLES = np.where(np.arange(72).reshape(36, 2) == 10, np.nan, NUMBERS)
SHAPED = notes("rotated", "alpha", "modes", "near") | warnings(
    *("extension", "animated", "aspect", "blank", "duplicates", "duplicates_leak"),
    *("duplicates_conflict", "near_leak"),
)
# What makes the set -> all that must be found, and nothing else that is an error.
ROWS: list[tuple[Callable[[Path], Config], Kinds]] = [
    (own(EVEN), {}),
    (own([*EVEN[:-1], -1]), warnings("labels_missing")),
    (own([*EVEN[:-12], *[-1] * 12]), errors("targets") | warnings("labels_missing")),
    (own([*EVEN[:-1], 3]), errors("targets") | warnings("labels_missing")),
    (own(np.array(EVEN)[:, None]), errors("targets")),
    (
        own([0] * 36, sampling="balanced"),
        errors("one_class", "sampling") | warnings("class_empty"),
    ),
    (
        own([0] * 22 + [1] * 2 + EVEN[:12]),
        warnings("class_few", "class_untrained", "imbalance"),
    ),
    (own(EVEN, mean=(0.5,) * 3, std=(0.5,) * 3), errors("channels")),
    (own(EVEN, augment=AugmentConfig(hue=0.1)), errors("augment")),
    (own(EVEN, batch_size=64), errors("split_sizes")),
    (columns(PAIRS), errors("task")),
    (columns(PAIRS, **MULTILABEL), {}),
    (columns(PAIRS * 2, **MULTILABEL), errors("targets")),
    (columns(PAIRS | 1, **MULTILABEL), errors("task") | warnings("label_constant")),
    (columns(2 * PAIRS - 1, **MULTILABEL), errors("task")),
    (columns(PAIRS * [[0, 1]] + (np.arange(36) == 0)[:, None] * [[1, 0]], **MULTILABEL),
     warnings("label_few")),
    (columns(NUMBERS * [0, 1], task="regression"),
     errors("task") | warnings("label_constant")),
    (columns(NUMBERS * [0, 1], task="regression", options=UNIT),
     warnings("label_constant")),
    (columns(FAR, task="regression"), warnings("numbers_far")),
    (columns(HOLES, task="regression"), notes("label_missing")),
    (columns(FAR * np.inf, task="regression"), errors("task")),
    (lost_class, errors("class_unreadable") | warnings("unreadable")),
    (partial(zoo, max_bad_fraction=0.2), SHAPED | warnings("unreadable")),
    (zoo, SHAPED | errors("unreadable")),
    (partial(zoo, max_bad_fraction=0.2, image_size=None), errors("sizes")),
    (messy, warnings("passed_over", "unreadable") | notes("nested")),
    (boxes, notes("classes_left_out")
     | warnings("boxes_lost", "boxes_unseen")),
    (partial(masks, change=unfit), errors("target_unfit")),
    (partial(masks, change=unfit, max_bad_fraction=0.1), warnings("target_unfit")),
    (partial(masks, change=lacking, classes="never\n"),
     warnings("pixels_untrained", "pixels_none") | notes("pixels_rare")),
    (partial(masks, change=blank), errors("one_class")),
    (sounds, notes("rates", "length_long", "length_short")
     | warnings("silent", "clipped")),
]  # fmt: skip
