"""Classes of pixels through the command line: a folder of images and masks."""

import base64
import io
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxtrain import load_model
from jaxtrain.config.recipe import load_config
from jaxtrain.data.pixel_classes import IGNORED
from jaxtrain.plugins.plan import estimate
from jaxtrain.weights import trust
from tests.helpers.masked import NAMES, SIDE, mask_recipe, shapes, write_masks
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli
from tests.helpers.recipes import write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.words import quoted
from tests.plugins.serve.running import LIMITS, Running

SPLITS = {"train": 72, "test": 24}
# On 8 devices.
MESH = "--parallel.preset data_parallel --parallel.spatial 2"


def train(folder: Path, words: str = "", **env: str) -> None:
    Cli(folder).done(*shlex.split(f"--config recipe.py --workdir run {words}"), **env)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that has learnt the shapes."""
    folder = tmp_path_factory.mktemp("masked")
    write_masks(folder / "set", SPLITS)
    augment = "augment=AugmentConfig(crop_padding=2, horizontal_flip=True)"
    text = mask_recipe(data=augment, options='loss="cross_entropy_dice"')
    write_recipe(folder / "recipe.py", text)
    train(folder, "--train.steps 60 --checkpoint.every-steps 60")
    return folder


def trusted(folder: Path) -> Path:
    """Return the run, whose own model may be loaded in this process."""
    trust.trust(folder / "run")
    return folder / "run"


@pytest.mark.slow
def test_a_run_learns_and_is_told(here: Path):
    lines, test = read_lines(here / "run", "train"), read_summary(here / "run")["eval"]
    assert lines[-1]["loss"] < lines[0]["loss"] and "pixel_accuracy" in lines[0]
    assert test["mean_iou"] > 0.5
    np.testing.assert_allclose(test["mean_iou"], np.mean(test["iou"]))
    assert np.sum(test["confusion_matrix"]) == 24 * SIDE**2
    summary = read_summary(here / "run")
    assert summary["best"]["metric"] == "mean_iou"
    about = json.loads((here / "run" / "model.json").read_text())
    assert about["output_spec"] == [SIDE, SIDE, 3]
    assert about["class_names"] == list(NAMES)


@pytest.mark.slow
def test_an_evaluation_has_intervals(here: Path):
    result = Cli(here).done("evaluate", "--workdir", "run", "--trust")
    assert "lowest IoU" in result.stdout
    found = json.loads((here / "run" / "evaluation.json").read_text())
    low, high = found["intervals"]["metrics"]["mean_iou"]
    value = found["metrics"]["mean_iou"]
    assert low < value < high
    np.testing.assert_allclose(value, read_summary(here / "run")["eval"]["mean_iou"])


@pytest.mark.slow
def test_masks_are_predicted_in_the_size_of_each_image(here: Path, tmp_path: Path):
    images, _ = shapes(4, seed=9)
    for i, image in enumerate(images):
        picture = Image.fromarray(image)
        picture = picture if i < 3 else picture.resize((40, 20), Image.Resampling.BOX)
        picture.save(tmp_path / f"{i}.png")
    words = f"predict --workdir run --trust --masks {quoted(tmp_path)}/masks"
    Cli(here).done(
        *shlex.split(f"{words} --out {quoted(tmp_path)}/out.jsonl {quoted(tmp_path)}")
    )
    model = load_model(trusted(here))
    found = model.masks(images[..., None])
    rows = [json.loads(x) for x in (tmp_path / "out.jsonl").read_text().splitlines()]
    for i, row in enumerate(rows[:3]):
        picture = Image.open(tmp_path / "masks" / f"{i}.png.png")
        assert picture.mode == "P"
        np.testing.assert_array_equal(np.asarray(picture), found[i])
        shares = [row[f"share_{name}"] for name in NAMES]
        np.testing.assert_allclose(
            shares, np.bincount(found[i].ravel(), minlength=3) / 256
        )
    # Of a wide image the model sees the square in the middle.
    wide = np.asarray(Image.open(tmp_path / "masks" / "3.png.png"))
    assert wide.shape == (20, 40)
    assert (wide[:, :10] == IGNORED).all() and (wide[:, 30:] == IGNORED).all()
    assert (wide[:, 10:30] < 3).all()
    overlay = np.asarray(Image.open(tmp_path / "masks" / "3.png.overlay.png"))
    assert overlay.shape == (20, 40, 3)
    result = Cli(here)(
        "predict", "--workdir", "run", "--trust", str(tmp_path / "0.png")
    )
    assert "share_square" in result.stdout


@pytest.mark.slow
def test_an_export_puts_out_maps(here: Path):
    pytest.importorskip("onnxruntime")
    images = shapes(4, seed=9)[0][..., None]
    for more, name in (
        ("", "mask_logits"),
        ("--include-preprocessing", "probabilities"),
    ):
        file = here / f"{name}.onnx"
        words = (
            f"export --workdir run --trust --format onnx --out {quoted(file)} {more}"
        )
        Cli(here).done(*shlex.split(words))
        import onnxruntime

        session = onnxruntime.InferenceSession(file)
        (output,) = session.get_outputs()
        assert output.name == name and output.shape[1:] == [SIDE, SIDE, 3]
    model = load_model(trusted(here))
    ours = np.asarray(session.run(None, {"images": images})[0])
    np.testing.assert_allclose(ours, model.predict(images), rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_a_server_answers_with_a_mask(here: Path):
    model = load_model(trusted(here))
    file = here / "set" / "images" / "test" / "003.png"
    with Running(model, LIMITS) as server:
        status, answer = server.ask(file.read_bytes())
    assert status == 200
    (found,) = answer["predictions"]
    mask = np.asarray(Image.open(io.BytesIO(base64.b64decode(found["mask_png"]))))
    np.testing.assert_array_equal(mask, model.masks([file])[0])
    assert found["size"] == [SIDE, SIDE]
    np.testing.assert_allclose(sum(one["share"] for one in found["classes"]), 1)


@pytest.mark.slow
def test_the_report_has_the_classes_and_examples(here: Path):
    Cli(here).done("report", "--workdir", "run", "--trust")
    page = (here / "run" / "report.html").read_text()
    for text in ("Classes of pixels", "Confusion of pixels", "predicted", "errors"):
        assert text in page


@pytest.mark.slow
@each_row(
    ("words", "message"),
    [
        ("evaluate --workdir run --trust --corruptions", "corruptions"),
        ("data --check --config recipe.py --workdir run --trust", "task"),
        (
            "--config recipe.py --workdir x --data.augment.augmix 1",
            "geometric transforms",
        ),
        (
            "--config recipe.py --workdir x --task.class-weights effective_number",
            "Error parsing --task.class-weights",
        ),
        (
            "--config recipe.py --workdir x --checkpoint.best-metric top5_accuracy",
            "iou",
        ),
        ("--config recipe.py --workdir x --model.name resnet18", "output_spec"),
    ],
)
def test_what_makes_no_sense_is_refused(here: Path, words: str, message: str):
    result = Cli(here)(*shlex.split(words))
    assert result.code == 2, result.stdout
    assert message in result.stderr, result.stderr


def test_new_proposes_it_for_a_folder_of_masks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(estimate, "estimate", lambda config: "as of another test")
    write_masks(tmp_path / "set", SPLITS)
    result = Cli(tmp_path).done("new", "--data", "set", "--out", "recipe.py")
    assert "of 3 classes: around, disc, square" in result.stdout
    config = load_config(tmp_path / "recipe.py")
    assert config.task.name == "segmentation" and config.model.name == "unet"
    assert config.data.source == "masks:set" and config.data.crop_mode == "squash"


@pytest.mark.slow
def test_on_eight_devices_the_losses_are_the_same(tmp_path: Path):
    found = {}
    for name, words, devices in (("one", "", "1"), ("many", MESH, "8")):
        folder = tmp_path / name
        write_masks(folder / "set", SPLITS)
        augment = "augment=AugmentConfig(crop_padding=2, cutmix=1.0)"
        text = mask_recipe(data=augment, options='loss="lovasz"')
        write_recipe(folder / "recipe.py", text)
        words += " --precision fp64 --data.batch-size 16"
        train(folder, words, **FP64, JAX_NUM_CPU_DEVICES=devices)
        found[name] = folder / "run"
    assert read_summary(found["many"])["num_devices"] == 8
    for kind, metric in (
        ("train", "loss"),
        ("train", "grad_norm"),
        ("eval", "mean_iou"),
    ):
        one, many = (
            [line[metric] for line in read_lines(found[name], kind)] for name in found
        )
        np.testing.assert_allclose(many, one, rtol=TOLERANCE)
    ours, theirs = (read_summary(found[name])["eval"] for name in found)
    assert ours["confusion_matrix"] == theirs["confusion_matrix"]
    # Its sums are float32 in the precision of the outputs of the evaluation.
    scores = [x["boundary_f_score"] for x in (ours, theirs)]
    np.testing.assert_allclose(*scores, rtol=1e-6)
