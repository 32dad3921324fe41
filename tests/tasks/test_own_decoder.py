"""Predictions of a user's own task, by path."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxtrain import own, tasks
from jaxtrain.tasks.base import Task
from tests.helpers.digits import read_test
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe

TASK = '''
import numpy as np

from jaxtrain.tasks.class_decoder import ClassDecoder, ClassPrediction
from jaxtrain.tasks.classification import Classification


class Parity(Classification):
    """Digits, and whether they are odd."""

    @classmethod
    def decoder(cls, facts):
        return ParityDecoder(facts)


class ParityDecoder(ClassDecoder):
    draws = True

    def columns(self, topk=1):
        return {**super().columns(topk), "odd": int}

    def prediction(self, decoded, i, size=None):
        found = super().prediction(decoded, i, size)
        return OddPrediction(found.names, found.index, found.probabilities)


class OddPrediction(ClassPrediction):
    def row(self):
        return {**super().row(), "odd": int(self.index[0]) % 2}

    def json(self, topk):
        return {**super().json(topk), "odd": int(self.index[0]) % 2}

    def draw(self, image):
        return 255 - image
'''


def read(table: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(table.read_text().splitlines()))


def test_an_own_task_is_imported_where_it_is_allowed(tmp_path: Path):
    (tmp_path / "own_parity.py").write_text(TASK)
    name = f"{tmp_path / 'own_parity.py'}:Parity"
    with own.allowing_nothing():
        assert tasks.kind(name) is Task
        own.allow([name])
        assert tasks.kind(name).__name__ == "Parity"


@pytest.mark.slow
def test_a_table_and_pictures_are_those_of_the_own_decoder(tmp_path: Path):
    (tmp_path / "parity.py").write_text(TASK)
    write_recipe(
        tmp_path / "recipe.py", recipe(task="CustomConfig(name='parity.py:Parity')")
    )
    cli = Cli(tmp_path)
    cli.done("--config", "recipe.py", "--workdir", "run")
    images, _ = read_test()
    (tmp_path / "photos").mkdir()
    for i, image in enumerate(images[:3]):
        Image.fromarray(image[..., 0]).save(tmp_path / "photos" / f"{i}.png")
    words = ["predict", "--workdir", "run", "--out", "table.csv"]
    cli.done(*words, "--trust", "--pictures", "drawn", "photos")
    rows = read(tmp_path / "table.csv")
    assert [int(row["odd"]) for row in rows] == [int(row["index"]) % 2 for row in rows]
    drawn = np.asarray(Image.open(tmp_path / "drawn" / "0.png.png"))
    assert np.array_equal(drawn[..., 0], 255 - images[0, ..., 0])
    # Without the user's word nothing of theirs runs, and the classes are there.
    cli.done(*words, "photos")
    plain = read(tmp_path / "table.csv")
    assert "odd" not in plain[0]
    assert [row["index"] for row in plain] == [row["index"] for row in rows]
