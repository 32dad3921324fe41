"""The recipes whose data a script makes: a few images of theirs, a few steps."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import composed, counted
from tests.helpers.forked import ROOT
from tests.helpers.processes import Cli
from tests.helpers.runs import read_summary


def labels(folder: Path) -> None:
    made = {
        split: composed.compose(num, seed=0, split=split)
        for split, num in {"train": 240, "test": 24}.items()
    }
    composed.write(folder, made)


def masks(folder: Path) -> None:
    made = {
        split: composed.compose(num, seed=0, split=split)
        for split, num in {"train": 120, "test": 24}.items()
    }
    composed.write_with_masks(folder, made)


def numbers(folder: Path) -> None:
    counted.write_composed(folder, {"train": 128, "test": 16})


# Backbone, three blocks of the decoder, and two heads of 11 classes.
UNET = 156_240 + (50_816 + 10_432 + 1_760) + (8 + 1) * 11 + (96 + 1) * 11


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "folder", "make", "num_params", "metric"),
    [
        ("multilabel", "composed", labels, 157_210, "mean_average_precision"),
        ("segmentation", "composed", masks, UNET, "mean_iou"),
        # That of configs/cifar10.py with 3 outputs of 4,096 features, not 10.
        ("regression", "counted", numbers, 79_818 - 7 * 4097, "mae"),
    ],
)
def test_recipe_trains_on_what_its_script_makes(
    name: str,
    folder: str,
    make: Callable[[Path], None],
    num_params: int,
    metric: str,
    cli: Cli,
):
    make(cli.directory / folder)
    words = ["--train.epochs", "1", "--data.batch-size", "24", "--workdir", "run"]
    if name == "multilabel":
        # Digits, where the garments are not at hand.
        columns = (cli.directory / folder / "list.csv").read_text().splitlines()[0]
        words += ["--data.targets", *columns.split(",")[2:]]
    cli.done("--config", ROOT / f"configs/{name}.py", *words)
    summary = read_summary(cli.directory / "run")
    assert summary["num_params"] == num_params
    assert metric in summary["eval"]
