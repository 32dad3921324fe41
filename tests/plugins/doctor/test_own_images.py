"""The way of a user with a folder of images: look, clean, train, pack, train again."""

import json
import shlex
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from PIL import Image

from jaxtrain.cli import main
from jaxtrain.plugins.plan import estimate
from tests.helpers.needs import fashion_mnist
from tests.helpers.processes import ROOT
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.words import quoted

NAMES = ("shirt", "trouser", "pullover", "dress", "coat")
INCLUDE = "--include clean.txt"
FOLDER_RECIPE = ROOT / "configs" / "folder.py"


def clothes(kind: Literal["train", "t10k"], num: int) -> dict[str, np.ndarray]:
    """Return the first images of each of five classes, uint8 (num, 28, 28)."""
    image, label = fashion_mnist(kind)
    return {name: image[label == c][:num] for c, name in enumerate(NAMES)}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # What `new` tells of the time is compiled and timed in `test_first_hour.py`.
    monkeypatch.setattr(estimate, "estimate", lambda config: "as of another test")
    return tmp_path


def write_scans(root: Path, num_train: int, num_test: int) -> None:
    for split, found in (
        ("train", clothes("train", num_train)),
        ("test", clothes("t10k", num_test)),
    ):
        for name, images in found.items():
            folder = root / split / name
            folder.mkdir(parents=True)
            for i, image in enumerate(images):
                Image.fromarray(image).save(folder / f"{i:03d}.png")


def losses(workdir: str, words: str) -> list[float]:
    """Train by the recipe of folders; return the losses of each step, and the test."""
    head = (
        f"--config {quoted(FOLDER_RECIPE)} --workdir {quoted(workdir)} --train.epochs 2"
    )
    tail = "--optimizer.warmup-epochs 0 --data.batch-size 16 --logging.every-steps 1"
    tail += " --logging.report False"
    assert main(shlex.split(f"{head} {tail} {words}")) == 0
    train = [line["loss"] for line in read_lines(Path(workdir), "train")]
    return [*train, read_summary(Path(workdir))["eval"]["loss"]]


@pytest.mark.slow
def test_defects_are_found_and_the_rest_trains_the_same_in_every_form(here: Path):
    write_scans(here / "scans", 16, 4)
    train = here / "scans" / "train"
    whole = (train / "coat" / "003.png").read_bytes()
    (train / "coat" / "003.png").write_bytes(whole[:200])
    (train / "dress" / "twin.png").write_bytes((train / "dress/006.png").read_bytes())
    check = "data --check --source folder:scans --write-clean clean.txt"
    # One of a split is as many as may be unreadable, rounded up.
    assert main(shlex.split(check)) == 0
    report = json.loads(Path("data_report/data_report.json").read_text())
    kinds = {finding["kind"] for finding in report["findings"]}
    assert {"unreadable", "duplicates"} <= kinds
    clean = Path("clean.txt").read_text().splitlines()
    assert len(clean) == 81 + 20 - 2 and "train/coat/003.png" not in clean

    expected = losses("run/folder", f"--data.source folder:scans --data.{INCLUDE[2:]}")
    for form in ("jpeg", "raw --size 28"):
        out = f"packed/{form[:4].strip()}"
        pack = f"data --pack folder:scans --out {out} --format {form} {INCLUDE}"
        assert main(shlex.split(pack)) == 0
        assert losses(f"run/{out}", f"--data.source packed:{out}") == expected
