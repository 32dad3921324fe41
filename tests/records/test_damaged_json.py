"""Damage to the JSON files of a run and of an exported model: found, told, or without
effect; never a traceback, and never another prediction."""

import copy
import json
import random
import runpy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxtrain import weights
from jaxtrain.cli import main
from jaxtrain.config import Config, LeNetConfig
from jaxtrain.config.recipe import read_run
from jaxtrain.errors import UserError
from jaxtrain.export import run_saved
from jaxtrain.inference import folder, temperature
from jaxtrain.inference.model import make_model
from jaxtrain.json_files.run_id import RunId
from jaxtrain.json_files.write import write_digested
from jaxtrain.records.run_log import RunLog
from jaxtrain.records.workdir import open_workdir, read_summary
from jaxtrain.weights import description
from jaxtrain.weights.description import Description
from jaxtrain.weights.sources import SOURCES
from jaxtrain.weights.stored import abstract_weights
from tests.helpers import tiny
from tests.helpers.edited import edit
from tests.helpers.logged import logged_run
from tests.helpers.rows import each_row

DATA = {
    "source": "digits",
    "num_examples": {"train": 20, "test": 9},
    "num_classes": 3,
    "class_names": ["a", "b", "c"],
    "digest": "0" * 64,
}
ABOUT = Description(
    task="classification",
    model=LeNetConfig(),
    precision="fp32",
    image_shape=(28, 28, 1),
    num_outputs=3,
    class_names=("a", "b", "c"),
    mean=(0.25,),
    std=(0.5,),
    crop_pct=0.875,
    interpolation="bilinear",
)
SUMMARY = {
    "step": 8,
    "epoch": 2.0,
    "eval": {
        "loss": 0.5,
        "accuracy": 0.75,
        "num_examples": 9,
        "recall": [1.0, None, 0.5],
        "precision": [0.5, 0.25, 1.0],
        "confusion_matrix": [[3, 0, 0], [1, 1, 1], [0, 0, 3]],
    },
    "best": {"step": 4, "epoch": 1.0, "metric": "accuracy", "value": 0.75},
    "stopped_early": False,
    "evals_without_improvement": 0,
    "train_seconds": 12.5,
    "compile_seconds": 1.5,
    "examples_per_second": 100.5,
    "num_params": 1000,
    "device_kind": "cpu",
    "num_devices": 1,
    "num_processes": 1,
    "class_names": ["a", "b", "c"],
    "versions": {"jax": "0.10.2"},
}
LINES = [
    {"kind": "train", "step": 4, "time": 1.7e9, "epoch": 1.0, "loss": 0.5},
    {"kind": "eval", "step": 4, "time": 1.7e9, "epoch": 1.0, "split": "test"},
    {"kind": "event", "step": 5, "time": 1.7e9, "epoch": 1.2, "event": "resumed"},
    {"kind": "train", "step": 8, "time": 1.7e9, "epoch": 2.0, "loss": None},
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder `run` as a run leaves it, and `model`, as it is exported."""
    from jaxtrain.plugins.robustness.corruptions.corrupt import CORRUPTIONS

    root = tmp_path_factory.mktemp("damaged")
    run = root / "run"
    run.mkdir()
    run_id = open_workdir(run, Config(), DATA, fresh=False)
    (run / "checkpoints" / "8").mkdir()
    write_digested(run / "model.json", run_id.stamp(ABOUT.to_dict()))
    write_digested(run / "summary.json", run_id.stamp(SUMMARY))
    fitted = run_id.stamp({"temperature": 1.5, "step": 8, "split": "validation"})
    fitted |= {"num_examples": 9, "tta": None, "nll_before": 1.0, "nll_after": 0.5}
    write_digested(run / temperature.TEMPERATURE, fitted)
    errors = {name: [0.1, 0.2] for name in CORRUPTIONS}
    corruptions = {"table": "ImageNet-C", "errors": errors, "metric": "accuracy"}
    write_digested(run / "evaluation.json", run_id.stamp({"corruptions": corruptions}))
    text = "".join(json.dumps(line) + "\n" for line in LINES)
    (run / "metrics.jsonl").write_text(text)
    draws = np.random.default_rng(0)
    params, model_state = jax.tree.map(
        lambda x: draws.normal(0, 0.1, x.shape).astype(x.dtype), abstract_weights(ABOUT)
    )
    folder.write(
        make_model(ABOUT, params, model_state, {"step": 8}, "here"), root / "model"
    )
    yield root
    shutil.rmtree(root)


def read_exported(root: Path) -> Any:
    found = weights.load(str(root / "model"))
    return found.about, found.origin, sorted(found.read())


def baseline(root: Path) -> Any:
    from jaxtrain.plugins.robustness.corruption_errors import read_baseline

    return read_baseline(root / "run" / "evaluation.json", "ImageNet-C", "accuracy")


def summary(root: Path) -> Any:
    found = read_summary(root / "run", 8, None) or {}
    # A damaged name of the digest is a field that nobody reads.
    return {name: found.get(name) for name in SUMMARY}


def compare_data(root: Path) -> Any:
    return open_workdir(root / "run", Config(), DATA, fresh=False)


# What reads each file, and returns what depends on it.
READERS: dict[str, Callable[[Path], Any]] = {
    "run/config.json": lambda root: read_run(root / "run"),
    "run/data.json": compare_data,
    "run/model.json": lambda root: description.read(root / "run"),
    "run/summary.json": summary,
    "run/temperature.json": lambda root: temperature.read(
        root / "run", {"step": 8, "run": RunId.read(root / "run").value}
    ),
    "run/evaluation.json": baseline,
    "model/config.json": read_exported,
}


def flip(draw: random.Random, content: bytes) -> bytes:
    """Flip a bit."""
    place = draw.randrange(len(content))
    damaged = bytearray(content)
    damaged[place] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def change(draw: random.Random, content: bytes) -> bytes:
    """Put another value somewhere, or remove a field, and remove the digest."""
    values = json.loads(content)
    values.pop("sha256", None)
    places = list(walk(values))
    section, key = draw.choice(places)
    others = [None, True, 3, -1, 10**30, 0.5, "text", "", [], [1, "a"], {}, {"a": 1}]
    if draw.random() < 0.3:
        del section[key]
    else:
        section[key] = copy.deepcopy(draw.choice(others))
    return json.dumps(values).encode()


def walk(values: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in nested values: where it is, and its key there."""
    keys = list(values) if isinstance(values, dict) else range(len(values))
    for key in keys:
        yield values, key
        if isinstance(values[key], dict | list):
            yield from walk(values[key])


def copied(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("times", [10, pytest.param(300, marks=pytest.mark.exhaustive)])
def test_a_flipped_bit_is_found_or_changes_nothing(
    name: str, times: int, whole: Path, tmp_path: Path
):
    root, draw = copied(whole, tmp_path), random.Random(0)
    path, read = root / name, READERS[name]
    content, expected, found = path.read_bytes(), read(root), 0
    for _ in range(times):
        path.write_bytes(flip(draw, content))
        try:
            assert read(root) == expected
        except UserError as error:
            assert name in str(error) and len(str(error)) < 1500
            found += 1
        # What reads it may have written it anew.
        shutil.copytree(whole, root, dirs_exist_ok=True)
    assert found > times / 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", READERS)
def test_other_values_without_a_digest_are_told_or_taken(
    name: str, whole: Path, tmp_path: Path
):
    root, draw = copied(whole, tmp_path), random.Random(0)
    path, read = root / name, READERS[name]
    content, found = path.read_bytes(), 0
    for _ in range(300):
        path.write_bytes(change(draw, content))
        try:
            read(root)
        except UserError as error:
            assert name in str(error) or root.name in str(error)
            assert len(str(error)) < 1500
            found += 1
        shutil.copytree(whole, root, dirs_exist_ok=True)
    assert found


# A file, a field, what a hand may have written there, and the message.
BY_HAND = [
    ("run/config.json", "train.steps", "8", "got `str` - at `$.train.steps`"),
    ("run/config.json", "train.stepss", 8, "did you mean 'steps'? - at `$.train`"),
    ("run/config.json", "data.batch_size", -1, "above 0 - at `$.data`"),
    ("run/data.json", "num_examples.test", 1.5, "Expected `int`, got `float`"),
    ("run/model.json", "image_shape", [8, 8], "length 3, got 2 - at `$.image_shape`"),
    ("run/model.json", "model.name", None, "expected an object with a field `name`"),
    ("run/model.json", "std", [0], "std = (0,): expected"),
    ("run/summary.json", "step", True, "Expected `int`, got `bool` - at `$.step`"),
    ("run/temperature.json", "temperature", None, "got `null` - at `$.temperature`"),
    ("run/evaluation.json", "corruptions.errors", 1, "at `$.corruptions.errors`"),
    ("model/config.json", "jaxtrain.origin.weights", 1, "at `$.origin.weights`"),
]


@each_row(("name", "field", "value", "told"), BY_HAND)
def test_a_wrong_value_is_named_with_its_place(
    name: str, field: str, value: Any, told: str, whole: Path, tmp_path: Path
):
    root = copied(whole, tmp_path)
    values = section = json.loads((root / name).read_text())
    del values["sha256"]
    *path, last = field.split(".")
    for step in path:
        section = section[step]
    section[last] = value
    (root / name).write_text(json.dumps(values))
    with pytest.raises(UserError) as caught:
        READERS[name](root)
    assert name in str(caught.value) and told in str(caught.value)


# Contents of a file, or a further field -> the message.
HOSTILE = {
    "deep": ("[" * 900 + "]" * 900, "nested more than 64 levels"),
    "deeper": ("[" * 100_000 + "]" * 100_000, "nested more than 64 levels"),
    "objects": ('{"a":' * 900 + "1" + "}" * 900, "nested more than 64 levels"),
    "many digits": ("1" * 5000, "is beyond the limit"),
    "infinite": ("1e999", "1e999 is not a finite number"),
    "no number": ("NaN", "NaN is not a finite number"),
    "twice": ('{"a": 1, "a": 2}', "the field 'a' occurs twice"),
    "cut off": ('"', "cannot be read"),
}


@each_row(("name", "case"), [(name, case) for name in READERS for case in HOSTILE])
def test_what_json_may_not_hold_is_told(
    name: str, case: str, whole: Path, tmp_path: Path
):
    root = copied(whole, tmp_path)
    content, (value, told) = (root / name).read_text().rstrip(), HOSTILE[case]
    (root / name).write_text(content.removesuffix("}") + f', "x": {value}}}')
    with pytest.raises(UserError, match=told) as caught:
        READERS[name](root)
    assert name in str(caught.value) and len(str(caught.value)) < 1500


@pytest.mark.plugins
def test_hostile_lines_of_metrics_are_left_out(whole: Path, tmp_path: Path):
    from jaxtrain.plugins.report.examples import Examples
    from jaxtrain.plugins.report.history import read_history
    from jaxtrain.plugins.report.page import make_page

    run = copied(whole, tmp_path) / "run"
    with (run / "metrics.jsonl").open("a") as file:
        for value, _ in HOSTILE.values():
            file.write(json.dumps(LINES[0])[:-1] + f', "x": {value}}}\n')
    history = read_history(run)
    assert len(history.lines) == len(LINES)
    assert f"{len(HOSTILE)} damaged lines of metrics.jsonl" in history.missing
    assert b"<h1>run</h1>" in make_page(history, Examples())


@pytest.mark.plugins
@pytest.mark.parametrize("times", [12, pytest.param(300, marks=pytest.mark.exhaustive)])
def test_a_report_leaves_out_what_is_damaged(times: int, whole: Path, tmp_path: Path):
    from jaxtrain.plugins.report.compare import make_comparison
    from jaxtrain.plugins.report.examples import Examples
    from jaxtrain.plugins.report.history import read_history
    from jaxtrain.plugins.report.page import make_page

    root, draw = copied(whole, tmp_path), random.Random(0)
    run = root / "run"
    names = [name for name in READERS if name.startswith("run/")]
    for i in range(times):
        path = root / draw.choice([*names[:4], "run/metrics.jsonl"])
        lines = path.read_bytes().splitlines(keepends=True)
        if path.suffix == ".jsonl" and i % 2:
            chosen = draw.randrange(len(lines))
            lines[chosen] = change(draw, lines[chosen]) + b"\n"
            path.write_bytes(b"".join(lines))
        else:
            path.write_bytes((change if i % 2 else flip)(draw, b"".join(lines)))
        history = read_history(run)
        assert b"<h1>run</h1>" in make_page(history, Examples())
        make_comparison([history, read_history(whole / "run")])
        shutil.copytree(whole, root, dirs_exist_ok=True)


def log(run: Path, step: int) -> RunLog:
    return RunLog(logged_run(run, step=step), lambda: 1.5)


def test_damaged_lines_are_set_aside_once(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = copied(whole, tmp_path) / "run"
    path, aside = run / "metrics.jsonl", run / "metrics.damaged.jsonl"
    good = path.read_bytes().splitlines()
    broken = [b'{"kind": "train", "step": 4, "lo\xf3s": 1}', b'{"kind": "train"}']
    cut_off = b'{"kind": "train", "st'
    path.write_bytes(b"\n".join([good[0], *broken, *good[1:], cut_off]))
    log(run, 5).close()
    told = capsys.readouterr().err
    assert "lines 2, 3, 7 to metrics.damaged.jsonl" in told
    assert aside.read_bytes().splitlines() == [*broken, cut_off]
    # Without the line of step 8, which comes again.
    assert path.read_bytes().splitlines() == good[:3]
    log(run, 5).close()
    assert "damaged" not in capsys.readouterr().err
    assert len(aside.read_bytes().splitlines()) == 3


@pytest.mark.parametrize("times", [40, pytest.param(300, marks=pytest.mark.exhaustive)])
def test_a_config_of_others_with_other_values_is_told_or_taken(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(SOURCES, "convnet", (tiny.source("timm"),))
    path = tiny.write_folder(tmp_path / "tiny", label_names=[*"abcde"]) / "config.json"
    content, draw, found = path.read_bytes(), random.Random(1), 0
    values = json.loads(content)
    for i in range(times):
        values["pretrained_cfg"]["interpolation"] = {} if i == 0 else "bilinear"
        path.write_bytes(change(draw, json.dumps(values).encode()))
        try:
            weights.load(str(path.parent)).read()
        except UserError as error:
            assert len(str(error)) < 1500
            found += 1
    assert found


def test_verify_tells_of_each_file(
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(copied(whole, tmp_path))

    def verify(folder: str) -> tuple[int, dict[str, str]]:
        code = main(["checkpoint", "--verify", "--workdir", folder])
        lines = capsys.readouterr().out.splitlines()
        return code, dict(line.split(maxsplit=1) for line in lines)

    run = ["config.json", "data.json", "model.json", "summary.json"]
    run += ["temperature.json", "evaluation.json"]
    assert verify("run") == (0, dict.fromkeys(run, "good"))
    exported = dict.fromkeys(["config.json", "model.safetensors"], "good")
    assert verify("model") == (0, exported)
    edit(Path("run/model.json"))
    code, told = verify("run")
    assert code == 0 and "has no digest" in told["model.json"]
    for folder_, name in (("run", "model.json"), ("model", "config.json")):
        path = whole / folder_ / name
        text = path.read_text()
        Path(folder_, name).write_text(text.replace("0.5", "0.7"))
        code, told = verify(folder_)
        assert code == 1 and "DAMAGED" in told[name] and "sha256" in told[name]
    shutil.copy(whole / "model" / "config.json", "model")
    weights = Path("model/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    code, told = verify("model")
    assert code == 1 and "DAMAGED" in told["model.safetensors"]


def test_the_script_of_an_export_compares_the_digest(tmp_path: Path):
    shutil.copy(run_saved.__file__, tmp_path / "run.py")
    write_digested(tmp_path / "model.json", {"mean": (0.5,), "class_names": ["é"]})
    read = runpy.run_path(str(tmp_path / "run.py"))["read_about"]
    assert read() == {"mean": [0.5], "class_names": ["é"]}
    text = (tmp_path / "model.json").read_text()
    (tmp_path / "model.json").write_text(text.replace("0.5", "0.4"))
    with pytest.raises(ValueError, match="does not match the digest"):
        read()
    edit(tmp_path / "model.json", mean=[0.25])
    assert read()["mean"] == [0.25]
