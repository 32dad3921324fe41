"""A model of several labels behind a server, as a file, begun from other weights."""

import json
from pathlib import Path

import numpy as np
import pytest

from jaxtrain import load_model
from jaxtrain.config.fields import replace
from jaxtrain.config.recipe import load_config
from jaxtrain.inference.model import TrainedModel
from jaxtrain.run.pretrained import plan_start
from jaxtrain.run.setup import build_setup
from tests.helpers.composed import compose, write
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe

MODEL = 'ModelConfig(name="convnet", width=0.125)'


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
    result = Cli(folder)("--config", "recipe.py", "--workdir", "run")
    assert result.code == 0, result.stderr
    return folder


def images(folder: Path, num: int = 8) -> list[Path]:
    return sorted((folder / "set" / "test").glob("*.png"))[:num]


def found_labels(model: TrainedModel, chances: np.ndarray) -> list[list[str]]:
    least = np.array(model.description.chosen["thresholds"])
    names = np.array(model.description.class_names)
    return [names[row >= least].tolist() for row in chances]


@pytest.mark.plugins
@pytest.mark.slow
def test_a_server_answers_with_the_labels_by_the_thresholds(here: Path):
    from tests.plugins.serve.running import LIMITS, Running

    model, files = load_model(here / "run"), images(here)
    chances = np.asarray(model.predict(files))
    expected = found_labels(model, chances)
    server = Running(model, LIMITS)
    try:
        answers = [server.ask(file.read_bytes()) for file in files]
    finally:
        server.stop()
    for (status, answer), labels, row in zip(answers, expected, chances, strict=True):
        (one,) = answer["predictions"]
        assert status == 200 and one["labels"] == labels
        best = one["classes"][0]
        np.testing.assert_allclose(best["prob"], row.max(), rtol=1e-5)
    assert any(expected)


def test_an_exported_file_has_the_probabilities_and_the_thresholds(here: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    words = "export --workdir run --format onnx --out m.onnx --include-preprocessing"
    result = Cli(here)(*words.split())
    assert result.code == 0, result.stderr
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
    result = Cli(tmp_path)("--config", "classes.py", "--workdir", "classes")
    assert result.code == 0, result.stderr
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
