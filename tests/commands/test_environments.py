"""Commands in poor environments: every pair of a command and two properties of one."""

import itertools
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.helpers.forked import ROOT
from tests.helpers.installed import installed
from tests.helpers.processes import Cli
from tests.helpers.recipes import EIGHT_STEPS, write_recipe
from tests.helpers.tiers import thinned
from tests.helpers.waiting import PATIENCE

# What a command is given. {run} is a trained run, {new} a folder that is not there.
COMMANDS = {
    "train": "--config {recipe} --workdir {new}",
    "sweep": "sweep --config {recipe} --space {space} --trials 1 --workdir {new}",
    "help": "--help",
    "predict": "predict --workdir {run} {image}",
    "evaluate": "evaluate --workdir {run} --out {new}.json",
    "checkpoint": "checkpoint --list --workdir {run}",
    "report": "report --workdir {run} --out {new}.html",
    "mistake": "--config {recipe} --workdir {new} --model.name nothing",
}
NAMES = [name for name, words in COMMANDS.items() if installed([words])]
# What each of them writes, in the folder or beside it.
WRITES = {
    "train": "/summary.json",
    "sweep": "/trial-0000/summary.json",
    "evaluate": ".json",
    "report": ".html",
}
# Those whose result is their output.
PRINTS = ("help", "predict", "checkpoint")
# Lines of Python that come before the program, by property.
OUTPUT = {
    "kept": "",
    "full": "os.dup2(os.open('/dev/full', os.O_WRONLY), 1)",
    "closed": "os.close(1); sys.stdout = sys.__stdout__ = None",
    "all closed": "[os.close(i) for i in range(3)]; "
    "sys.stdin = sys.stdout = sys.__stdout__ = sys.stderr = sys.__stderr__ = None",
    "unread": "r, w = os.pipe(); os.close(r); os.dup2(w, 1); os.close(w)",
    "ascii": "def ascii(i): return open(i, 'w', closefd=False, encoding='ascii')\n"
    "sys.stdout = sys.__stdout__ = ascii(1)\n"
    "sys.stderr = sys.__stderr__ = ascii(2)",
}
FOLDER = {
    "there": "",
    "gone": "os.mkdir('d'); os.chdir('d'); os.rmdir('../d')",
}
LIMIT = {
    "many files": "",
    "64 files": "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
}
HOME = {
    "home": "",
    "no home": "[os.environ.pop(x, None) for x in ('HOME', 'XDG_CACHE_HOME')]",
    "bad home": "os.environ.update(HOME='/proc/x', XDG_CACHE_HOME='/proc/y', "
    "TMPDIR='/proc/z')",
}
PROPERTIES = (NAMES, OUTPUT, FOLDER, LIMIT, HOME)


def covering() -> list[tuple[str, ...]]:
    """Return rows that have each pair of values of two properties at least once."""
    every = list(itertools.product(*PROPERTIES))

    def pairs(row: tuple[str, ...]) -> set[tuple[tuple[int, str], ...]]:
        return set(itertools.combinations(enumerate(row), 2))

    left, rows = set().union(*map(pairs, every)), list[tuple[str, ...]]()
    while left:
        best = max(every, key=lambda row: len(left & pairs(row)))
        rows.append(best)
        left -= pairs(best)
    return rows


def expected(command: str, output: str) -> int:
    """Return the exit code that the docs have for a command and its output."""
    if command == "mistake":
        return 2
    if command not in PRINTS or output in ("kept", "ascii"):
        return 0
    return 128 + signal.SIGPIPE if output == "unread" else 1


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A trained run in a folder whose name is not ASCII, and what it takes."""
    folder = tmp_path_factory.mktemp("given") / "größe ☃"
    folder.mkdir()
    recipe = write_recipe(folder / "recipe.py", EIGHT_STEPS)
    run = folder / "run"
    assert Cli(folder)("--config", recipe, "--workdir", run).code == 0
    space = folder / "space.py"
    space.write_text("def space(trial):\n    return {'optimizer.momentum': 0.5}\n")
    image = folder / "bild ü.png"
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(image)
    return {"recipe": recipe, "run": run, "space": space, "image": image}


@pytest.mark.parametrize(
    "row", thinned(5, map(pytest.param, covering())), ids=", ".join
)
def test_a_command_in_a_poor_environment(
    row: tuple[str, ...], given: dict[str, Path], cli: Cli
):
    command, output = row[:2]
    lines = [table[name] for table, name in zip(PROPERTIES[1:], row[1:], strict=True)]
    program = "\n".join(["import os, resource, sys", *filter(None, lines)])
    new = cli.directory / "neu ☃"
    words = [w.format(new=new, **given) for w in COMMANDS[command].split()]
    program += "\nfrom jaxtrain.__main__ import run\nrun()\n"
    process = cli.start(*words, program=program)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in stderr and "Exception ignored" not in stderr, stderr
    assert process.returncode == expected(command, output), stderr
    if command in WRITES:
        assert Path(f"{new}{WRITES[command]}").stat().st_size > 0
    # One message, where there is a stream for it.
    told = stderr.count("cannot write standard output")
    # What shows its start before a mistake loses that.
    goes_on = command in WRITES or command == "mistake"
    lost = output in ("full", "closed") or (output == "unread" and goes_on)
    assert told == lost, stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirection", "code"), [(">/dev/full", 1), (">&-", 1), (">&- 2>&- <&-", 1)]
)
def test_output_of_a_shell(redirection: str, code: int):
    """As the shell leaves it to Python: without `sys.stdout` where it is closed."""
    main = f"{sys.executable} {ROOT / 'main.py'} --help"
    result = subprocess.run(
        ["sh", "-c", f"{main} {redirection}"], capture_output=True, text=True
    )
    assert result.returncode == code
    assert result.stderr.count("\n") == ("2>&-" not in redirection)


@pytest.mark.exhaustive
def test_names_of_files_in_a_locale_of_ascii(cli: Cli, given: dict[str, Path]):
    """TensorStore opens no folder there; names in messages and tables are escaped."""
    ascii_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = ["--config", given["recipe"], "--workdir", "größe"]
    result = cli.process(*words, anew=True, **ascii_locale)
    assert result.code == 2
    assert "set LC_ALL=C.UTF-8 or PYTHONUTF8=1" in result.stderr
    with tempfile.TemporaryDirectory(dir="/tmp") as plain:
        run = Path(plain) / "run"
        shutil.copytree(given["run"], run)
        words = ["predict", "--workdir", run, given["image"]]
        result = cli.process(*words, anew=True, **ascii_locale)
    assert result.code == 0, result.stderr
    assert r"bild \xfc.png" in result.stdout
