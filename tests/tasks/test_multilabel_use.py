"""A model of several labels behind a server, as a file, begun from other weights."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain import load_model
from jaxtrain.cli import main
from jaxtrain.config.fields import replace
from jaxtrain.config.recipe import load_config
from jaxtrain.inference.model import TrainedModel
from jaxtrain.trainer.pretrained import plan_start
from jaxtrain.trainer.setup import build_setup
from tests.helpers.composed import compose, write
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_summary

MODEL = 'ConvNetConfig(name="convnet", width=0.125)'


def data(folder: Path, names: tuple[str, ...]) -> str:
    return (
        f'DataConfig(source="csv:{folder}/set/list.csv", targets={names}, '
        "image_size=16, channels=1, batch_size=16, validation_fraction=0.2)"
    )


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run on composed digits, with thresholds of its validation."""
    folder = tmp_path_factory.mktemp("labels")
    made = {"train": compose(60), "test": compose(20, split="test")}
    write(folder / "set", made)
    text = recipe(
        task='"multilabel"',
        data=data(folder, made["train"].names),
        model=MODEL,
        train="TrainConfig(steps=6, eval_every_steps=3)",
        checkpoint="CheckpointConfig(every_steps=3)",
    )
    write_recipe(folder / "recipe.py", text)
    Cli(folder).done("--config", "recipe.py", "--workdir", "run")
    return folder


def images(folder: Path, num: int = 8) -> list[Path]:
    return sorted((folder / "set" / "test").glob("*.png"))[:num]


def found_labels(model: TrainedModel, chances: np.ndarray) -> list[list[str]]:
    least = np.array(model.description.chosen["thresholds"])
    names = np.array(model.description.class_names)
    return [names[row >= least].tolist() for row in chances]


def read_rows(table: Path) -> list[dict[str, str]]:
    with table.open() as lines:
        return list(csv.DictReader(lines))


@pytest.mark.slow
@pytest.mark.plugins
def test_thresholds_of_validation_go_along(here: Path, tmp_path: Path, capsys: Any):
    """Into evaluations, predictions and the report."""
    from jaxtrain.plugins.report.collect import examples_of
    from jaxtrain.plugins.report.history import read_history

    run = here / "run"
    tested = read_summary(run)["eval"]
    assert len(tested["thresholds"]) == 10 and 0 < tested["mean_average_precision"] < 1
    out = tmp_path / "evaluation.json"
    assert main(["evaluate", "--workdir", str(run), "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["metrics"]["thresholds"] == tested["thresholds"]
    assert found["metrics"]["macro_f1"] == tested["macro_f1"]
    low, high = found["intervals"]["metrics"]["mean_average_precision"]
    assert low <= tested["mean_average_precision"] <= high
    capsys.readouterr()
    table = tmp_path / "predictions.csv"
    images = str(here / "set" / "test")
    given = ["--workdir", str(run), images]
    assert main(["predict", *given, "--out", str(table)]) == 0
    lines = table.read_text().splitlines()
    names = lines[0].split(",")
    assert names[:3] == ["filename", "labels", "prob_digit-0"]
    first = dict(zip(names, lines[1].split(","), strict=True))
    chances = [float(first[f"prob_digit-{i}"]) for i in range(10)]
    labels = [
        f"digit-{i}"
        for i, (chance, least) in enumerate(
            zip(chances, tested["thresholds"], strict=True)
        )
        if chance >= least
    ]
    assert first["labels"] == ";".join(labels)
    assert labels
    capsys.readouterr()
    assert main(["predict", *given]) == 0
    lines = capsys.readouterr().out.splitlines()[3:13]
    cells = [[cell.strip() for cell in line.split("│")[2:4]] for line in lines]
    assert [label for label, _ in cells] == labels + [""] * (10 - len(labels))
    named = [f"digit-{i} {chance:.4f}" for i, chance in enumerate(chances)]
    assert [prob for _, prob in cells] == named
    # The report draws examples by the same thresholds.
    predicted = {Path(row["filename"]).name: row["labels"] for row in read_rows(table)}
    drawn = examples_of(read_history(run)).drawn
    assert len(drawn) == 12
    for one in drawn:
        told = re.findall(r"digit-\d", one.texts["predicted"])
        assert ";".join(sorted(told)) == predicted[Path(one.name).name]
    assert main(["predict", *given, "--topk", "2"]) == 2
    assert "independent labels" in capsys.readouterr().err


@pytest.mark.plugins
@pytest.mark.slow
def test_a_server_answers_with_the_labels_by_the_thresholds(here: Path):
    from tests.plugins.serve.running import LIMITS, Running

    model, files = load_model(here / "run"), images(here)
    chances = np.asarray(model.predict(files))
    expected = found_labels(model, chances)
    with Running(model, LIMITS) as server:
        answers = [server.ask(file.read_bytes()) for file in files]
    for (status, answer), labels, row in zip(answers, expected, chances, strict=True):
        (one,) = answer["predictions"]
        assert status == 200 and one["labels"] == labels
        best = one["classes"][0]
        np.testing.assert_allclose(best["prob"], row.max(), rtol=1e-5)
    assert any(expected)


@pytest.mark.slow
def test_an_exported_file_has_the_probabilities_and_the_thresholds(here: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    words = "export --workdir run --format onnx --out m.onnx --include-preprocessing"
    Cli(here).done(*words.split())
    model = load_model(here / "run")
    session = onnxruntime.InferenceSession(here / "m.onnx")
    about = json.loads(session.get_modelmeta().custom_metadata_map["jaxtrain"])
    assert about["chosen"] == model.description.chosen
    assert about["class_names"] == list(model.description.class_names or ())
    rng = np.random.default_rng(0)
    some = rng.integers(0, 256, (4, 16, 16, 1)).astype(np.uint8)
    (output,) = session.get_outputs()
    found = np.asarray(session.run(None, {"images": some})[0])
    if output.name == "logits":
        found = 1 / (1 + np.exp(-found))
    expected = np.asarray(model.predict(some))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_labels_begin_with_the_weights_of_classes_and_of_other_labels(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    classes = recipe(
        data='DataConfig(source="synthetic:16x16x1/10/96", batch_size=16)',
        model=MODEL,
        train="TrainConfig(steps=2)",
    )
    write_recipe(tmp_path / "classes.py", classes)
    Cli(tmp_path).done("--config", "classes.py", "--workdir", "classes")
    names = compose(1).names
    for pretrained, some, row in (
        # As many outputs of classes without names, as weights of other libraries.
        ("classes", names, None),
        (str(here / "run"), names, None),
        (str(here / "run"), names[:4], "the last layer, which had 10 outputs: head"),
    ):
        text = recipe(task='"multilabel"', data=data(here, some), model=MODEL)
        config = load_config(write_recipe(tmp_path / "labels.py", text))
        start = plan_start(build_setup(replace(config, "model.pretrained", pretrained)))
        assert start is not None
        new = start.rows.get("new")
        assert (new or "").startswith(row or "") and bool(new) == bool(row), new
