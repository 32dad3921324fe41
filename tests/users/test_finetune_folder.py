"""`configs/finetune_folder.py` on a folder of images, as a user runs it."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxtrain.cli import main
from jaxtrain.training.state import split_model
from jaxtrain.trees import by_path
from jaxtrain.weights.families import RESNET
from tests.helpers import seeded
from tests.helpers.blueprints import make_blueprint
from tests.helpers.images import encode
from tests.helpers.processes import ROOT
from tests.helpers.runs import read_summary
from tests.helpers.words import quoted

CLASSES = ("ant", "bee", "cat")


def write_photos(folder: Path) -> None:
    """Write 12 images of each class, every third of them grey."""
    rng = np.random.default_rng(0)
    for number, label in enumerate(CLASSES):
        (folder / label).mkdir(parents=True)
        for index in range(12):
            pixels = rng.integers(0, 90, (48, 56 + index, 3), dtype=np.uint8)
            pixels[:, :, number] += 150
            if index % 3 == 0:
                pixels = pixels[:, :, number]
            (folder / label / f"{index}.png").write_bytes(encode(pixels))


def write_resnet18(file: Path) -> None:
    """Write weights of a ResNet-18 as timm saves them."""
    made = make_blueprint("resnet18", (224, 224, 3), 1000)
    arrays = {}
    for path, array in by_path(split_model(made.abstract())[1:]).items():
        ours = path.partition("/")[2]
        layout = RESNET.layout(ours)
        shape = layout.to_torch(np.empty(array.shape, np.uint8)).shape
        theirs = RESNET.name(ours)
        arrays[theirs] = seeded.weights(theirs, shape)
    save_file(arrays, file)


def run(command: str, *options: object, **settings: object) -> None:
    words = [f"--{key.replace('__', '.')}={value}" for key, value in settings.items()]
    assert main([*shlex.split(command), *map(str, options), *words]) == 0


@pytest.mark.exhaustive
def test_a_folder_and_a_file_of_weights_make_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    photos, file = tmp_path / "photos", tmp_path / "w.safetensors"
    write_photos(photos)
    write_resnet18(file)
    workdir = tmp_path / "run"
    train = (
        f"--config {quoted(ROOT)}/configs/finetune_folder.py --workdir "
        f"{quoted(workdir)}"
    )
    settings = {
        "data__source": f"folder:{photos}",
        "data__batch_size": 8,
        "data__image_size": 64,
        "data__validation_fraction": 0.25,
        "model__name": "resnet18",
        "model__pretrained": file,
        "logging__report": False,
        "logging__tensorboard": False,
    }
    run(train, train__epochs=2, **settings)
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "the last layer, which had 1000 outputs" in shown
    # A tenth of the images is for the test, a quarter of the rest for validation.
    summary = read_summary(workdir)
    assert summary["step"] == 2 * (24 // 8) and summary["eval"]["num_examples"] == 4
    assert summary["num_params"] == 11_689_512 - 1_000 * 513 + 3 * 513

    file.unlink()
    run(train, train__epochs=3, **settings)
    assert read_summary(workdir)["step"] == 3 * (24 // 8)
