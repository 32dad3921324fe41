"""Sounds through the command line: train, evaluate, predict, export, resume."""

import json
import shutil
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from jaxtrain import load_model
from jaxtrain.config import SoundConfig
from jaxtrain.config.recipe import load_config
from jaxtrain.plugins.sound.sound_files import decode
from tests.helpers import spoken
from tests.helpers.forked import ROOT
from tests.helpers.needs import missing
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import assert_same_run, read_lines, read_summary
from tests.helpers.waves import write_tones

pytest.importorskip("soundfile")
SOUND = "SoundConfig(sample_rate=8000, seconds=0.3, window=128, hop=64, mels=16{})"
MASKS = "AugmentConfig(time_masks=1, frequency_masks=1)"


def tones(sound: str = "", **changes: str) -> str:
    data = (
        'DataConfig(source="audio:tones", batch_size=16, eval_batch_size=8, '
        f"validation_fraction=0.25, sound={SOUND.format(sound)}, augment={MASKS})"
    )
    return recipe(
        train="TrainConfig(steps=16, eval_every_steps=8)",
        checkpoint="CheckpointConfig(every_steps=8)",
        optimizer="AdamWConfig(learning_rate=0.01)",
        **{"logging": "LoggingConfig(every_steps=1)", "data": data, **changes},
    )


def train(folder: Path, words: str = "", run: str = "run", **env: str) -> None:
    Cli(folder).done("--config", "recipe.py", "--workdir", run, *words.split(), **env)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tones and a run that has learnt them."""
    folder = tmp_path_factory.mktemp("heard")
    write_tones(folder / "tones")
    (folder / "tones" / "train" / "low" / "bad.wav").write_bytes(b"no sound")
    words = "LoggingConfig(every_steps=1, report=True)"
    write_recipe(folder / "recipe.py", tones(logging=words))
    train(folder, "--data.max-bad-fraction 0.1")
    return folder


@pytest.mark.slow
def test_a_run_learns_the_tones(here: Path):
    lines, test = read_lines(here / "run", "train"), read_summary(here / "run")["eval"]
    assert lines[-1]["loss"] < lines[0]["loss"] and test["accuracy"] > 0.9
    about = json.loads((here / "run" / "model.json").read_text())
    assert about["image_shape"] == [16, 38, 1] and about["sound"]["mels"] == 16
    page = (here / "run" / "report.html").read_text()
    assert (
        "Most confident, and correct" in page
        and "Training images" not in page.split("left out")[-1].split("<section>")[0]
    )


@pytest.mark.slow
def test_evaluate_predict_and_export_agree(here: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    cli, model = Cli(here), load_model(here / "run")
    cli.done("evaluate", "--workdir", "run")
    found = json.loads((here / "run" / "evaluation.json").read_text())["metrics"]
    assert found["accuracy"] == read_summary(here / "run")["eval"]["accuracy"]
    words = "predict --workdir run --out out.jsonl tones/test recipe.py"
    cli.done(*words.split())
    *rows, bad = map(json.loads, (here / "out.jsonl").read_text().splitlines())
    assert bad["error"] == "the file is neither WAV nor FLAC"
    right = [row["label"] == row["filename"].split("/")[2] for row in rows]
    assert np.mean(right) == found["accuracy"]
    names = [here / row["filename"] for row in rows]
    probabilities = model.predict(names)
    likeliest = [row["prob"] for row in rows]
    np.testing.assert_allclose(probabilities.max(1), likeliest, rtol=1e-4)
    words = "export --workdir run --format onnx --out m.onnx --include-preprocessing"
    cli.done(*words.split())
    session = onnxruntime.InferenceSession(here / "m.onnx")
    assert session.get_inputs()[0].shape[1:] == [2400, 1, 1]
    about = json.loads(session.get_modelmeta().custom_metadata_map["jaxtrain"])
    assert about["sound"]["sample_rate"] == 8000
    sound = SoundConfig(**about["sound"])
    clips = np.stack([decode(name.read_bytes(), sound) for name in names])
    exported = np.asarray(session.run(None, {"images": clips})[0])
    np.testing.assert_allclose(exported, probabilities, atol=1e-4)
    np.testing.assert_allclose(model.predict(list(clips)), probabilities, atol=1e-6)


@pytest.mark.slow
def test_a_server_answers_sounds(here: Path):
    from tests.plugins.serve.running import LIMITS, Running

    model, place = load_model(here / "run"), here / "tones" / "test" / "high"
    names = sorted(place.iterdir())[:2]
    assert {name.suffix for name in names} == {".wav", ".flac"}
    with Running(model, LIMITS) as server:
        answers = [server.ask(name.read_bytes()) for name in names]
        bad = [server.ask(body) for body in (b"no sound", b"")]
        _, health = server.ask(None, "/health")
        page = urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=300)
        assert b"Drop a sound here" in page.read()
    for (status, answer), expected in zip(answers, model.predict(names), strict=True):
        (found,) = answer["predictions"]
        assert (status, found["filename"]) == (200, "sound")
        probabilities = {one["index"]: one["prob"] for one in found["classes"]}
        np.testing.assert_allclose(
            [probabilities[i] for i in range(3)], expected, atol=1e-6
        )
    assert [status for status, _ in bad] == [400, 400]
    assert "sound is unreadable: the file is neither WAV" in bad[0][1]["error"]
    assert health["sound"]["sample_rate"] == 8000


@pytest.mark.slow
def test_a_run_resumes_exactly(here: Path, tmp_path: Path):
    sound = ", random_crop=True"
    (tmp_path / "tones").symlink_to(here / "tones")
    write_recipe(tmp_path / "recipe.py", tones(sound))
    bad = "--data.max-bad-fraction 0.1"
    train(tmp_path, bad, run="whole")
    train(tmp_path, f"{bad} --train.stop-after-steps 8", run="cut")
    train(tmp_path, bad, run="cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut", 16)


@pytest.mark.slow
def test_devices_do_not_change_a_run(here: Path, tmp_path: Path):
    sound = ", random_crop=True"
    (tmp_path / "tones").symlink_to(here / "tones")
    write_recipe(tmp_path / "recipe.py", tones(sound, precision='"fp64"'))
    bad = "--data.max-bad-fraction 0.1"
    train(tmp_path, bad, run="one", JAX_NUM_CPU_DEVICES="1", **FP64)
    train(tmp_path, bad, run="many", JAX_NUM_CPU_DEVICES="8", **FP64)
    losses = [
        [line["loss"] for line in read_lines(tmp_path / run, "train")]
        for run in ("one", "many")
    ]
    np.testing.assert_allclose(*losses, rtol=TOLERANCE)


@pytest.mark.slow
@each_row(
    ("words", "message"),
    [
        ("evaluate --workdir run --corruptions", "requires a model of images"),
        (
            "evaluate --workdir run --data.source synthetic:16x38x1/3/30 --split all",
            "has no effect with data.source = 'synthetic:",
        ),
        ("predict --workdir run --explain seen tones/test", "the model takes sounds"),
        ("export --workdir run --format saved --out x", "choose another --format"),
        (
            "--config recipe.py --data.image-size 32",
            "sets the size of the spectrograms",
        ),
        (
            "--config recipe.py --data.source digits",
            "only with data.source = audio:DIR_OR_FILE.csv",
        ),
    ],
)
def test_what_is_for_pictures_is_refused(here: Path, words: str, message: str):
    result = Cli(here)(*words.split())
    assert result.code == 2, result.stdout
    assert message in result.stderr, result.stderr


@pytest.mark.slow
def test_the_recipe_trains_on_what_its_script_makes(tmp_path: Path):
    if shutil.which("espeak-ng") is None:
        missing("espeak-ng is not installed: apt-get install espeak-ng")
    spoken.write(tmp_path / "spoken", num=6)
    words = "--train.epochs 1 --data.batch-size 12 --workdir run"
    Cli(tmp_path).done("--config", ROOT / "configs/sound.py", *words.split())
    assert read_summary(tmp_path / "run")["num_params"] == 66_522


def test_new_writes_a_recipe_that_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from jaxtrain.plugins.plan import estimate

    monkeypatch.setattr(estimate, "estimate", lambda config: "not timed here")
    write_tones(tmp_path / "tones")
    result = Cli(tmp_path).done("new", "--data", "tones", "--out", "new.py")
    assert "0.1" in result.stdout and "8,000 Hz" in result.stdout
    text = (tmp_path / "new.py").read_text()
    assert 'source="audio:tones"' in text and "proposed from its sounds" in text
    assert "sample_rate=8000" in text and "frequency_masks=2" in text
    assert "horizontal_flip" not in text and "image_size" not in text
    assert "Recipe for audio:tones" in text and load_config(tmp_path / "new.py")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_a_table_of_sounds_has_any_targets(tmp_path: Path, kind: str):
    place, rng = write_tones(tmp_path / "tones", num=16), np.random.default_rng(0)
    heights, rows = {"low": 3, "middle": 9, "high": 21}, []
    for file in sorted(place.rglob("*.*")):
        split, name = file.parts[-3:-1]
        split = "validation" if split == "train" and rng.random() < 0.2 else split
        targets = {
            "labels": f"{name};{'flac' if file.suffix == '.flac' else 'wav'}",
            "numbers": f"{heights[name]},{rng.integers(9)}",
        }
        rows.append(f"{file.relative_to(place)},{targets[kind]},{split}")
    columns = "pitch,luck" if kind == "numbers" else "label"
    text = "\n".join([f"path,{columns},split", *rows])
    (place / "list.csv").write_text(text)
    more, task = {
        "labels": ('label_separator=";", ', "multilabel"),
        "numbers": ('targets=("pitch", "luck"), ', "regression"),
    }[kind]
    data = (
        f'DataConfig(source="audio:tones/list.csv", batch_size=16, {more}'
        f"sound={SOUND.format('')}, augment={MASKS})"
    )
    write_recipe(tmp_path / "recipe.py", tones(data=data, task=f'"{task}"'))
    train(tmp_path, "--train.steps 8")
    test = read_summary(tmp_path / "run")["eval"]
    assert np.isfinite(test["loss"])
    if kind == "labels":
        about = json.loads((tmp_path / "run" / "model.json").read_text())
        assert about["class_names"] == ["flac", "high", "low", "middle", "wav"]
