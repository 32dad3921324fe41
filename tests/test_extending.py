"""The examples of docs/extending.md, run as it says; and what is wrong with a part."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from jaxtrain.cli import main
from tests.helpers.processes import ROOT
from tests.helpers.runs import read_lines, read_summary

TEXT = (ROOT / "docs" / "extending.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TEXT, re.S))
COMMANDS = {
    re.search(r"my_\w+\.py", line)[0]: shlex.split(line)[2:]  # type: ignore[index]
    for line in re.findall(r"^    (python main\.py .*)$", TEXT, re.M)
}
SHORT = "--train.steps 6 --optimizer.warmup-steps 0 --train.eval-every-steps 3"
SHORT += " --checkpoint.every-steps 3 --logging.every-steps 1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the files of the page; what it imports is forgotten."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
        monkeypatch.delitem(sys.modules, Path(name).stem, raising=False)
    monkeypatch.setattr(sys, "path", sys.path[:])
    return tmp_path


def test_every_part_has_an_example_under_30_lines():
    assert len(FILES) == 6 and FILES.keys() == COMMANDS.keys()
    assert all(len(text.splitlines()) < 30 for text in FILES.values())


@pytest.mark.parametrize("name", FILES)
def test_example_trains_and_resumes(name: str, folder: Path):
    words = [*COMMANDS[name], *SHORT.split()]
    assert main([*words, "--workdir", "whole"]) == 0
    assert main([*words, "--workdir", "run", "--train.stop-after-steps", "3"]) == 0
    assert main([*words, "--workdir", "run"]) == 0
    for kind in ("train", "eval"):
        ours, theirs = (read_lines(Path(w), kind) for w in ("run", "whole"))
        assert ours == theirs
    assert read_summary(Path("whole"))["step"] == 6


def test_changed_file_is_told_at_resuming(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    words = [*COMMANDS["my_metric.py"], *SHORT.split(), "--workdir", "run"]
    assert main([*words, "--train.stop-after-steps", "3"]) == 0
    with (folder / "my_metric.py").open("a") as file:
        file.write("# changed\n")
    assert main(words) == 0
    told = "warning: my_metric.py has changed since step 3 was saved"
    assert told in capsys.readouterr().err


def test_recipe_holds_the_part_itself(folder: Path):
    recipe = """
from jaxtrain import config

def get_config():
    return config.Config(
        data=config.DataConfig(batch_size=64),
        model=config.ModelConfig(name=Small),
        optimizer=config.OptimizerConfig(learning_rate=0.1),
        train=config.TrainConfig(steps=2),
    )
"""
    (folder / "recipe.py").write_text(FILES["my_model.py"] + recipe)
    assert main(["--config", "recipe.py", "--workdir", "run"]) == 0
    assert '"recipe.py:Small"' in Path("run/config.json").read_text()


WRONG = {
    "--model.name none.py:Small": "there is no file none.py",
    "--model.name no_package.models:Small": "there is no module no_package",
    "--model.name my_model.py:Large": "has no 'Large'; it has",
    "--model.name my_model.py:first": "expected a subclass of jaxtrain.models.base",
    "--model.name broken.py:Small": "importing broken.py failed: ZeroDivisionError",
    "--model.name json.py:Small": "another module is called 'json'",
    "--model.name my_model.py:Small --model.options depth 3": "takes channels",
    "--model.options depth 3": "model.options = {'depth': 3} is for parts",
    "--optimizer.name my_model.py:last": "does not take what it is given",
    "--optimizer.name my_task.py:math": "is no class or function",
    "--data.source my_source.py:np": "is no class or function",
    "--data.source my_optimizer.py:decay_mask": "does not take what it is given",
    "--data.augment.own wrong.py:half": "it must keep both",
    "--train.metrics my_metric.py:confident": "expected a jaxtrain.tasks.metrics",
    "--train.metrics accuracy": "expected path/to/file.py:name",
    "--task my_model.py:first": "does not take what it is given",
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_part_is_refused(
    words: str, folder: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / "broken.py").write_text("1 / 0\n")
    (folder / "json.py").write_text("class Small: ...\n")
    (folder / "wrong.py").write_text(
        "def half(key, image, fill):\n    return image / 2\n"
    )
    code = main(["--config", "configs/digits.py", "--workdir", "run", *words.split()])
    assert code == 2
    assert WRONG[words] in capsys.readouterr().err
    assert not (folder / "run").exists()
