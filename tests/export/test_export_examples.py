"""The programs of the pages on exports, which are run as they stand there."""

import json
import re
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

from jaxtrain import load_model
from jaxtrain.cli import main
from jaxtrain.inference import folder
from jaxtrain.inference.model import TrainedModel
from jaxtrain.inference.pixels import to_pixels
from jaxtrain.weights.stored import abstract_weights
from tests.helpers.described import describe
from tests.helpers.parts import model_config
from tests.helpers.processes import ROOT

PAGES = "".join(
    (ROOT / "docs" / page).read_text() for page in ("exporting.md", "onnx.md")
)
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
# Name -> height, width and what Pillow saves it with. Of 32 pixels, a square of 7/8 of
# the shorter side: from 74 on a JPEG is decoded at a half, from 147 on at a quarter.
PHOTOS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "small.jpg": (20, 24, {}),
    "same.jpg": (32, 32, {}),
    "whole.jpg": (70, 90, {"subsampling": 0}),
    "half.jpg": (101, 93, {}),
    "turned.jpg": (120, 90, {"orientation": 6}),
    "upside down.jpg": (90, 121, {"orientation": 3}),
    "quarter.jpg": (171, 301, {"progressive": True}),
    "eighth.jpg": (500, 375, {"quality": 95}),
    "other.png": (101, 93, {}),
    "turned.png": (93, 101, {"orientation": 8, "mode": "RGBA"}),
    "grey.png": (101, 93, {"mode": "L"}),
    "palette.png": (101, 93, {"mode": "P", "transparency": 0}),
    "clear.png": (93, 101, {"mode": "RGBA"}),
    "deep.png": (93, 101, {"mode": "I;16"}),
}


def blocks() -> list[str]:
    """Return the programs: prepare.py, the folder, PyTorch, ONNX."""
    return re.findall(r"```python\n(.*?)```", PAGES, re.DOTALL)


def photo(height: int, width: int) -> np.ndarray:
    """Return an image with coarse and fine details, and no two parts alike."""
    rows, columns = np.mgrid[:height, :width]
    y, x = rows / height, columns / width
    waves = np.stack([np.sin(9 * x * y), np.cos(5 * x + 8 * y), np.sin(20 * y)], -1)
    noise = np.random.default_rng(height).normal(0, 12, (height, width, 3))
    return np.clip(127 + 90 * waves + noise, 0, 255).astype(np.uint8)


def in_mode(pixels: np.ndarray, mode: str) -> Image.Image:
    """Return a picture in a mode of Pillow's; its left half is half transparent."""
    picture = Image.fromarray(pixels)
    if mode == "I;16":
        return Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
    if mode == "RGBA":
        opacity = np.full(pixels.shape[:2], 255, np.uint8)
        opacity[:, : picture.width // 2] = 100
        picture.putalpha(Image.fromarray(opacity))
    return picture.convert(mode)


def write_photos(at: Path) -> list[str]:
    for name, (height, width, options) in PHOTOS.items():
        exif = Image.Exif()
        exif[0x0112] = options.get("orientation", 1)
        known = "orientation", "mode"
        rest = {k: v for k, v in options.items() if k not in known}
        picture = in_mode(photo(height, width), options.get("mode", "RGB"))
        picture.save(at / name, exif=exif, **rest)
    return list(PHOTOS)


def random_model(name: str, channels: int, **options: Any) -> TrainedModel:
    """Return a model whose classes differ from image to image."""
    about = describe(
        model_config(name, **options),
        (32, 32, channels),
        class_names=("cat", "cow", "dog", "hen", "owl"),
        mean=(0.4, 0.5, 0.6)[:channels],
        std=(0.2, 0.3, 0.4)[:channels],
        crop_pct=0.875,
        interpolation="bicubic",
    )
    rng = np.random.default_rng(3)

    def draw(path: Any, x: Any) -> np.ndarray:
        if x.ndim > 1:
            scale = 1.5 / np.sqrt(np.prod(x.shape[:-1]))
            return rng.normal(0, scale, x.shape).astype(np.float32)
        return np.full(x.shape, path[-1].key in ("scale", "var"), np.float32)

    params, state = jax.tree_util.tree_map_with_path(draw, abstract_weights(about))
    return TrainedModel(about, params, state, {})


def softmax(logits: np.ndarray) -> np.ndarray:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def run(program: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a program in this folder; return what it has made."""
    Path("prepare.py").write_text(blocks()[0])
    Path("program.py").write_text(program)
    monkeypatch.setattr(sys, "argv", ["program.py", *names])
    monkeypatch.syspath_prepend(".")
    monkeypatch.delitem(sys.modules, "prepare", raising=False)
    return runpy.run_path("program.py")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("channels", "crop_mode"), [(3, "center"), (1, "center"), (3, "border")]
)
def test_the_lines_prepare_images_as_predict_does(
    channels: int, crop_mode: str, here: Path, monkeypatch: pytest.MonkeyPatch
):
    model = random_model("lenet", channels)
    model = replace(model, description=replace(model.description, crop_mode=crop_mode))
    about = {**model.description.to_dict(), "crop_mode": crop_mode}
    prepare = run(blocks()[0], [], monkeypatch)["prepare"]
    mean, std = np.array(about["mean"]), np.array(about["std"])
    for name in write_photos(here):
        found = prepare(name, about, 32, channels) * std + mean
        expected = to_pixels(name, model.image_shape, model.description.fit) / 255
        assert found.shape == expected.shape
        # Two builds of libjpeg differ by a level, and so does a turn after resizing.
        assert np.abs(found - expected).max() < 2.01 / 255, name


def export_commands() -> list[list[str]]:
    """Return two commands: of the page and of the tutorial, for ONNX."""
    found = [re.search(r"main\.py (export .*onnx.*)", x) for x in (PAGES, TUTORIAL)]
    words = [match[1].split() for match in found if match is not None]
    assert ["--include-preprocessing" in one for one in words] == [False, True]
    replaced = {"--workdir": "model", "--out": "photos.onnx"}
    for one in words:
        for option, value in replaced.items():
            one[one.index(option) + 1] = value
    return words


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_the_programs_tell_what_predict_tells(
    number: int,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """ONNX and the folder, on files of all kinds: probabilities to 0.01.

    They differ by 2 of 255 levels in a pixel, which this model answers with some
    thousandths; a crop of another size with tenths.
    """
    folder.write(random_model("lenet", 3), here / "model")
    names = write_photos(here)
    words = "--out predictions.jsonl --topk 5"
    given = ["predict", "--workdir", "model", *words.split(), *names]
    assert main(given) == 0
    lines = [json.loads(x) for x in Path("predictions.jsonl").read_text().splitlines()]
    indices, probs = (
        np.array([[line[f"{kind}_{k}"] for k in range(5)] for line in lines])
        for kind in ("index", "prob")
    )
    expected = np.take_along_axis(probs, indices.argsort(axis=1), axis=1)
    images = here / "images"
    images.mkdir()
    Image.fromarray(photo(40, 40)).save(images / "one.png")
    onnx = [*export_commands()[number], "--images", "images"]
    saved = [{"onnx": "saved", "photos.onnx": "photos"}.get(x, x) for x in onnx]
    assert [main(onnx), main(saved)] == [0, 0]
    capsys.readouterr()
    of_onnx = run(blocks()[3], names, monkeypatch)
    np.testing.assert_allclose(of_onnx["probabilities"], expected, rtol=0, atol=0.01)
    told = [line.rsplit(" ", 2)[:2] for line in capsys.readouterr().out.splitlines()]
    assert told == [[line["filename"], line["label_0"]] for line in lines]
    made = run(blocks()[1], names, monkeypatch)
    load_from_folder = made["logits"] if number else softmax(made["logits"])
    np.testing.assert_allclose(load_from_folder, expected, rtol=0, atol=0.01)
    if number:
        with pytest.raises(TypeError, match="dtype float32: expected uint8"):
            made["run"](made["images"].astype(np.float32))
    # The images are not all alike to the model.
    assert np.ptp(expected, axis=0).max() > 0.1


@pytest.mark.slow
def test_timm_and_pytorch_read_the_folder(here: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("timm")
    model = random_model("resnet18", 3)
    folder.write(model, here / "model")
    names = write_photos(here)
    found = run(blocks()[2], names, monkeypatch)["logits"]
    expected = model.predict(names)
    np.testing.assert_allclose(softmax(found), expected, rtol=0, atol=0.01)
    again = load_model("resnet18.pth")
    jax.tree.map(np.testing.assert_array_equal, again.params, model.params)
