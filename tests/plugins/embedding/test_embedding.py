"""Embeddings through the command line: of the digits, and of classes held out."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.neighbors import NearestNeighbors

from jaxtrain import load_model
from jaxtrain.config.recipe import load_config
from jaxtrain.data import sources
from tests.helpers.digits import read_test
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines, read_summary
from tests.plugins.serve.running import LIMITS, Running

STEPS = 16
ARCFACE = "size=8, scale=16.0"
CONTRASTIVE = 'loss="contrastive", size=8'
DATA = 'DataConfig(source="digits", batch_size=64{})'


def embedding(options: str = ARCFACE, data: str = "", logging: str = "") -> str:
    return recipe(
        task=f"EmbeddingConfig({options})",
        data=DATA.format(data),
        model='ConvNetConfig(name="convnet", width=0.125)',
        train=f"TrainConfig(steps={STEPS}, eval_every_steps=8)",
        checkpoint="CheckpointConfig(every_steps=8)",
        logging=f"LoggingConfig(every_steps=1{logging})",
    )


def train(folder: Path, words: str = "", run: str = "run") -> None:
    Cli(folder).done("--config", "recipe.py", "--workdir", run, *words.split())


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of ArcFace and eight pictures of digits."""
    folder = tmp_path_factory.mktemp("embedded")
    write_recipe(folder / "recipe.py", embedding(logging=", report=True"))
    train(folder)
    for i, image in enumerate(read_test()[0][:8]):
        Image.fromarray(image[..., 0]).save(folder / f"{i}.png")
    return folder


@pytest.mark.slow
def test_a_run_learns_and_ranks_by_recall(here: Path):
    lines, summary = read_lines(here / "run", "train"), read_summary(here / "run")
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert lines[-1]["accuracy"] > lines[0]["accuracy"]
    assert summary["best"]["metric"] == "recall_at_1"
    test = summary["eval"]
    assert test["recall_at_1"] <= test["recall_at_5"] <= test["recall_at_10"] <= 1
    about = json.loads((here / "run" / "model.json").read_text())
    assert about["num_outputs"] == 8 and about["num_centres"] == 10


@pytest.mark.slow
def test_metrics_are_those_of_the_embeddings_that_people_get(here: Path):
    vectors = load_model(here / "run").predict(read_test()[0])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    label = read_test()[1]
    near = NearestNeighbors(n_neighbors=1).fit(vectors)
    hits = label[near.kneighbors(return_distance=False)[:, 0]] == label
    test = read_summary(here / "run")["eval"]
    # One of 360 may change by float32 where two are as near.
    assert test["recall_at_1"] == pytest.approx(hits.mean(), abs=1.5 / len(label))


@pytest.mark.slow
def test_evaluate_predict_export_and_serve_agree(here: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    cli, names = Cli(here), [f"{i}.png" for i in range(8)]
    result = cli("evaluate", "--workdir", "run")
    assert result.code == 0 and "knn_accuracy" in result.stdout, result.stderr
    found = json.loads((here / "run" / "evaluation.json").read_text())
    summary = read_summary(here / "run")["eval"]
    assert found["metrics"] == pytest.approx(summary, rel=1e-5)
    words = "predict --workdir run --features f.npy --out out.jsonl"
    cli.done(*words.split(), *names)
    vectors = load_model(here / "run").predict(read_test()[0][:8])
    np.testing.assert_allclose(np.load(here / "f.npy"), vectors, atol=1e-6)
    row = json.loads((here / "out.jsonl").read_text().splitlines()[0])
    assert [*row] == ["filename", *(f"embedding_{i}" for i in range(8)), "error"]
    words = "export --workdir run --format onnx --out m.onnx --include-preprocessing"
    cli.done(*words.split())
    session = onnxruntime.InferenceSession(here / "m.onnx")
    assert [output.name for output in session.get_outputs()] == ["embedding"]
    exported = session.run(None, {"images": read_test()[0][:8]})[0]
    np.testing.assert_allclose(exported, vectors, atol=1e-5)
    with Running(load_model(here / "run"), LIMITS) as server:
        status, answer = server.ask((here / "0.png").read_bytes())
        health = server.ask(None, "/health")[1]
    assert status == 200 and health["size"] == 8
    served = answer["predictions"][0]["embedding"]
    np.testing.assert_allclose(served, vectors[0], atol=1e-6)


@pytest.mark.slow
def test_the_report_shows_nearest_neighbours(here: Path):
    page = (here / "run" / "report.html").read_text()
    assert "Nearest neighbours" in page and "Largest losses" not in page
    assert page.count('class="large') >= 8 * 4


@pytest.mark.slow
def test_a_model_for_other_images_goes_on_from_its_weights(here: Path):
    words = "--model.pretrained run --data.source synthetic:8x8x1/4/96"
    result = Cli(here).done(
        *f"--config recipe.py --workdir tuned --train.steps 4 {words}".split(),
        *["--train.eval-every-steps", "4", "--checkpoint.every-steps", "4"],
    )
    assert "had 8 outputs: class_centres" in result.stdout
    assert "new              │ the last layer" in result.stdout


@pytest.mark.slow
def test_whole_classes_are_held_out(tmp_path: Path):
    write_recipe(
        tmp_path / "recipe.py",
        embedding(
            CONTRASTIVE,
            ', repeats=2, hold_out="classes", test_fraction=0.2, '
            "validation_fraction=0.25, augment=AugmentConfig(crop_padding=1)",
        ),
    )
    train(tmp_path)
    assert read_summary(tmp_path / "run")["eval"]["recall_at_1"] > 0.5
    splits = sources.load(load_config(tmp_path / "recipe.py").data, seed=0).named()
    classes = {name: {*source.strata().tolist()} for name, source in splits.items()}
    assert {name: len(found) for name, found in classes.items()} == {
        "train": 6,
        "validation": 2,
        "test": 2,
    }
    assert len(set.union(*classes.values())) == 10


@each_row(
    ("options", "words", "message"),
    [
        (
            CONTRASTIVE,
            "--train.accumulate-steps 2",
            "compares all examples of a batch",
        ),
        (CONTRASTIVE, "--data.augment.mixup 0.2", "belongs to neither"),
        (ARCFACE, "--train.freeze class_centres", "lack the cosines that the layer"),
        (
            'loss="contrastive", margin=0.2',
            "",
            "margin = 0.2 has no effect with task.loss = 'contrastive'",
        ),
        ("margin=1.6", "", "margin = 1.6: expected 0 or more, below 1.5 radians"),
    ],
)
def test_what_has_no_meaning_is_refused(
    tmp_path: Path, options: str, words: str, message: str
):
    write_recipe(tmp_path / "recipe.py", embedding(options))
    result = Cli(tmp_path)(*f"--config recipe.py --workdir run {words}".split())
    assert result.code == 2, result.stdout
    assert message in result.stderr, result.stderr


def test_classes_are_not_held_out_from_a_classifier(tmp_path: Path):
    data = DATA.format(', hold_out="classes"')
    write_recipe(tmp_path / "recipe.py", recipe(data=data))
    result = Cli(tmp_path)("--config", "recipe.py", "--workdir", "run")
    assert result.code == 2
    assert "task = 'classification': the model cannot predict classes" in result.stderr


@pytest.mark.slow
def test_an_attack_is_refused(here: Path):
    words = "evaluate --workdir run --attack fgsm --epsilon 8/255"
    result = Cli(here)(*words.split())
    assert result.code == 2 and "loss per example" in result.stderr
