"""Numbers of an image through the command line: a folder of PNGs and a table."""

import contextlib
import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from jaxtrain import load_model
from jaxtrain.config import AugmentConfig
from jaxtrain.config.fields import replace
from jaxtrain.config.recipe import load_config
from jaxtrain.data.packing.writer import pack
from jaxtrain.run.pretrained import plan_start
from jaxtrain.run.setup import build_setup
from tests.helpers.counted import COLUMNS, counting, squares, write_table
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli
from tests.helpers.recipes import write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.tiers import thinned
from tests.helpers.words import quoted

STEPS = 12
GAUSSIAN = '{"loss": "gaussian"}'
# Cells of other numbers in a column of the same name.
OLDER = {(i, "count"): str(40 + i % 12) for i in range(96)}
# On 8 devices: the words, and the folder of the run.
MESHES = {
    "data": "--parallel.preset data_parallel",
    "fsdp": "--parallel.preset fsdp",
    "zero1": "--parallel.preset zero1",
    "stages": "--parallel.pipeline-stages 2",
}


def train(folder: Path, words: str = "", **env: str) -> None:
    result = Cli(folder)(
        *shlex.split(f"--config recipe.py --workdir run {words}"), **env
    )
    assert result.code == 0, result.stderr


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that learns both columns, of which numbers are missing."""
    folder = tmp_path_factory.mktemp("counted")
    write_table(folder, cells={(i, "x"): "" for i in range(0, 96, 7)})
    write_recipe(folder / "recipe.py", counting(options=GAUSSIAN))
    train(folder)
    return folder


def test_a_run_learns_and_is_told_in_the_units_of_the_data(here: Path):
    lines, test = read_lines(here / "run", "train"), read_summary(here / "run")["eval"]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert {"mae", "rmse", "r2", "coverage", "mae_of_columns"} <= test.keys()
    np.testing.assert_allclose(test["mae"], np.mean(test["mae_of_columns"]))
    assert read_summary(here / "run")["best"]["metric"] == "mae"
    about = json.loads((here / "run" / "model.json").read_text())
    assert about["column_names"] == list(COLUMNS)
    config = json.loads((here / "run" / "config.json").read_text())
    assert config["task_options"] == about["task_options"]
    mean = float(about["task_options"]["mean"].split(",")[0])
    assert abs(mean - squares(96)[1][:, 0].mean()) < 0.3


def test_evaluate_predict_and_export_agree(here: Path):
    pytest.importorskip("onnxruntime")
    cli = Cli(here)
    result = cli("evaluate", "--workdir", "run", "--split", "test")
    assert result.code == 0, result.stderr
    found = json.loads((here / "run" / "evaluation.json").read_text())
    low, high = found["intervals"]["metrics"]["mae"]
    assert low < found["metrics"]["mae"] < high
    summary = read_summary(here / "run")["eval"]
    np.testing.assert_allclose(found["metrics"]["mae"], summary["mae"], rtol=1e-5)
    names = [f"{i:03}.png" for i in range(8)]
    result = cli("predict", "--workdir", "run", "--out", "out.jsonl", *names)
    assert result.code == 0, result.stderr
    rows = [json.loads(line) for line in (here / "out.jsonl").read_text().splitlines()]
    columns = ["count", "count_std", "x", "x_std"]
    assert [*rows[0]] == ["filename", *columns, "error"]
    table = np.array([[row[name] for name in columns] for row in rows])
    assert (table[:, 1::2] > 0).all()
    images = squares(96)[0][:8, ..., None]
    model = load_model(here / "run")
    np.testing.assert_allclose(model.predict(images), table, rtol=1e-5)
    result = cli("predict", "--workdir", "run", *names)
    assert "count_std" in result.stdout and f"{table[0, 0]:.4g}" in result.stdout
    words = "export --workdir run --format onnx --out m.onnx --include-preprocessing"
    result = cli(*shlex.split(words))
    assert result.code == 0, result.stderr
    import onnxruntime

    session = onnxruntime.InferenceSession(here / "m.onnx")
    assert [output.name for output in session.get_outputs()] == ["values"]
    ours = np.asarray(session.run(None, {"images": images})[0])
    np.testing.assert_allclose(ours, table, rtol=1e-4, atol=1e-4)
    about = json.loads(session.get_modelmeta().custom_metadata_map["jaxtrain"])
    assert about["output_names"] == columns


def pack_table(here: Path, out: Path) -> str:
    """Pack the table; return the words that choose it."""
    with contextlib.chdir(here):
        config = load_config(here / "recipe.py").data
        pack(config, out, format="raw", size=config.image_size)
    return f"--data.source packed:{quoted(out)}"


def test_the_same_numbers_are_evaluated_in_another_store(here: Path, tmp_path: Path):
    packed, cli = pack_table(here, tmp_path / "packed"), Cli(here)
    words = f"export --workdir run --format safetensors --out {quoted(tmp_path)}/model"
    assert cli(*shlex.split(words)).code == 0
    table = "--data.source csv:list.csv --data.targets"
    found = []
    for given in (f"run {packed}", f"{quoted(tmp_path)}/model {table} count x"):
        words = (
            f"evaluate --workdir {given} --split all --out "
            f"{quoted(tmp_path)}/found.json"
        )
        result = cli(*shlex.split(words))
        assert result.code == 0, result.stderr
        text = (tmp_path / "found.json").read_text()
        found.append(json.loads(text)["metrics"]["mae_of_columns"])
    # Sums of float32 in batches of other sizes.
    np.testing.assert_allclose(*found, rtol=1e-6)
    words = (
        f"evaluate --workdir {quoted(tmp_path)}/model {table} x count --split "
        "all --out x"
    )
    assert "name the same columns, in the same order" in cli(*shlex.split(words)).stderr


def test_an_edited_table_is_told_apart_from_another_config(here: Path, tmp_path: Path):
    write_table(tmp_path, cells=OLDER)
    write_recipe(tmp_path / "recipe.py", counting(options=GAUSSIAN))
    shutil.copytree(here / "run", tmp_path / "run")
    result = Cli(tmp_path)("--config", "recipe.py", "--workdir", "run")
    assert result.code == 2
    assert "a run of another config and other data:\n" in result.stderr
    assert "the names or the contents of its files" in result.stderr
    assert "and the data that it began with" in result.stderr


@pytest.mark.slow
def test_a_run_goes_on_with_the_same_numbers_in_another_store(
    here: Path, tmp_path: Path
):
    packed = pack_table(here, tmp_path / "packed")
    shutil.copytree(here / "run", tmp_path / "run")
    words = f"--config recipe.py --workdir {quoted(tmp_path)}/run --train.steps 13"
    swapped = Cli(here)(*shlex.split(f"{words} --data.targets x count"))
    assert swapped.code == 2 and "data.targets: " in swapped.stderr
    result = Cli(here)(*shlex.split(f"{words} {packed} --data.targets"))
    assert result.code == 0, result.stderr
    assert read_summary(tmp_path / "run")["step"] == 13


@pytest.mark.plugins
def test_a_server_answers_with_numbers_by_their_names(here: Path):
    from tests.plugins.serve.running import LIMITS, Running

    model, image = load_model(here / "run"), (here / "000.png").read_bytes()
    server = Running(model, LIMITS)
    try:
        status, answer = server.ask(image)
        health = server.ask(None, "/health")[1]
    finally:
        server.stop()
    (found,) = answer["predictions"]
    assert status == 200 and health["columns"] == ["count", "count_std", "x", "x_std"]
    expected = model.predict([here / "000.png"])[0]
    np.testing.assert_allclose([*found["values"].values()], expected, rtol=1e-5)


@pytest.mark.plugins
def test_the_report_has_the_table_of_the_columns_and_examples(here: Path):
    assert Cli(here)("report", "--workdir", "run").code == 0
    page = (here / "run" / "report.html").read_text()
    assert "<h2>Numbers</h2>" in page and "in the interval" in page
    assert "count_std" in page


@each_row(
    ("words", "message"),
    [
        ("evaluate --workdir run --calibrate", "has no classes that it would be"),
        ("predict --workdir run --topk 2 000.png", "--topk: task = 'regression' has"),
    ],
)
def test_what_is_about_classes_is_refused(here: Path, words: str, message: str):
    result = Cli(here)(*shlex.split(words))
    assert result.code == 2
    assert message in result.stderr


@each_row(
    ("cells", "words", "message"),
    [
        ({(3, "count"): "many"}, "", "line 5: count is 'many'; give a number"),
        ({(3, "x"): "inf"}, "", "line 5: x is 'inf'; give a number"),
        (
            {(i, "x"): "2" for i in range(96)},
            "",
            "the column 'x' is 2 in all 54 training examples",
        ),
        ({}, "--data.targets count y", "'y'"),
        ({}, "--data.augment.cutmix 1.0", "with task = 'regression': a part of an"),
        ({}, "--data.sampling balanced", "numbers are no classes"),
        (
            {},
            "--train.label-smoothing 0.1",
            "train.label_smoothing = 0.1 has no effect",
        ),
        (
            {},
            "--train.class-weights balanced",
            "train.class_weights = 'balanced' has no effect on regression",
        ),
        (
            {},
            "--checkpoint.best-metric accuracy",
            "checkpoint.best_metric = 'accuracy': expected loss, mae, rmse, r2",
        ),
        ({}, "--task-options delta 2", "delta = 2 has no effect on loss = 'mse'"),
    ],
)
def test_bad_input_is_named_before_the_first_step(
    tmp_path: Path, cells: dict, words: str, message: str
):
    write_table(tmp_path, cells=cells)
    write_recipe(tmp_path / "recipe.py", counting())
    result = Cli(tmp_path)(*shlex.split(f"--config recipe.py --workdir run {words}"))
    assert result.code == 2, result.stdout
    assert message in result.stderr, result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.plugins
def test_the_doctor_names_what_is_wrong_with_numbers(tmp_path: Path):
    cells = {(i, "count"): "" for i in range(5)} | {(9, "x"): "1e5"}
    write_table(tmp_path, cells=cells)
    write_recipe(tmp_path / "recipe.py", counting())
    result = Cli(tmp_path)("data", "--check", "--config", "recipe.py")
    assert result.code == 0, result.stderr
    assert "with values that are missing: count (" in result.stdout
    report = json.loads((tmp_path / "data_report" / "data_report.json").read_text())
    far = [f for f in report["findings"] if f["kind"] == "numbers_far"]
    assert [one["name"][-7:] for one in far[0]["examples"]] == ["009.png"]
    write_table(tmp_path, cells={(i, "x"): "2" for i in range(96)})
    result = Cli(tmp_path)("data", "--check", "--config", "recipe.py")
    assert result.code == 2
    assert "the column 'x' is 2 in all 54 training examples" in result.stderr


@pytest.mark.plugins
def test_new_writes_a_recipe_that_keeps_the_numbers_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from jaxtrain.plugins.plan import estimate

    # What it tells of the time is compiled and timed in `test_first_hour.py`.
    monkeypatch.setattr(estimate, "estimate", lambda config: "as of another test")
    write_table(tmp_path)
    words = "new --data csv:list.csv --targets count x --out recipe.py"
    result = Cli(tmp_path)(*shlex.split(words))
    assert result.code == 0, result.stderr
    assert "count, x" in result.stdout
    config = load_config(tmp_path / "recipe.py")
    assert config.task == "regression" and config.data.targets == ("count", "x")
    assert config.data.crop_pct == 1 and config.data.augment == AugmentConfig()


@each_row(
    ("cells", "options", "row"),
    [
        ({}, "", None),
        (
            OLDER,
            "",
            "had 4 outputs of another mean and std: head/linear",
        ),
        (OLDER, '"mean": "2,7", "std": "1,3"', None),
    ],
)
def test_numbers_in_other_units_get_a_new_head(
    here: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cells: dict,
    options: str,
    row: str | None,
):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path, cells={(i, "x"): "" for i in range(0, 96, 7)} | cells)
    text = counting(options=GAUSSIAN.replace("}", f", {options}}}"))
    write_recipe(tmp_path / "recipe.py", text)
    config = replace(
        load_config(tmp_path / "recipe.py"), "model.pretrained", str(here / "run")
    )
    start = plan_start(build_setup(config))
    assert start is not None
    found = start.rows.get("new")
    assert found == (row and f"the last layer, which {row}")
    assert bool(start.kept) == bool(row)


@pytest.mark.parametrize("mesh", thinned(2, MESHES))
def test_on_eight_devices_the_losses_are_the_same(tmp_path: Path, mesh: str):
    found = {}
    for name, words, devices in (("one", "", "1"), ("many", MESHES[mesh], "8")):
        folder = tmp_path / name
        write_table(folder, cells={(i, "x"): "" for i in range(0, 96, 7)})
        write_recipe(folder / "recipe.py", counting(options=GAUSSIAN))
        words += " --precision fp64 --data.eval-batch-size 24"
        if mesh != "stages":
            # Mixed in float32, by another program where stages share the model: the
            # last bit may differ, 6e-8.
            words += " --data.augment.mixup 0.2"
        train(folder, words, **FP64, JAX_NUM_CPU_DEVICES=devices)
        found[name] = folder / "run"
    assert read_summary(found["many"])["num_devices"] == 8
    for kind, metric in (("train", "loss"), ("train", "grad_norm"), ("eval", "mae")):
        one, many = (
            [line[metric] for line in read_lines(found[name], kind)] for name in found
        )
        np.testing.assert_allclose(many, one, rtol=TOLERANCE)
    ours, theirs = (read_summary(found[name])["eval"] for name in found)
    for metric in ("loss", "r2", "rmse_of_columns", "coverage"):
        np.testing.assert_allclose(ours[metric], theirs[metric], rtol=TOLERANCE)


@pytest.mark.slow
def test_stopped_and_resumed_on_other_devices_it_ends_the_same(
    here: Path, tmp_path: Path
):
    write_table(tmp_path, cells={(i, "x"): "" for i in range(0, 96, 7)})
    write_recipe(tmp_path / "recipe.py", counting(options=GAUSSIAN))
    words = "--precision fp64 --data.eval-batch-size 24"
    for devices, more in (("1", "--train.stop-after-steps 6"), ("8", "")):
        train(tmp_path, f"{words} {more}", **FP64, JAX_NUM_CPU_DEVICES=devices)
    one = tmp_path / "one"
    write_table(one, cells={(i, "x"): "" for i in range(0, 96, 7)})
    write_recipe(one / "recipe.py", counting(options=GAUSSIAN))
    train(one, words, **FP64)
    for name in ("loss", "mae"):
        expected, found = (
            [line[name] for line in read_lines(folder / "run", "train")]
            for folder in (one, tmp_path)
        )
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE)


@pytest.mark.slow
def test_quantiles_are_learnt_and_another_column_gets_a_new_head(
    here: Path, tmp_path: Path
):
    write_table(tmp_path)
    options = '{"loss": "quantiles"}'
    write_recipe(tmp_path / "recipe.py", counting(("x",), options))
    result = Cli(tmp_path)(
        *("--config", "recipe.py", "--workdir", "run"),
        *("--model.pretrained", str(here / "run"), "--train.steps", "120"),
    )
    assert result.code == 0, result.stderr
    assert "the last layer, which had 4 outputs" in result.stdout
    test = read_summary(tmp_path / "run")["eval"]
    assert test["r2"] > 0 and 0.5 < test["coverage"] <= 1
    assert "mae_of_columns" not in test
    values = load_model(tmp_path / "run").predict(squares(8)[0][..., None])
    assert (values[:, 1] < values[:, 0]).all() and (values[:, 0] < values[:, 2]).all()
