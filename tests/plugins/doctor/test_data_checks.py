"""Each kind of finding of the doctor: an error where a run ends, and only there."""

import html
import json
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
    ConvNetConfig,
    DataConfig,
    LoggingConfig,
    SGDConfig,
    SoundConfig,
    TrainConfig,
    to_json,
)
from jaxtrain.config.part import TASKS, make_part
from jaxtrain.data import sources
from jaxtrain.data.datasets import make_datasets
from jaxtrain.data.exif import ORIENTATION
from jaxtrain.errors import UserError
from jaxtrain.plugins.doctor.check import check
from jaxtrain.plugins.doctor.report import ADVICE, ERRORS, OTHER, Finding
from jaxtrain.problems import ProblemList
from jaxtrain.trainer import data_checks
from tests.helpers import waves
from tests.helpers.any_set import SOURCE, write_set
from tests.helpers.composed import compose
from tests.helpers.composed_boxes import coco_values, write_coco
from tests.helpers.deep_images import png, tiff
from tests.helpers.images import encode, write_tfds
from tests.helpers.masked import SIDE, write_masks
from tests.helpers.messy import make_messy
from tests.helpers.processes import Cli
from tests.helpers.rows import each_row
from tests.helpers.zoo import make_zoo, read_report, texture

DOCS = Path(__file__).parents[3] / "docs" / "doctor.md"
MULTILABEL: dict[str, Any] = {"task": "multilabel"}
UNIT = {"mean": "0,0", "std": "1,1"}
Kinds = dict[str, str]


def run_config(source: str, *, task: str = "classification", **given: Any) -> Config:
    """Return the config of a tiny run; options of the task, the rest is of the data."""
    options = given.pop("task_options", {})
    data: dict[str, Any] = {"validation_fraction": 0.0, "batch_size": 4, **given}
    return Config(
        task=make_part(TASKS, task, options),
        data=DataConfig(source=source, **data),
        model=ConvNetConfig(name="convnet", width=0.125),
        optimizer=SGDConfig(learning_rate=0.1),
        train=TrainConfig(steps=1),
        logging=LoggingConfig(report=False, tensorboard=False),
    )


def own_set(label: Any, *, near: bool = False, facts: Any = None, **given: Any) -> Any:
    """Return what makes a set of grey pictures, by a source of the user's own."""
    target = np.array(label)
    facts = {"num_classes": 3} if facts is None else facts

    def make(folder: Path) -> Config:
        options = {"path": write_set(folder, target, facts, near=near)}
        return run_config(SOURCE, options=options, **given)

    return make


def columns(rows: np.ndarray, **given: Any) -> Any:
    names = tuple("abc"[: rows.shape[1]])
    return own_set(rows.astype(np.float32), facts={"target_names": names}, **given)


def zoo(folder: Path, **given: Any) -> Config:
    root = make_zoo(folder / "zoo").root
    fields: dict[str, Any] = {"image_size": 16, **given}
    return run_config(f"folder:{root}", **fields)


def messy(folder: Path) -> Config:
    root = make_messy(folder / "birds", num=12).root
    source, size = f"folder:{root}", 16
    return run_config(source, image_size=size, test_fraction=0.2, max_bad_fraction=0.1)


def deep(folder: Path) -> Config:
    grey = np.random.default_rng(0).integers(0, 4096, (16, 80, 1), np.uint16)
    bands = np.random.default_rng(1).integers(0, 256, (16, 80, 5), np.uint8)
    for i in range(20):
        place = folder / "deep" / "ab"[i // 10]
        place.mkdir(parents=True, exist_ok=True)
        data = png(grey + i) if i % 2 else tiff(bands + i, 2)
        (place / f"{i}.{'png' if i % 2 else 'tif'}").write_bytes(data)
    return run_config(f"folder:{folder / 'deep'}", image_size=16, test_fraction=0.2)


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
    values["annotations"][1]["bbox"] = [1, 2, 0, 4]
    values["annotations"][2]["bbox"] = [4, 5, 900, 900]
    values["images"][3]["file_name"] = "nowhere.png"
    path = next((folder / "set").rglob(values["images"][4]["file_name"]))
    with Image.open(path) as image:
        exif = image.getexif()
        exif[ORIENTATION] = 3
        image.save(path, exif=exif)
    place = folder / "set" / "annotations" / "instances_train.json"
    place.write_text(json.dumps(values))
    # Neither so large a stride nor the default ones fit 16 pixels.
    given = {"image_size": 16, "test_fraction": 0.1, "task_options": {"strides": "4,8"}}
    given["max_bad_fraction"] = 0.1
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
FAR = np.where(np.arange(72).reshape(36, 2) == 65, 1e4, NUMBERS)
HOLES = np.where(np.arange(72).reshape(36, 2) == 10, np.nan, NUMBERS)
SHAPED = notes("rotated", "alpha", "modes", "near") | warnings(
    *("extension", "animated", "aspect", "blank", "duplicates", "duplicates_leak"),
    *("duplicates_conflict", "near_leak"),
)
# What makes the set -> all that must be found, and nothing else that is an error.
ROWS: list[tuple[Callable[[Path], Config], Kinds]] = [
    (own_set(EVEN), {}),
    (own_set(EVEN, near=True), warnings("near_conflict")),
    (own_set([*EVEN[:-1], -1]), warnings("labels_missing")),
    (
        own_set([*EVEN[:-12], *[-1] * 12]),
        errors("targets") | warnings("labels_missing"),
    ),
    (own_set([*EVEN[:-1], 3]), errors("targets") | warnings("labels_missing")),
    (own_set(np.array(EVEN)[:, None]), errors("targets")),
    (
        own_set([0] * 36, sampling="balanced"),
        errors("one_class", "sampling") | warnings("class_empty"),
    ),
    (
        own_set([0] * 22 + [1] * 2 + EVEN[:12]),
        warnings("class_few", "class_untrained", "imbalance"),
    ),
    (own_set(EVEN, mean=(0.5,) * 3, std=(0.5,) * 3), errors("channels")),
    (own_set(EVEN, augment=AugmentConfig(hue=0.1)), errors("augment")),
    (own_set(EVEN, batch_size=64), errors("split_sizes")),
    (columns(PAIRS), errors("task")),
    (columns(PAIRS, **MULTILABEL), {}),
    (columns(PAIRS * 2, **MULTILABEL), errors("targets")),
    (columns(PAIRS | 1, **MULTILABEL), errors("task") | warnings("label_constant")),
    (
        columns(2 * PAIRS - 1, **MULTILABEL),
        errors("task") | warnings("label_constant") | notes("label_missing"),
    ),
    (
        columns(
            PAIRS * [[0, 1]] + (np.arange(36) == 0)[:, None] * [[1, 0]], **MULTILABEL
        ),
        warnings("label_few"),
    ),
    (
        columns(NUMBERS * [0, 1], task="regression"),
        errors("task") | warnings("label_constant"),
    ),
    (
        columns(NUMBERS * [0, 1], task="regression", task_options=UNIT),
        warnings("label_constant"),
    ),
    (columns(FAR, task="regression"), warnings("numbers_far")),
    (columns(HOLES, task="regression"), notes("label_missing")),
    (columns(FAR * np.inf, task="regression"), errors("task")),
    (partial(masks, change=unfit), errors("target_unfit")),
    (partial(masks, change=unfit, max_bad_fraction=0.1), warnings("target_unfit")),
    (
        partial(masks, change=lacking, classes="never\n"),
        warnings("pixels_untrained", "pixels_none") | notes("pixels_rare"),
    ),
    (partial(masks, change=blank), errors("one_class")),
]
# The same of files that take longer.
FILES: list[tuple[Callable[[Path], Config], Kinds]] = [
    (lost_class, errors("class_unreadable") | warnings("unreadable")),
    (partial(zoo, max_bad_fraction=0.2), SHAPED | warnings("unreadable")),
    (zoo, SHAPED | errors("unreadable")),
    (partial(zoo, max_bad_fraction=0.2, image_size=None), errors("sizes")),
    (deep, warnings("grey_levels", "bands", "cut_away")),
    (messy, warnings("passed_over", "unreadable", "nested")),
    (
        boxes,
        notes("classes_left_out")
        | warnings("boxes_lost", "boxes_unseen", "boxes_few", "rotated_targets")
        | warnings("boxes_left_out", "boxes_clipped", "images_left_out"),
    ),
    (
        sounds,
        notes("rates", "length_long", "length_short") | warnings("silent", "clipped"),
    ),
]
LISTED = {*data_checks.CHECKS, data_checks.TASK}
SURE = "wrong_labels", "in_sample"


def fate(config: Config) -> str | None:
    """Return why a run would end before its first step is done; None: it trains."""
    try:
        splits = sources.load(config.data, config.seed)
        task = data_checks.task_of_data(config, splits)
        problems = ProblemList()
        for find in data_checks.CHECKS.values():
            problems.check(find, config, splits, task)
        problems.stop()
        mesh = jax.make_mesh((1,), ("data",))
        make_datasets(splits, mesh, True, config.data.max_bad_fraction)
    except UserError as error:
        return str(error)
    return None


def diagnose(config: Config, folder: Path, **given: Any) -> list[dict[str, Any]]:
    """Return the findings of the doctor, all of which the page shows."""
    check(config, folder, sized=True, judge=data_checks.judge, **given)
    report = read_report(folder)
    page = html.unescape((folder / "data_report.html").read_text())
    for finding in report["findings"]:
        assert finding["title"] in page and finding["advice"] in page, finding["kind"]
    assert ("Not ready" in page) == (not report["ok"])
    return report["findings"]


def check_agreement(config: Config, tmp_path: Path, kinds: Kinds) -> None:
    findings, reason = diagnose(config, tmp_path / "out"), fate(config)
    levels = {finding["kind"]: finding["level"] for finding in findings}
    assert kinds.items() <= levels.items(), levels
    wrong = [finding for finding in findings if finding["level"] == "error"]
    assert {one["kind"] for one in wrong} == {k for k in kinds if kinds[k] == "error"}
    assert (reason is None) == (not wrong), reason
    # What a list of functions finds is told in the words of the run.
    told = [one["title"] for one in wrong if one["kind"] in LISTED]
    assert not told or all(text in (reason or "") for text in told)


@each_row(("make", "kinds"), ROWS)
def test_the_doctor_and_a_run_agree(
    tmp_path: Path, make: Callable[[Path], Config], kinds: Kinds
):
    check_agreement(make(tmp_path), tmp_path, kinds)


@pytest.mark.slow
@each_row(("make", "kinds"), FILES)
def test_the_doctor_and_a_run_agree_on_files(
    tmp_path: Path, make: Callable[[Path], Config], kinds: Kinds
):
    check_agreement(make(tmp_path), tmp_path, kinds)


@pytest.mark.slow
@each_row(
    ("make", "code"),
    [
        (own_set([0] * 36), 2),
        (columns(NUMBERS * [0, 1], task="regression", task_options=UNIT), 0),
        (lost_class, 2),
        (partial(zoo, max_bad_fraction=0.2), 0),
    ],
)
def test_a_whole_run_agrees(tmp_path: Path, make: Callable[[Path], Config], code: int):
    text = to_json(make(tmp_path))
    recipe = f"from jaxtrain.config import from_json\n\nTEXT = {text!r}\n\n\n"
    recipe += "def get_config():\n    return from_json(TEXT)\n"
    (tmp_path / "recipe.py").write_text(recipe)
    for words in (["data", "--check"], ["--workdir", "run"]):
        result = Cli(tmp_path)(*words, "--config", "recipe.py")
        assert result.code == code, (words, result.stderr)


def test_a_trained_model_that_is_sure_of_another_class(tmp_path: Path):
    config = own_set(EVEN)(tmp_path)
    sure = {"train": np.eye(3)[EVEN[:-12]], "test": np.eye(3)[EVEN[-12:]]}
    for probabilities in sure.values():
        probabilities[0] = [0, 1, 0]
    findings = diagnose(config, tmp_path / "out", predicted=sure)
    levels = {one["kind"]: one["level"] for one in findings}
    assert levels == warnings("class_few", *SURE)


def test_all_kinds_are_in_the_table_and_in_the_docs():
    rows = {kind for _, kinds in ROWS + FILES for kind in kinds}
    assert rows | {*SURE} == ADVICE.keys()
    erring = {
        kind for _, kinds in ROWS + FILES for kind in kinds if kinds[kind] == "error"
    }
    assert erring == ERRORS
    documented = {}
    for line in DOCS.read_text().splitlines():
        if line.startswith("| `") and len(cells := line.split(" | ")) == 3:
            for kind in cells[0].strip("| `").split("`, `"):
                documented[kind] = "error" in cells[1]
    assert documented == {kind: kind in ERRORS for kind in ADVICE}
    # Sources may remark on anything.
    assert Finding("odd_files", "warning", "odd files: x").advice == OTHER
