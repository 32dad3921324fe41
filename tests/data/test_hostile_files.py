"""Runs on folders with whatever files people have: each is named, none ends badly."""

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxtrain.cli import main
from tests.helpers.bad_images import half, png
from tests.helpers.images import encode, write_folder
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines, read_summary

RUN = recipe(
    data='DataConfig(source="folder:set", image_size=8, batch_size=8, '
    "max_bad_fraction=0.9)",
    model='ConvNetConfig(name="convnet", width=0.125)',
    train="TrainConfig(steps=4)",
    checkpoint="CheckpointConfig(every_steps=4)",
    logging="LoggingConfig(every_steps=2, tensorboard=False)",
)
PHOTO = np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)


def animated(format: str) -> bytes:
    frames = [Image.new("RGB", (9, 9), colour) for colour in ("red", "green")]
    buffer = io.BytesIO()
    frames[0].save(buffer, format, save_all=True, append_images=frames[1:])
    return buffer.getvalue()


# Name -> the file, and why it cannot be read; None: it can.
FILES: dict[str, tuple[Callable[[], bytes], str | None]] = {
    "bomb.png": (
        lambda: png(60_000, 60_000, bytes(10**6)),
        "60000x60000 pixels are more",
    ),
    "empty.jpg": (lambda: b"", "the file is empty"),
    "text.jpg": (lambda: b"Not an image.\n", "not an image of a supported format"),
    "half.jpg": (lambda: half(encode(PHOTO, "JPEG")), "Premature end of JPEG file"),
    "half.png": (lambda: half(encode(PHOTO)), "truncated"),
    "\x1b[2Jodd\n\udcff.png": (lambda: half(encode(PHOTO)), "truncated"),
    "animated.gif": (lambda: animated("GIF"), None),
    "animated.webp": (lambda: animated("WEBP"), None),
    "animated.png": (lambda: animated("PNG"), None),
    "point.png": (lambda: encode(PHOTO[:1, :1]), None),
    "line.png": (lambda: encode(np.zeros((1, 30_000), np.uint8)), None),
    "column.bmp": (lambda: encode(np.zeros((30_000, 1), np.uint8), "BMP"), None),
    "wrong name.jpg": (lambda: encode(PHOTO, "PNG"), None),
    "LOUD.JPEG": (lambda: encode(PHOTO, "JPEG"), None),
    "page.tif": (lambda: encode(PHOTO, "TIFF"), None),
}


def shown(name: str) -> str:
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return text.replace("\x1b", "\\x1b").replace("\n", "\\n")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path / "run.py", RUN)
    good = {f"{c}/good{i}.png": 9 * i for c in "ab" for i in range(8)}
    for split in ("train", "val", "test"):
        write_folder(tmp_path / "set" / split, good)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    ["", pytest.param("--data.cache stream --data.channels 1", marks=pytest.mark.slow)],
)
def test_each_bad_file_is_named(
    here: Path, words: str, capfd: pytest.CaptureFixture[str]
):
    for name, (make, _) in FILES.items():
        (here / "set" / "train" / "a" / name).write_bytes(make())
        (here / "set" / "test" / "b" / name).write_bytes(make())
    assert main(["--config", "run.py", *words.split()]) == 0
    run = here / "runs" / "run"
    told: dict[str, dict[str, str]] = {"train": {}, "test": {}}
    for line in read_lines(run, "event"):
        if line["event"] == "unreadable image":
            told[line["split"]][line["name"]] = line["reason"]
    bad = {name: reason for name, (_, reason) in FILES.items() if reason is not None}
    for split, folder in (("train", "set/train/a"), ("test", "set/test/b")):
        expected = {f"{folder}/{shown(name)}": reason for name, reason in bad.items()}
        # A streamed epoch leaves out what does not fill its last batch.
        if split == "test" or not words:
            assert told[split].keys() == expected.keys()
        for name, reason in told[split].items():
            assert expected[name] in reason
    assert read_summary(run)["eval"]["num_examples"] == 16 + len(FILES) - len(bad)
    out, err = capfd.readouterr()
    assert "Traceback" not in err and "\x1b[2J" not in out + err


def test_too_many_bad_files_are_told(here: Path, capsys: pytest.CaptureFixture[str]):
    (here / "set" / "train" / "b" / "x.png").write_bytes(b"")
    words = ["--config", "run.py", "--data.max-bad-fraction", "0"]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "1 of the 17 images of the train split are unreadable" in told
    assert "set/train/b/x.png is unreadable: the file is empty" in told


@pytest.mark.exhaustive
def test_seventy_thousand_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path / "run.py", RUN)
    write_folder(tmp_path / "set", {f"{i:05d}/x.png": i % 256 for i in range(70_000)})
    words = "--train.steps 1 --data.test-split train[:500] --data.allow-overlap True "
    words += "--data.validation-fraction 0 --data.cache stream"
    assert main(["--config", "run.py", *words.split()]) == 0
    summary = read_summary(tmp_path / "runs" / "run")
    assert len(summary["class_names"]) == 70_000
