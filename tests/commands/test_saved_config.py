"""The config of a run in place of a recipe: it is read, and never run."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from jaxtrain import own
from jaxtrain.cli import main, parse
from jaxtrain.config import (
    Config,
    CustomOptimizerConfig,
    SGDConfig,
    TrainConfig,
    replace,
    to_json,
)
from jaxtrain.config.recipe import default_folder
from jaxtrain.errors import UntrustedError
from jaxtrain.json_files.run_id import RunId
from tests.helpers.installed import installed
from tests.helpers.parts import model_config
from tests.helpers.processes import Cli
from tests.helpers.recipes import EIGHT_STEPS
from tests.helpers.rows import each_row
from tests.helpers.runs import assert_same_run
from tests.helpers.words import quoted

NET, UNKNOWN = "net.py:Net", "of_a_plugin"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that was to stop early, of a model of somebody's own."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "x y"
    folder.mkdir(parents=True)
    train = TrainConfig(steps=9, stop_after_steps=4)
    config = Config(model=model_config(NET), train=train)
    (folder / "config.json").write_text(to_json(config, RunId.new(folder)))
    (tmp_path / "net.py").write_text("raise SystemExit('it was run')\n")
    return folder


@each_row("words", ["--workdir {}", "--config {}/config.json"])
def test_a_run_goes_on_with_its_own_config(words: str, run: Path):
    given = shlex.split(words.format(quoted(run)))
    for name in installed(("train", "sweep")):
        more = [] if name == "train" else ["--space", "space.py"]
        arguments = parse(name, [*given, "--seed", "3", *more])
        assert arguments.overrides.train == TrainConfig(steps=9)
        assert arguments.overrides.seed == 3
        assert arguments.config == run / "config.json"
        assert default_folder(arguments.config) == run


@each_row(
    ("words", "message"),
    [
        ("--workdir {none}", "contains no run to resume: give the directory of a run"),
        (
            "--config {run}",
            "is the directory of a run: resume the run with --workdir '{run}'",
        ),
        ("--config {none}/config.json", "config.json: no such file"),
        (
            "--config code.json",
            "--config code.json is not the config.json of a run: code",
        ),
    ],
)
def test_what_is_no_config_of_a_run_is_told(
    words: str, message: str, run: Path, capsys: pytest.CaptureFixture[str]
):
    Path("code.json").write_text("open('done', 'w')")
    places = {"run": run, "none": run / "none"}
    given = {name: quoted(place) for name, place in places.items()}
    assert main(shlex.split(words.format(**given))) == 2
    assert message.format(**places) in capsys.readouterr().err
    assert not Path("done").exists()


@each_row(
    "field",
    [
        *("task", "data.source", "model", "method"),
        *("optimizer", "optimizer.schedule"),
    ],
)
def test_a_name_that_no_plugin_here_has_is_refused(
    field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = Config(optimizer=SGDConfig(learning_rate=0.1))
    value: Any = UNKNOWN
    if field == "optimizer":
        value = CustomOptimizerConfig(name=UNKNOWN, learning_rate=0.1)
    config = replace(config, field, value)
    (tmp_path / "config.json").write_text(to_json(config, RunId.new(tmp_path)))
    assert main(["--workdir", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {field} = 'of_a_plugin'") and ": expected " in line
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize("option", ["--model", "--model.name"])
def test_code_that_a_run_names_is_not_trusted(
    option: str, run: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["--workdir", str(run), "--data.source", "digits"]
    with own.allowing_nothing():
        parse("train", words)
        with pytest.raises(UntrustedError):
            own.check_allowed("model.name", NET)
        parse("train", [*words, option, NET])
        own.check_allowed("model.name", NET)
        parse("train", [*words, "--model", NET])
        own.check_allowed("model.name", NET)
    assert main(words) == 2
    assert f"model.name = '{NET}' is custom code named only by a saved run" in (
        capsys.readouterr().err
    )
    # It is shown, and run.
    assert main([*words, "--trust"]) == 2
    told = capsys.readouterr().err
    assert f"--trust: model.name = '{NET}' is allowed" in told
    assert "SystemExit: it was run" in told


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_without_its_recipe(cli: Cli, write_config):
    words = ["--config", write_config(EIGHT_STEPS), "--workdir"]
    assert cli(*words, "whole").code == 0
    assert cli(*words, "parts", "--train.stop-after-steps", 4).code == 0
    result = cli("--workdir", "parts")
    assert result.code == 0, result.stderr
    assert_same_run(cli.directory / "whole", cli.directory / "parts", 8)
