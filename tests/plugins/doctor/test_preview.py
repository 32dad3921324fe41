"""The picture of training images before and after augmentation."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxtrain.cli import main
from jaxtrain.plugins.report.preview import GAP, SIDE, TEXT_HEIGHT
from tests.helpers.images import write_folder
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row

RUN = recipe(
    data='DataConfig(source="folder:set", image_size=12, batch_size=6, '
    "augment=AugmentConfig(cutout_size=5), test_fraction=0.2)",
    train="TrainConfig(steps=2)",
    checkpoint="CheckpointConfig(every_steps=2)",
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    files = {
        f"{name}/{i}.png": 90 + i for name in ("héron", "mouette") for i in range(9)
    }
    write_folder(tmp_path / "set", files)
    write_recipe(tmp_path / "run.py", RUN)
    return tmp_path


def test_stored_images_stand_above_augmented_ones(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    assert (
        main(["data", "--preview", "--config", "run.py", "--out", "seen/there.png"])
        == 0
    )
    assert "seen/there.png shows training images" in capsys.readouterr().out
    picture = np.asarray(Image.open("seen/there.png"))
    cell = SIDE + GAP, 2 * SIDE + TEXT_HEIGHT + 2 * GAP
    assert picture.shape == (2 * cell[1] + GAP, 6 * cell[0] + GAP, 3)
    for row in range(2):
        for column in range(6):
            left, top = GAP + column * cell[0], GAP + row * cell[1]
            label = picture[top : top + TEXT_HEIGHT, left : left + SIDE]
            assert label.min() < 100, "no label"
            above = picture[top + TEXT_HEIGHT :][:SIDE, left : left + SIDE]
            below = picture[top + TEXT_HEIGHT + SIDE + GAP // 2 :][
                :SIDE, left : left + SIDE
            ]
            # One colour as it is stored; below, a square in the mean colour.
            (value,) = np.unique(above)
            assert 90 <= value < 99
            assert set(np.unique(below)) <= {value, *range(92, 97)}
    # A picture is the same each time.
    assert main(["data", "--preview", "--config", "run.py"]) == 0
    assert (np.asarray(Image.open("preview.png")) == picture).all()


@each_row(
    ("words", "message"),
    [
        ("--preview --config run.py --out there.gif", "expected a PNG file"),
        ("--preview --config run.py --size 3", "--size 3 has no effect with --preview"),
        ("--preview --config run.py --out run.py/there.png", "--out run.py/there.png"),
    ],
)
def test_what_does_not_fit_is_refused(
    words: str, message: str, here: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["data", *words.split()]) == 2
    assert message in capsys.readouterr().err
