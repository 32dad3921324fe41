"""Commands that write to a disk without room: one message, and nothing is left."""

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxtrain.checkpoints import orbax
from jaxtrain.cli import main
from tests.helpers.disks import fill
from tests.helpers.images import write_folder
from tests.helpers.installed import installed
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row

RUN = recipe(
    data='DataConfig(source="digits", batch_size=64, mean=(0.3,), std=(0.4,))',
    model='ConvNetConfig(name="convnet", width=0.5)',
    train="TrainConfig(steps=2)",
    checkpoint="CheckpointConfig()",
    logging="LoggingConfig(tensorboard=False)",
)
# Words of a command -> what it would write.
COMMANDS = {
    "average run other": "soup",
    "ensemble run other": "both",
    "compact --workdir run --flops 0.5": "smaller",
    "quantize --workdir run": "int8",
    "export --workdir run --format safetensors": "model",
    "export --workdir run --format onnx": "model.onnx",
    "export --workdir run --format stablehlo": "model.stablehlo",
    "predict --workdir run images": "found.csv",
    "report --workdir run": "report.html",
    "evaluate --workdir run": "found.json",
    "data --pack digits --format raw": "packed",
    "new --data folder:images": "photos.py",
    "find-lr --config recipe.py": "rates",
}


# What a pack has written stays: the same command goes on with it.
STAYS = {"packed"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with two finished runs, `run` and `other`, and images."""
    root = tmp_path_factory.mktemp("full")
    path = write_recipe(root / "recipe.py", RUN)
    for name, seed in (("run", 0), ("other", 1)):
        words = ["--config", str(path), "--workdir", str(root / name)]
        assert main([*words, "--seed", str(seed)]) == 0
    write_folder(root / "images", {f"{i % 2}/{i}.png": i for i in range(12)})
    yield root
    shutil.rmtree(root)


@pytest.mark.slow
@each_row("words", installed(COMMANDS))
def test_a_full_disk_is_named(
    words: str,
    runs: Path,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(runs)
    fill(disk, 0)
    path = disk / COMMANDS[words]
    assert main([*words.split(), "--out", str(path)]) == 2
    error = capfd.readouterr().err
    assert str(path) in error and "No space left on device" in error
    assert "Traceback" not in error and ".partial" not in error
    for left in disk.iterdir():
        assert left.name in {"ballast", *STAYS}
        shutil.rmtree(left) if left.is_dir() else left.unlink()


@pytest.mark.slow
@each_row("left", [8_000, 60_000, 120_000])
def test_a_disk_that_fills_while_an_ensemble_is_written(
    left: int,
    runs: Path,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    """Its checkpoint is written by a library, with errors of its own."""
    monkeypatch.chdir(runs)
    fill(disk, left)
    assert main(["ensemble", "run", "other", "--out", str(disk / "both")]) == 2
    told = f"--out {disk / 'both'}: the path is not writable (No space left on device)"
    assert told in capfd.readouterr().err
    assert [path.name for path in disk.iterdir()] == ["ballast"]


def test_an_error_of_the_system_is_one_whatever_library_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    hidden = "RESOURCE_EXHAUSTED: [os_error_code='28'] [source locations='file.cc:1']"

    def fail(*args: Any, **kwargs: Any) -> None:
        (tmp_path / "1" / "late").mkdir(parents=True)
        raise ValueError(hidden)

    monkeypatch.setattr(orbax, "_write", fail)
    with pytest.raises(OSError, match="No space left") as caught:
        orbax.write(tmp_path / "1", {}, {})
    assert caught.value.errno == errno.ENOSPC
    assert not (tmp_path / "1").exists()
