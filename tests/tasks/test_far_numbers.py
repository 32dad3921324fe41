"""Numbers far from 0: float32 would round their differences off."""

import json
from pathlib import Path
from typing import Any

import datasets
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain import load_model
from jaxtrain.config import DataConfig
from jaxtrain.data import columns
from jaxtrain.data.columns import NAMES, ORIGIN, centred, original
from jaxtrain.data.slices import groups_of
from jaxtrain.errors import UserError
from jaxtrain.tasks.multilabel import Multilabel
from jaxtrain.tasks.regression import Regression
from tests.helpers.counted import SIZE, counting, squares, write_table
from tests.helpers.facts import facts_of
from tests.helpers.images import grey, load_images
from tests.helpers.processes import Cli
from tests.helpers.recipes import write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines, read_summary

FAR, NUM = 5_400_000.1, 40
SHAPE = (SIZE, SIZE, 1)
NUMBERS = FAR + 0.1 * np.arange(NUM)


def regression(values: np.ndarray, **options: Any) -> tuple[Regression, np.ndarray]:
    """Return the task of a column, and what a store has of its numbers."""
    targets, origin = centred(np.asarray(values, np.float64)[:, None])
    facts = {NAMES: ("a",), "training_targets": lambda: targets}
    facts |= {ORIGIN: origin} if origin else {}
    return Regression(SHAPE, facts, **options), targets


@each_row(
    "values",
    [
        NUMBERS,
        # Float32 has the numbers, and not their mean.
        FAR - 0.1 + np.arange(NUM) ** 2,
        np.arange(NUM) / 7,
    ],
)
def test_a_step_learns_numbers_from_their_mean_on(values: np.ndarray):
    """(x - mean) / deviation in float64, and back in the units of the data."""
    task, targets = regression(values)
    batch = {"target": jnp.asarray(targets)}
    expected = (values - values.mean()) / values.std()

    add = task.metrics()["mae"].add
    assert add is not None

    @jax.jit
    def step(outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        target = task.target(batch)
        sums = add(outputs + 1, target, jnp.ones(NUM))
        return task.loss(outputs, target, training=True), sums

    # The loss is the square of the error. Numbers are rounded by up to 1e-5 of their
    # deviation, and float32 rounds what is learnt by 1e-7 of a few deviations.
    outputs = jnp.asarray(expected[:, None], jnp.float32)
    losses, sums = step(outputs)
    assert np.sqrt(np.max(losses)) < 2e-5
    facts = facts_of(1, options=task.inferred, column_names=("a",))
    decoder = task.decoder(facts)
    told = decoder.add_offset(np.asarray(decoder.values(outputs)))
    np.testing.assert_allclose(told[:, 0], values, rtol=0, atol=2e-5 * values.std())
    np.testing.assert_allclose(sums[1] / sums[0], values.std(), rtol=1e-4)


def test_numbers_are_told_in_digits_that_differ():
    task, targets = regression(NUMBERS)
    assert len(np.unique(NUMBERS.astype(np.float32))) == 9
    assert [task.label(x) for x in targets[:2]] == ["a 5400000.1", "a 5400000.2"]
    drawn = task.draw_example(np.zeros(SHAPE), targets[1], np.zeros(1, np.float32))
    assert drawn == {"target": "a 5400000.2", "prediction": "a 5400002.05"}


def test_levels_far_from_0_are_known_again():
    task, targets = regression(FAR + np.arange(NUM) % 4, loss="ordinal")
    task.check_targets(targets, "training")
    targets[3] += 0.5
    with pytest.raises(UserError, match=r"5400003.6 .* levels 5400000.1, 5400001.1"):
        task.check_targets(targets, "training")


def write_csv(folder: Path, values: np.ndarray) -> str:
    lines = [f"{i}.png,{x!r}" for i, x in enumerate(values.tolist())]
    for i in range(NUM):
        (folder / f"{i}.png").write_bytes(grey(i))
    (folder / "list.csv").write_text("\n".join(["path,a", *lines]))
    return f"csv:{folder}/list.csv"


def write_arrays(folder: Path, values: np.ndarray) -> str:
    image = np.zeros((NUM, 4, 4), np.uint8)
    np.savez(folder / "set.npz", image=image, label=values)
    return f"arrays:{folder}/set.npz"


def write_hf(folder: Path, values: np.ndarray) -> str:
    images = [{"bytes": grey(i), "path": None} for i in range(NUM)]
    datasets.Dataset.from_dict(
        {"image": images, "a": values.tolist()},
        features=datasets.Features(
            {"image": datasets.Image(), "a": datasets.Value("float64")}
        ),
    ).save_to_disk(folder / "set")
    return f"hf:{folder}/set"


@each_row("write", [write_csv, write_arrays, write_hf])
@pytest.mark.plugins
def test_sources_keep_numbers_apart(tmp_path: Path, write: Any):
    from jaxtrain.plugins.packed.writer import pack

    found: dict[str, Any] = {}
    for name, values in (
        ("far", NUMBERS),
        ("near", NUMBERS - FAR),
        ("other", NUMBERS[::-1]),
    ):
        folder = tmp_path / name
        folder.mkdir()
        source = write(folder, values)
        fields = {"image_size": 4, "validation_fraction": 0, "test_fraction": 0.5}
        splits = load_images(source=source, targets=("a",), **fields)
        for split in (splits.train, splits.test):
            targets = split.all_targets()
            assert targets is not None and targets.dtype == np.float32
            told = original(targets, split.facts)[:, 0]
            rtol = 1e-7 if name == "near" else 1e-12
            np.testing.assert_allclose(told, values[split.indices], rtol=rtol)
        found[name] = splits.train.facts
    assert ORIGIN not in found["near"] and found["far"][ORIGIN][0] > FAR
    assert found["far"]["digest"] != found["other"]["digest"]
    packed = DataConfig(source=f"{write(tmp_path, NUMBERS)}", targets=("a",))
    pack(packed, tmp_path / "packed", format="raw", size=4)
    facts = load_images(source=f"packed:{tmp_path}/packed", **fields).train.facts
    assert facts == found["far"]


def test_what_would_be_rounded_off_is_no_label_and_no_float64_of_a_store():
    levels = FAR + np.arange(NUM) % 3 - 1
    task, targets = regression(levels)
    assert set(np.unique(targets)) == {-1, 0, 1}
    facts: dict[str, Any] = {NAMES: ("a",), ORIGIN: (FAR,)}
    assert groups_of(targets, facts).ndim == 1
    with pytest.raises(UserError, match="the column 'a' has numbers other than"):
        Multilabel(SHAPE, facts)
    with pytest.raises(
        UserError, match=r"column 'a', such as 5400000.1, are too close"
    ):
        task.check_targets(NUMBERS[:, None], "training")
    task.check_targets(NUMBERS[:, None] - FAR, "training")
    assert not columns.is_rounded(np.array([0.1, np.nan, 0.1, np.inf]))


@pytest.mark.slow
def test_a_run_of_far_numbers_is_used_in_their_units(tmp_path: Path):
    images, numbers = squares(96)
    far = FAR + numbers[:, 0] / 10
    cells = {(i, "count"): repr(x) for i, x in enumerate(far.tolist())}
    write_table(tmp_path, cells=cells)
    write_recipe(tmp_path / "recipe.py", counting(("count",)))
    cli = Cli(tmp_path)
    for words in (
        "--config recipe.py --workdir whole",
        "--config recipe.py --workdir run --train.stop-after-steps 6",
        "--config recipe.py --workdir run",
        "evaluate --workdir run --split all",
        "predict --workdir run --out out.jsonl 000.png 001.png 002.png 003.png",
        "export --workdir run --format stablehlo --out file --images .",
    ):
        result = cli.done(*words.split())
    assert "float32, with a spacing of 0.5 near" in result.stdout
    whole, run = (read_lines(tmp_path / name, "train") for name in ("whole", "run"))
    assert whole[-1]["loss"] == run[-1]["loss"] and whole[-1]["loss"] < whole[0]["loss"]
    predicted = load_model(tmp_path / "run").predict(images[..., None])
    # Not in steps of a half, as float32 has there.
    assert predicted.dtype == np.float64 and len(np.unique(predicted)) > 40
    errors = np.abs(predicted[:, 0] - far)
    found = json.loads((tmp_path / "run" / "evaluation.json").read_text())["metrics"]
    np.testing.assert_allclose(found["mae"], errors.mean(), rtol=1e-4)
    assert found["mae"] < 0.2 and read_summary(tmp_path / "run")["eval"]["mae"] < 0.2
    text = (tmp_path / "out.jsonl").read_text()
    table = [json.loads(line)["count"] for line in text.splitlines()]
    np.testing.assert_allclose(table, predicted[:4, 0], rtol=0, atol=1e-6)
