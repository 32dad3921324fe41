"""`main.py evaluate`: what it tells is what the run told, and more."""

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from jaxtrain import load_model
from jaxtrain.config import Config, DataConfig
from jaxtrain.config.recipe import read_run
from jaxtrain.data import images, opening, sources
from jaxtrain.data.fit import Fit
from jaxtrain.errors import UserError
from jaxtrain.evaluation import calibration
from jaxtrain.inference import folder as folder_of_models, temperature
from jaxtrain.inference.model import TrainedModel
from jaxtrain.tools.evaluation import subject
from jaxtrain.tools.evaluation.predictions import predict_splits
from tests.helpers.described import describe
from tests.helpers.edited import edit
from tests.helpers.evaluations import evaluate, found
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_summary


@pytest.fixture(scope="module")
def folder(digits_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short run on the digits, `run`."""
    root = tmp_path_factory.mktemp("evaluate")
    shutil.copytree(digits_run, root / "run")
    return root


@pytest.fixture(scope="module")
def whole(folder: Path) -> dict[str, Any]:
    """The model on the test split, calibrated."""
    return found(folder, "--calibrate")


def test_the_metrics_are_those_of_the_run(folder: Path, whole: dict[str, Any]):
    assert whole["metrics"] == read_summary(folder / "run")["eval"]
    assert whole["run"]["step"] == read_summary(folder / "run")["model"]["step"] == 20
    data = {"source": "digits", "split": "test", "num_examples": 360}
    left_out = {"num_unreadable": 0, "absent_classes": [], "remarks": {}}
    assert whole["data"] == {**data, **left_out}


def test_a_model_without_a_run_takes_the_default_source_too(folder: Path):
    folder_of_models.write(load_model(folder / "run"), folder / "model")
    refused = evaluate(folder, "--workdir model")
    assert refused.code == 2 and "give --data.source" in refused.stderr
    # Its splits are those of the seed 0, as are the run's.
    told = found(folder, "--workdir model --data.source digits")
    expected = read_summary(folder / "run")["eval"]
    assert told["metrics"]["accuracy"] == expected["accuracy"]
    assert told["data"]["num_examples"] == expected["num_examples"]


def test_outputs_that_are_not_finite_have_no_metrics(folder: Path, tmp_path: Path):
    shutil.copytree(folder / "run", tmp_path / "run")
    # Pixels divided by it overflow in the first layer.
    edit(tmp_path / "run" / "model.json", std=[1e-38])
    result = evaluate(tmp_path)
    assert result.code == 5
    told = "the outputs of the model are not finite for 360 of 360 examples of the test"
    assert f"{told} split, such as example 0" in result.stderr
    assert not (tmp_path / "found.json").exists()


def test_intervals_are_about_the_metrics(whole: dict[str, Any]):
    intervals, metrics = whole["intervals"]["metrics"], whole["metrics"]
    assert set(intervals) == set(metrics) - {"confusion_matrix", "num_examples"}
    low, high = intervals["accuracy"]
    accuracy = metrics["accuracy"]
    # A normal distribution's, to a fifth: the binomial has 360 examples.
    reach = 1.96 * np.sqrt(accuracy * (1 - accuracy) / 360)
    np.testing.assert_allclose([accuracy - low, high - accuracy], reach, rtol=0.2)
    for pair, value in zip(intervals["recall"], metrics["recall"], strict=True):
        assert pair[0] <= value <= pair[1]


def test_a_temperature_is_fitted_and_kept(folder: Path, whole: dict[str, Any]):
    fitted, before = whole["temperature"], whole["calibration"]
    kept = json.loads((folder / "run" / temperature.TEMPERATURE).read_text())
    del kept["sha256"]
    assert {**kept, "calibration": fitted["calibration"]} == fitted
    assert temperature.read(folder / "run", whole["run"]) == kept["temperature"]
    assert kept["num_examples"] == 144 and kept["step"] == 20
    assert kept["nll_after"] < kept["nll_before"]
    # Fitted on one split, it helps another of the same digits.
    after = fitted["calibration"]
    name = "negative_log_likelihood"
    assert after[name] < before[name]
    np.testing.assert_allclose(before[name], whole["metrics"]["loss"], rtol=1e-6)


def test_the_examples_of_the_run_are_predicted(folder: Path, whole: dict[str, Any]):
    """As a check of the labels asks for it."""
    config = read_run(folder / "run")
    predicted = predict_splits(config, folder / "run")
    splits = sources.load(config.data, config.seed).named()
    assert {name: len(rows) for name, rows in predicted.items()} == {
        name: len(source) for name, source in splits.items()
    }
    for rows in predicted.values():
        np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-5)
    labels = splits["test"].targets(np.arange(len(splits["test"])))
    hits = predicted["test"].argmax(axis=1) == labels
    assert hits.mean() == pytest.approx(whole["metrics"]["accuracy"])


def described(class_names: tuple[str, ...], crop_pct: float = 0.875) -> TrainedModel:
    about = describe("lenet", (8, 8, 1), class_names=class_names, crop_pct=crop_pct)
    return TrainedModel(about, {}, {}, {})


NUMBERS = tuple(map(str, range(11)))
# As folders lie: 0, 1, 10, 2.
LETTERS = tuple(sorted(NUMBERS))
NAMES = tuple("abcdefghijk")


@each_row(
    ("known", "names", "fits"),
    [
        (NUMBERS, NUMBERS, True),
        (NUMBERS, None, True),
        (NUMBERS, NAMES, True),
        (NAMES, None, True),
        (NAMES, NAMES, True),
        (NAMES, NAMES[::-1], False),
        (NUMBERS, LETTERS, False),
        (LETTERS, None, False),
        (LETTERS, NUMBERS, False),
    ],
)
def test_classes_are_in_the_order_of_the_model(
    known: tuple[str, ...], names: tuple[str, ...] | None, fits: bool
):
    facts = {"num_classes": 11} | ({} if names is None else {"class_names": names})
    expected = (
        contextlib.nullcontext()
        if fits
        else pytest.raises(UserError, match=r"class [02] is")
    )
    with expected:
        subject.task_of_model(
            Config(), described(known), facts, DataConfig(source="idx:x")
        )


def test_images_of_something_else_get_their_size_as_the_others():
    """The whole square, where the run keeps it."""
    data = DataConfig(source="digits", image_size=8, crop_pct=1.0, batch_size=8)
    model = described(tuple("0123"), crop_pct=1.0)
    name = "synthetic:16x16x1/4/40"
    found = subject.open_other(name, model, data).read(np.arange(4))["image"]
    plain = DataConfig(source=name)
    store, splits = opening.open_store(plain)
    stored = sources.open_split(plain, store, splits, False, "test").read(np.arange(4))
    fit = Fit(centre_part=1.0)
    wanted = [images.centre_fit(image, 8, fit) for image in stored["image"]]
    np.testing.assert_array_equal(found, np.stack(wanted))


@pytest.mark.slow
def test_on_eight_devices_it_is_the_same(folder: Path, whole: dict[str, Any]):
    many = found(folder, JAX_NUM_CPU_DEVICES="8")
    # Batches of 104 are shared by 8: the sums are rounded in another order.
    for one, other in (
        (whole["metrics"], many["metrics"]),
        (whole["intervals"]["metrics"], many["intervals"]["metrics"]),
        (whole["calibration"], many["calibration"]),
    ):
        assert one.keys() == other.keys()
        assert flat(other) == pytest.approx(flat(one), rel=1e-5)


def flat(value: Any) -> list[float]:
    """Return the numbers of nested lists and dicts; -1 for None."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [x for v in value for x in flat(v)]
    return [-1.0 if value is None else value]


@pytest.mark.slow
def test_a_folder_of_images_is_evaluated_as_the_set(folder: Path):
    """The last 40 digits, as files, half of them of twice the size."""
    pixels, labels = load_digits(return_X_y=True)
    for i in range(1757, 1797):
        image = np.rint(pixels[i].reshape(8, 8) * (255 / 16)).astype(np.uint8)
        picture = Image.fromarray(image)
        if i % 2:
            picture = picture.resize((16, 16), Image.Resampling.NEAREST)
        path = folder / "photos" / str(labels[i]) / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path)
    result = found(
        folder, "--data.source folder:photos --split all --data.crop_pct 0.875"
    )
    assert result["data"]["num_examples"] == 40
    assert result["run"]["step"] in (10, 20, 30)
    assert result["metrics"]["accuracy"] > 0.5
    shutil.rmtree(folder / "photos" / "9")
    nine = evaluate(folder, "--data.source folder:photos --split all")
    assert "folder:photos lacks 1 class of the model: 9" in nine.stdout
    fewer = json.loads((folder / "found.json").read_text())
    assert fewer["data"]["missing_classes"] == ["9"]
    before, after = (one["metrics"]["recall"] for one in (result, fewer))
    assert after[:9] == before[:9] and after[9] is None
    (folder / "photos" / "8").rename(folder / "photos" / "eight")
    (folder / "photos" / "nine").mkdir()
    shutil.copy(next((folder / "photos" / "eight").iterdir()), folder / "photos/nine")
    with mock.patch.object(calibration, "scores", wraps=calibration.scores) as scores:
        renamed = found(folder, "--data.source folder:photos --split all")
    assert scores.call_count == 1  # One program is traced.
    # The digits have no names: nothing tells them from those of the folder.
    assert renamed["metrics"]["num_examples"] > 30


@each_row(
    ("words", "message"),
    [
        ("--calibrate --split validation", "so metrics on this split would be biased"),
        ("--tta ten_crop", "images are not resized, so the centre crop covers"),
        ("--data.batch-size 32", "data.batch_size = 32 has no effect on an evaluation"),
        ("--data.source synthetic:8x8x1/4", "has 4 classes, but the model has 10"),
        (
            "--data.validation-fraction 0",
            "the evaluated split of digits would contain ",
        ),
        ("--data.test-fraction 0.5", "would contain training images: leave data."),
        (
            "--data.source synthetic:8x8x1/10 --split validation "
            "--data.validation-fraction 0",
            "but no validation split",
        ),
        ("--out nowhere/found.json", "cannot write in nowhere (No such file or"),
        ("--checkpoint ²", "expected best, latest or one of the steps 10, 20, 30"),
    ],
)
def test_what_does_not_go_together_is_refused(folder: Path, words: str, message: str):
    result = evaluate(folder, words)
    assert result.code == 2, result.stderr
    assert message in result.stderr


@pytest.mark.slow
def test_a_run_that_averages_views_is_evaluated_with_them(tmp_path: Path):
    """Its metrics are those of the mean of the probabilities of both sides."""
    config = write_recipe(
        tmp_path / "recipe.py",
        recipe(
            train='TrainConfig(steps=20, tta="flip")',
            logging="LoggingConfig(every_steps=20, tensorboard=False)",
        ),
    )
    assert Cli(tmp_path)("--config", config, "--workdir", "run").code == 0
    summary = read_summary(tmp_path / "run")
    both, one = found(tmp_path), found(tmp_path, "--tta plain")
    assert (both["tta"], one["tta"]) == ("flip", None)
    assert both["metrics"] == summary["eval"] != one["metrics"]
    run = read_run(tmp_path / "run")
    source = sources.load(run.data, run.seed).test
    numbers = np.arange(len(source))
    pixels, labels = source.read(numbers)["image"], source.targets(numbers)
    model = load_model(tmp_path / "run")
    sides = [model.predict(pixels), model.predict(pixels[:, :, ::-1])]
    for result, probabilities in ((both, np.mean(sides, 0)), (one, sides[0])):
        loss = -np.log(probabilities[numbers, labels]).mean()
        np.testing.assert_allclose(result["metrics"]["loss"], loss, rtol=1e-5)
        accuracy = (probabilities.argmax(1) == labels).mean()
        assert result["metrics"]["accuracy"] == pytest.approx(accuracy, abs=1e-9)


@pytest.mark.slow
def test_a_task_without_classes_has_its_own_metrics(tmp_path: Path):
    task = "tests.helpers.autoencoder:AutoEncoder"
    config = write_recipe(
        tmp_path / "recipe.py",
        recipe(task=f"CustomConfig(name={task!r})", train="TrainConfig(steps=10)"),
    )
    assert Cli(tmp_path)("--config", config, "--workdir", "run").code == 0
    result = found(tmp_path, "--trust")
    assert result["metrics"] == read_summary(tmp_path / "run")["eval"]
    assert result["calibration"] is None and result["class_names"] is None
    low, high = result["intervals"]["metrics"]["rmse"]
    assert low < result["metrics"]["rmse"] < high
    for words in ("--calibrate", "--tta flip"):
        refused = evaluate(tmp_path, f"{words} --trust")
        assert refused.code == 2
        assert f"{words}: task = '{task}' does not predict" in refused.stderr


@pytest.mark.slow
def test_crops_are_cut_from_larger_images(tmp_path: Path):
    """The centre is what the model is shown otherwise."""
    config = write_recipe(
        tmp_path / "recipe.py",
        recipe(
            data='DataConfig(source="synthetic:20x20x1/4/96", batch_size=16, '
            "image_size=14)",
            train="TrainConfig(steps=30)",
        ),
    )
    assert Cli(tmp_path)("--config", config, "--workdir", "run").code == 0
    plain = found(tmp_path)["metrics"]["accuracy"]
    result = found(tmp_path, "--tta ten_crop")
    assert result["tta"] == "ten_crop"
    assert abs(result["metrics"]["accuracy"] - plain) < 0.3
