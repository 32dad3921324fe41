"""What is given for a trained model and is none: one message says what it is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jaxtrain.cli import main
from jaxtrain.errors import UserError
from jaxtrain.inference.load import load_model
from tests.helpers import tiny
from tests.helpers.images import grey, write_folder
from tests.helpers.installed import installed
from tests.helpers.rows import each_row


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def image(at: Path) -> Path:
    path = at / "cat.JPG"
    path.write_bytes(grey(3))
    return path


def images(at: Path, name: str) -> Path:
    write_folder(at / "photos", {name: 3})
    return at / "photos"


def runs(at: Path) -> Path:
    for name in ("b", "a", "c"):
        touch(at / "runs" / name / "config.json")
    return at / "runs"


def part_of_run(at: Path, name: str) -> Path:
    touch(at / "run" / "config.json")
    touch(at / "run" / "metrics.jsonl")
    touch(at / "run" / "checkpoints" / "60" / "manifest.json")
    return at / "run" / name


def weights(at: Path) -> Path:
    tiny.write_folder(at / "given")
    (at / "given" / "config.json").unlink()
    (at / "given" / "model.safetensors").rename(at / "given" / "resnet18.safetensors")
    return at / "given"


MISTAKEN: dict[str, tuple[Callable[[Path], Path], str]] = {
    "ONNX": (lambda at: touch(at / "x.onnx"), "x.onnx is an ONNX file: run the file"),
    "StableHLO": (
        lambda at: touch(at / "x.stablehlo"),
        "x.stablehlo is a StableHLO program: run the program with jax.export",
    ),
    "saved": (
        lambda at: touch(at / "x" / "program.stablehlo").parent,
        "x is a model exported with --format saved: run the program with python ",
    ),
    "image": (image, "cat.JPG is an image: give the directory of a run"),
    "images": (lambda at: images(at, "x.png"), "photos is a folder of images: give"),
    "classes": (lambda at: images(at, "a/x.png"), "photos is a folder of images: give"),
    "recipe": (
        lambda at: touch(at / "digits.py"),
        "digits.py is a recipe: give the directory of a run of this recipe",
    ),
    "text": (lambda at: touch(at / "x.txt"), "give a weight file, .safetens"),
    "runs": (
        runs,
        "is a directory of several runs or models: give one of the directories ",
    ),
    "checkpoints": (
        lambda at: part_of_run(at, "checkpoints"),
        "is a subdirectory of a run: ",
    ),
    "step": (
        lambda at: part_of_run(at, "checkpoints/60"),
        "is a subdirectory of a run: give ",
    ),
    "weights": (weights, "is not a run: give the weight file "),
    "empty": (lambda at: touch(at / "x" / ".y").parent, "a directory without a run"),
    "nothing": (
        lambda at: at / "none",
        "none does not exist: give the directory of a run",
    ),
}


@each_row("name", MISTAKEN)
def test_it_is_told_what_it_is(name: str, tmp_path: Path):
    make, message = MISTAKEN[name]
    with pytest.raises(UserError) as told:
        load_model(make(tmp_path))
    assert message in str(told.value)
    assert "\n" not in str(told.value)


COMMANDS = ("predict cat.JPG", "evaluate", "serve --port 0", "report")
COMMANDS += ("export --format onnx --out none.onnx",)


@each_row("command", installed(COMMANDS))
@each_row("name", ["ONNX", "images", "saved"])
def test_every_command_tells_it(
    command: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    place = MISTAKEN[name][0](tmp_path)
    what = MISTAKEN[name][1].partition(" is ")[2].partition(":")[0]
    image(tmp_path)
    first, *words = command.split()
    assert main([first, "--workdir", str(place), *words]) == 2
    out, err = capsys.readouterr()
    assert err.count("error: ") == 1 and what in err and "Traceback" not in out + err
