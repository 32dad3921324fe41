"""Detection through the command line: a folder as COCO's, from training to answers."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np
import pytest
from PIL import Image

from jaxtrain import load_model
from jaxtrain.config.recipe import load_config
from jaxtrain.inference.pixels import to_pixels
from jaxtrain.plugins.detection import box_metrics
from jaxtrain.plugins.detection.task import Detection
from jaxtrain.plugins.report.preview import first_images
from jaxtrain.tasks.pictures import outlines
from jaxtrain.trainer.setup import build_setup
from tests.helpers.composed import compose
from tests.helpers.composed_boxes import write_coco, write_yolo
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines, read_summary
from tests.plugins.serve.running import LIMITS, Running

STEPS, SIZE = 12, 32


def detecting(**sections: str) -> str:
    """Return a recipe of a small detector of images of 32 pixels."""
    usual = {
        "task": "DetectionConfig(strides=(4, 8), keep=20)",
        "data": 'DataConfig(source="coco:set", image_size=32, batch_size=16, '
        "eval_batch_size=8, augment=AugmentConfig(horizontal_flip=True))",
        "model": 'FCOSConfig(backbone="convnet", width=0.25, '
        "pyramid_channels=16, head_layers=1)",
        "optimizer": "AdamWConfig(learning_rate=0.003)",
        "train": f"TrainConfig(steps={STEPS}, eval_every_steps={STEPS})",
        "logging": "LoggingConfig(every_steps=1)",
    }
    return recipe(**{**usual, **sections})


def made() -> dict[str, Any]:
    return {
        "train": compose(48),
        "val": compose(8, seed=1),
        "test": compose(8, split="test"),
    }


def train(folder: Path, words: str = "", **env: str) -> None:
    Cli(folder).done(*f"--config recipe.py --workdir run {words}".split(), **env)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a set of images and a run."""
    folder = tmp_path_factory.mktemp("boxes")
    write_coco(folder / "set", made())
    write_recipe(folder / "recipe.py", detecting())
    train(folder)
    return folder


@pytest.mark.slow
def test_a_run_learns_and_its_metrics_are_those_of_coco(here: Path) -> None:
    lines, test = read_lines(here / "run", "train"), read_summary(here / "run")["eval"]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert {"classes_loss", "boxes_loss", "centerness_loss"} <= lines[0].keys()
    names = {*box_metrics.KNOWN, "class_ap", "class_boxes"}
    assert names <= test.keys()
    values = compose(8, split="test")
    num = np.bincount(values.box_class[values.box_class >= 0], minlength=10)
    assert test["class_boxes"] == num[: len(test["class_boxes"])].tolist()
    assert read_summary(here / "run")["best"]["metric"] == "map"
    about = json.loads((here / "run" / "model.json").read_text())
    assert about["column_names"] == list(values.names)
    ids = about["task_options"]["category_ids"]
    assert ids == ",".join(str(i + 1) for i in range(10))


@pytest.mark.slow
def test_an_evaluation_finds_the_same(here: Path) -> None:
    Cli(here).done("evaluate", "--workdir", "run", "--split", "test")
    found = json.loads((here / "run" / "evaluation.json").read_text())["metrics"]
    summary = read_summary(here / "run")["eval"]
    for name in ("loss", "map", "map50"):
        np.testing.assert_allclose(found[name], summary[name], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_predictions_are_boxes_of_the_image_as_it_is(here: Path) -> None:
    wide = here / "wide"
    wide.mkdir()
    with Image.open(here / "set" / "test" / "000001.png") as image:
        image.resize((160, 128)).save(wide / "000001.png")
    result = Cli(here).done(
        *(
            "predict",
            "--workdir",
            "run",
            "--pictures",
            "pictures",
            "--coco",
            "out.json",
        ),
        *("--out", "out.jsonl", "wide"),
    )
    found = json.loads((here / "out.json").read_text())
    assert "image_id is the number in the file name" in result.stdout
    (ours,) = load_model(here / "run").find([wide / "000001.png"])
    assert len(found) == len(ours.scores) > 0
    for one, box, score, kind in zip(found, *ours, strict=True):
        left, top, width, height = one["bbox"]
        told = left, top, left + width, top + height
        np.testing.assert_allclose(told, box, atol=2e-3)
        assert one["image_id"] == 1
        assert one["score"] == pytest.approx(score, abs=1e-4)
        assert one["category_id"] == kind + 1
        # The middle square: 16 pixels are cut off on both sides, and a part of it.
        assert left >= 16
        assert left + width <= 144
    with Image.open(here / "pictures" / "000001.png.png") as picture:
        assert picture.size == (160, 128)
    (row,) = map(json.loads, (here / "out.jsonl").read_text().splitlines())
    shown = [name for name in row["labels"].split(";") if name]
    assert row["num_boxes"] == len(shown) == (ours.scores >= 0.3).sum()


@pytest.mark.slow
def test_a_server_answers_with_boxes(here: Path) -> None:
    path = here / "set" / "test" / "000002.png"
    model = load_model(here / "run")
    with Running(model, LIMITS) as server:
        status, answer = server.ask(path.read_bytes())
    (found,) = answer["predictions"]
    (ours,) = model.find([path])
    assert status == 200
    assert found["size"] == [64, 64]
    boxes = [one["box"] for one in found["boxes"]]
    np.testing.assert_allclose(boxes, ours.boxes, atol=0.05)
    labels = [one["label"] for one in found["boxes"]]
    assert labels == [compose(1).names[i] for i in ours.classes]


@pytest.mark.slow
def test_a_file_holds_boxes_and_scores(here: Path) -> None:
    onnx = pytest.importorskip("onnx")
    words = ["export", "--workdir", "run", "--format", "onnx", "--out", "onnx.file"]
    result = Cli(here).done(*words)
    assert "of the image, or of 1" in result.stdout
    (output,) = onnx.load(here / "onnx.file").graph.output
    assert output.name == "boxes_and_scores"


@pytest.mark.slow
@pytest.mark.parametrize("format", ["onnx", "stablehlo"])
def test_a_file_finds_boxes_as_the_model_does(here: Path, format: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    name = f"found.{format}"
    words = f"export --workdir run --format {format} --out {name} --include-nms"
    result = Cli(here).done(*words.split(), "--include-preprocessing")
    assert "the same box" in result.stdout
    model = load_model(here / "run")
    paths = sorted((here / "set" / "test").iterdir())
    shape, fit = model.description.image_shape, model.description.fit
    images = np.stack([to_pixels(path, shape, fit) for path in paths])
    if format == "onnx":
        session = onnxruntime.InferenceSession(here / name)
        (found,) = session.run(None, {"images": images})
    else:
        data = bytearray((here / name).read_bytes())
        found = np.asarray(jax.export.deserialize(data).call(images))
    ours = jax.device_get(model.run(images, "decoded")).values
    assert found.shape == (len(paths), 20, 6)
    np.testing.assert_allclose(found[..., 4], ours["scores"], atol=1e-5)
    # Of equal scores the order may be another.
    same = found[..., 5] == ours["classes"]
    assert same.mean() > 0.95
    np.testing.assert_allclose(found[same][:, :4], ours["boxes"][same], atol=1e-2)


@pytest.mark.slow
def test_the_report_has_the_classes_and_pictures(here: Path) -> None:
    Cli(here).done("report", "--workdir", "run")
    page = (here / "run" / "report.html").read_text()
    assert "<h2>Boxes</h2>" in page
    assert "digit-3" in page
    assert "<figcaption>predicted</figcaption>" in page


@pytest.mark.slow
@each_row(
    ("words", "message"),
    [
        (
            "export --workdir run --format safetensors --out x --include-nms",
            "--include-nms has no effect with --format safetensors",
        ),
        ("predict --workdir run --topk 2 set/test", "--topk: task = 'detection'"),
        ("evaluate --workdir run --calibrate", "does not predict one class"),
        ("evaluate --workdir run --corruptions", "some corruptions move pixels"),
        (
            "predict --workdir run --coco-images x.json set/test",
            "effect without --coco",
        ),
        ("--config recipe.py --data.augment.mixup 0.2", "of mixed images would"),
        ("--config recipe.py --data.augment.cutmix 0.5", "the pasted patch hides"),
        ("--config recipe.py --data.sampling balanced", "boxes of several classes"),
        (
            "--config recipe.py --data.image-size 36",
            "not a multiple of the last stride, 8",
        ),
        ("--config recipe.py --task.strides 1 2", "at the strides 2, 4, but"),
        ("--config recipe.py --task.strides 8 4", "strides = (8, 4)"),
    ],
)
def test_what_does_not_go_together_is_refused(
    here: Path, words: str, message: str
) -> None:
    result = Cli(here)(*words.split())
    assert result.code == 2, result.stderr
    assert message in result.stderr, result.stderr


@pytest.mark.slow
def test_a_preview_draws_the_boxes(here: Path, monkeypatch: pytest.MonkeyPatch):
    """Where the images have them: after a flip on the other side."""
    monkeypatch.chdir(here)
    given: list[tuple[np.ndarray, np.ndarray]] = []

    def draw(task: Detection, image: np.ndarray, target: Any) -> np.ndarray:
        given.append((image, target["boxes"][target["classes"] >= 0]))
        return original(task, image, target)

    original = Detection.draw_target
    monkeypatch.setattr(Detection, "draw_target", draw)
    setup = build_setup(load_config(here / "recipe.py"))
    before, after, _ = next(first_images(setup, 1, 6))
    flips = set()
    for n, ((plain, boxes), (image, found)) in enumerate(
        zip(given[:6], given[6:], strict=True)
    ):
        assert len(boxes) and (before[n] == outlines(plain, boxes)).all()
        assert (after[n] == outlines(image, found)).all()
        assert (before[n] != plain).any() and (after[n] != image).any()
        left, top, right, bottom = boxes.T
        flipped = [SIZE - right, top, SIZE - left, bottom]
        is_flipped = (image == plain[:, ::-1]).all()
        expected = np.stack(flipped, axis=1) if is_flipped else boxes
        np.testing.assert_allclose(found, expected, atol=1e-3)
        flips.add(bool(is_flipped))
    assert flips == {False, True}


def test_new_proposes_detection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jaxtrain.plugins.plan import estimate

    monkeypatch.setattr(estimate, "estimate", lambda config: "not timed here")
    write_yolo(tmp_path / "set", made())
    Cli(tmp_path).done("new", "--data", "set", "--out", "new.py")
    text = (tmp_path / "new.py").read_text()
    assert "task=DetectionConfig(" in text
    assert "model=FCOSConfig(" in text
    assert 'crop_mode="border"' in text
    assert "random_resized_crop" not in text


# --- slow ----------------------------------------------------------------------------


def in_float64(**sections: str) -> str:
    return detecting(
        precision='"fp64"',
        optimizer="SGDConfig(learning_rate=0.01)",
        train="TrainConfig(steps=8, eval_every_steps=4)",
        checkpoint="CheckpointConfig(every_steps=4)",
        **sections,
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on one device, in float64."""
    return run_on(tmp_path_factory.mktemp("one"), 1)


def run_on(folder: Path, devices: int, words: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    if not (folder / "set").exists():
        write_coco(folder / "set", made())
    write_recipe(folder / "recipe.py", in_float64())
    train(folder, words, JAX_NUM_CPU_DEVICES=str(devices), **FP64)
    return folder


def assert_same(one: Path, other: Path) -> None:
    losses = [[x["loss"] for x in read_lines(f / "run", "train")] for f in (one, other)]
    assert len(losses[0]) == 8
    np.testing.assert_allclose(*losses, rtol=TOLERANCE)
    tests = [read_summary(folder / "run")["eval"] for folder in (one, other)]
    for name, value in tests[0].items():
        ours = np.array(value, float)
        np.testing.assert_allclose(ours, np.array(tests[1][name], float), TOLERANCE)


@pytest.mark.slow
def test_on_eight_devices_the_losses_are_the_same(alone: Path, tmp_path: Path) -> None:
    words = "--parallel.data 4 --parallel.spatial 2"
    assert_same(alone, run_on(tmp_path, 8, words))


MOSAICS = (
    "--data.augment.mosaic 0.7 --data.augment.close-mosaic 2 --data.batch-size 32 "
    "--data.augment.alternating-flip True --data.augment.horizontal-flip False"
)


@pytest.fixture(scope="module")
def with_mosaics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on one device, in float64, whose last 2 of 8 steps have no mosaics."""
    return run_on(tmp_path_factory.mktemp("mosaics"), 1, MOSAICS)


@pytest.mark.exhaustive
def test_the_last_steps_have_no_mosaics(with_mosaics: Path, tmp_path: Path) -> None:
    always = run_on(tmp_path, 1, f"{MOSAICS} --data.augment.close-mosaic 0")
    losses, others = (
        [line["loss"] for line in read_lines(folder / "run", "train")]
        for folder in (with_mosaics, always)
    )
    assert losses[:6] == others[:6]
    assert losses[6] != others[6]


@pytest.mark.slow
def test_mosaics_are_the_same_on_eight_devices_streamed(
    with_mosaics: Path, tmp_path: Path
) -> None:
    words = "--parallel.preset fsdp --data.cache stream"
    assert_same(with_mosaics, run_on(tmp_path, 8, f"{MOSAICS} {words}"))
