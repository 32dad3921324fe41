"""Numbers of an image through the command line: a folder of PNGs and a table."""

import contextlib
import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from jaxtrain import load_model
from jaxtrain.config import AugmentConfig
from jaxtrain.config.fields import replace
from jaxtrain.config.recipe import load_config
from jaxtrain.trainer.pretrained import plan_start
from jaxtrain.trainer.setup import build_setup
from tests.helpers.counted import COLUMNS, counting, squares, write_table
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli
from tests.helpers.recipes import write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.tiers import of_plugins, thinned
from tests.helpers.words import quoted

GAUSSIAN = 'loss="gaussian"'
# Cells of other numbers in a column of the same name.
OLDER = {(i, "count"): str(40 + i % 12) for i in range(96)}
# On 8 devices: the words, and the folder of the run.
MESHES = {
    "zero1": "--parallel.preset zero1",
    "stages": "--parallel.pipeline-stages 2",
}


def train(folder: Path, words: str = "", **env: str) -> None:
    Cli(folder).done(*shlex.split(f"--config recipe.py --workdir run {words}"), **env)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that learns both columns, of which numbers are missing."""
    folder = tmp_path_factory.mktemp("counted")
    write_table(folder, cells={(i, "x"): "" for i in range(0, 96, 7)})
    write_recipe(folder / "recipe.py", counting(options=GAUSSIAN))
    train(folder)
    return folder


@pytest.mark.slow
def test_a_run_learns_and_is_told_in_the_units_of_the_data(here: Path):
    lines, test = read_lines(here / "run", "train"), read_summary(here / "run")["eval"]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert {"mae", "rmse", "r2", "coverage", "mae_of_columns"} <= test.keys()
    np.testing.assert_allclose(test["mae"], np.mean(test["mae_of_columns"]))
    assert read_summary(here / "run")["best"]["metric"] == "mae"
    about = json.loads((here / "run" / "model.json").read_text())
    assert about["column_names"] == list(COLUMNS)
    config = json.loads((here / "run" / "config.json").read_text())
    assert config["task"]["loss"] == about["task_options"]["loss"] == "gaussian"
    for name in ("mean", "std"):
        shown = ",".join(map(repr, config["task"][name]))
        assert shown == about["task_options"][name]
    mean = float(about["task_options"]["mean"].split(",")[0])
    assert abs(mean - squares(96)[1][:, 0].mean()) < 0.3


@pytest.mark.slow
def test_evaluate_predict_and_export_agree(here: Path):
    pytest.importorskip("onnxruntime")
    cli = Cli(here)
    cli.done("evaluate", "--workdir", "run", "--split", "test")
    found = json.loads((here / "run" / "evaluation.json").read_text())
    low, high = found["intervals"]["metrics"]["mae"]
    assert low < found["metrics"]["mae"] < high
    summary = read_summary(here / "run")["eval"]
    np.testing.assert_allclose(found["metrics"]["mae"], summary["mae"], rtol=1e-5)
    names = [f"{i:03}.png" for i in range(8)]
    cli.done("predict", "--workdir", "run", "--out", "out.jsonl", *names)
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
    cli.done(*shlex.split(words))
    import onnxruntime

    session = onnxruntime.InferenceSession(here / "m.onnx")
    assert [output.name for output in session.get_outputs()] == ["values"]
    ours = np.asarray(session.run(None, {"images": images})[0])
    np.testing.assert_allclose(ours, table, rtol=1e-4, atol=1e-4)
    about = json.loads(session.get_modelmeta().custom_metadata_map["jaxtrain"])
    assert about["output_names"] == columns


def pack_table(here: Path, out: Path) -> str:
    """Pack the table; return the words that choose it."""
    from jaxtrain.plugins.packed.writer import pack

    with contextlib.chdir(here):
        config = load_config(here / "recipe.py").data
        pack(config, out, format="raw", size=config.image_size)
    return f"--data.source packed:{quoted(out)}"


@pytest.mark.slow
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
        cli.done(*shlex.split(words))
        text = (tmp_path / "found.json").read_text()
        found.append(json.loads(text)["metrics"]["mae_of_columns"])
    # Sums of float32 in batches of other sizes.
    np.testing.assert_allclose(*found, rtol=1e-6)
    words = (
        f"evaluate --workdir {quoted(tmp_path)}/model {table} x count --split "
        "all --out x"
    )
    assert "data.targets to these columns, in this" in cli(*shlex.split(words)).stderr


@pytest.mark.slow
@pytest.mark.plugins
def test_a_server_answers_with_numbers_by_their_names(here: Path):
    from tests.plugins.serve.running import LIMITS, Running

    model, image = load_model(here / "run"), (here / "000.png").read_bytes()
    with Running(model, LIMITS) as server:
        status, answer = server.ask(image)
        health = server.ask(None, "/health")[1]
    (found,) = answer["predictions"]
    assert status == 200 and health["columns"] == ["count", "count_std", "x", "x_std"]
    expected = model.predict([here / "000.png"])[0]
    np.testing.assert_allclose([*found["values"].values()], expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.plugins
def test_the_report_has_the_table_of_the_columns_and_examples(here: Path):
    assert Cli(here)("report", "--workdir", "run").code == 0
    page = (here / "run" / "report.html").read_text()
    assert "<h2>Columns</h2>" in page and "interval coverage" in page
    assert "count_std" in page


@each_row(
    ("cells", "words", "message"),
    [
        ({(3, "count"): "many"}, "", "line 5: count is 'many'; give a number"),
        ({}, "--data.targets count y", "'y'"),
        ({}, "--data.augment.cutmix 1.0", "'regression': numeric targets"),
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
def test_new_writes_a_recipe_that_keeps_the_numbers_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from jaxtrain.plugins.plan import estimate

    # What it tells of the time is compiled and timed in `test_first_hour.py`.
    monkeypatch.setattr(estimate, "estimate", lambda config: "as of another test")
    write_table(tmp_path)
    words = "new --data csv:list.csv --targets count x --out recipe.py"
    result = Cli(tmp_path).done(*shlex.split(words))
    assert "count, x" in result.stdout
    config = load_config(tmp_path / "recipe.py")
    assert config.task.name == "regression" and config.data.targets == ("count", "x")
    assert config.data.crop_pct == 1 and config.data.augment == AugmentConfig()


@pytest.mark.slow
@each_row(
    ("cells", "options", "row"),
    [
        ({}, "", None),
        (
            OLDER,
            "",
            "had 4 outputs of another mean and std: head/linear",
        ),
        (OLDER, "mean=(2, 7), std=(1, 3)", None),
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
    text = counting(options=f"{GAUSSIAN}, {options}")
    write_recipe(tmp_path / "recipe.py", text)
    config = replace(
        load_config(tmp_path / "recipe.py"), "model.pretrained", str(here / "run")
    )
    start = plan_start(build_setup(config))
    assert start is not None
    found = start.rows.get("new")
    assert found == (row and f"the last layer, which {row}")
    assert bool(start.kept) == bool(row)


@pytest.mark.parametrize("mesh", thinned(2, of_plugins(MESHES, "stages")))
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
