"""`new`: a recipe after a look at the images, which trains as it is."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxtrain.cli import main
from jaxtrain.config.recipe import load_config
from jaxtrain.data.survey import Survey
from jaxtrain.errors import UserError
from jaxtrain.run.advice import advise
from jaxtrain.run.setup import build_setup
from tests.helpers.runs import read_summary


def values(
    num_train: int, size: tuple[int, int], counts: list[int], colour: bool = True
) -> dict[str, object]:
    found = Survey(
        counts={"train": num_train},
        class_names=(),
        class_counts=np.array(counts),
        sizes=np.array([size, size]),
        colour=colour,
        num_unreadable=0,
        num_classes=len(counts),
    )
    advice = advise(found, "folder:x", None)
    assert len({(one.section, one.field) for one in advice}) == len(advice)
    return {one.field: one.value for one in advice}


def test_small_images_stay_as_they_are():
    digits = values(60_000, (28, 28), [6000] * 10, colour=False)
    assert (digits["image_size"], digits["channels"]) == (28, 1)
    assert digits["crop_padding"] == 3 and not digits["horizontal_flip"]
    assert "random_resized_crop" not in digits and "sampling" not in digits


def test_a_recipe_grows_with_the_set():
    few = values(400, (300, 300), [320, 80], colour=False)
    assert (few["image_size"], few["channels"]) == (128, 1)
    assert few["test_fraction"] == few["validation_fraction"] == 0.2
    assert few["sampling"] == "balanced" and few["batch_size"] == 8
    many = values(1_281_167, (375, 500), [1281] * 1000)
    assert (many["image_size"], many["name"]) == (224, "adamw")
    assert many["batch_size"] == 128 and many["label_smoothing"] == 0.1
    assert values(30_000, (100, 2000), [3000] * 10)["image_size"] == 96


@pytest.mark.parametrize("num_train", [10, 11, 19, 160])
def test_a_batch_never_exceeds_what_is_left_to_train_on(num_train: int):
    found = values(num_train, (64, 64), [num_train])
    assert 1 <= int(str(found["batch_size"])) <= 0.64 * num_train


def test_a_handful_of_images_is_refused():
    with pytest.raises(UserError, match="9 training images are too few"):
        values(9, (64, 64), [5, 4])


def test_tiny_images_are_enlarged():
    assert values(100, (1, 1), [50, 50])["image_size"] == 8


def test_the_recipe_trains_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    recipe = tmp_path / "configs" / "mine.py"
    assert main(["new", "--data", "digits", "--out", str(recipe)]) == 0
    told = capsys.readouterr().out
    assert "1,437 train, 360 test" in told and f"--config {recipe}" in told
    # Written as the formatter would, and nothing is left to say.
    check = [sys.executable, "-m", "ruff", "format", "--check", str(recipe)]
    assert subprocess.run(check, capture_output=True).returncode == 0
    setup = build_setup(load_config(recipe))
    assert setup.splits.train.image_shape == (8, 8, 1)
    workdir = tmp_path / "run"
    words = f"--config {recipe} --workdir {workdir} --train.epochs 12 "
    words += "--logging.report False"
    assert main(words.split()) == 0
    assert read_summary(workdir)["eval"]["accuracy"] > 0.9


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--data digits --out {}/there.py", "is there already"),
        ("--data digits --out {}/mine.txt", "a recipe is a Python file"),
        ("--data nothing:x --out {}/mine.py", "data.source = 'nothing:x'"),
        ("--data digits --out {}/there.py/mine.py", "mine.py: "),
        ("--data digits", "--out"),
    ],
)
def test_what_cannot_be_done_is_refused(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "there.py").write_text("precious")
    try:
        code = main(["new", *words.format(tmp_path).split()])
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "there.py").read_text() == "precious"


def test_odd_names_are_written_so_that_they_can_be_read(tmp_path: Path):
    source = tmp_path / 'it\'s "odd".py'
    source.write_text(
        "import numpy as np\n"
        "from jaxtrain.data.stores import ArrayStore\n"
        "def noise():\n"
        "    image = np.random.default_rng(0).integers(0, 255, (64, 9, 9, 3))\n"
        "    label = np.arange(64, dtype=np.int32) % 2\n"
        "    store = ArrayStore(image.astype(np.uint8), label, {'num_classes': 2})\n"
        "    return store, {'train': [np.arange(64)]}\n"
    )
    recipe = tmp_path / "mine.py"
    assert main(["new", "--data", f"{source}:noise", "--out", str(recipe)]) == 0
    config = load_config(recipe)
    assert config.data.source == f"{source}:noise"
    assert config.data.test_fraction == 0.2 and config.data.channels == 3
