"""Files that are not regular, or too large, are refused in a folder of a model."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxtrain import regular_file
from jaxtrain.checkpoints import orbax
from jaxtrain.cli import main
from jaxtrain.config import Config, LeNetConfig, to_json
from jaxtrain.errors import UserError
from jaxtrain.inference import temperature
from jaxtrain.json_files.run_id import RunId
from jaxtrain.json_files.write import write_json
from jaxtrain.records.workdir import open_workdir, read_summary
from jaxtrain.weights import folder
from jaxtrain.weights.description import Description
from tests.helpers.waiting import PATIENCE

DESCRIPTION = Description(
    task="classification",
    model=LeNetConfig(),
    precision="fp32",
    image_shape=(28, 28, 1),
    num_outputs=2,
    class_names=("a", "b"),
    mean=(0.5,),
    std=(0.5,),
    crop_pct=1.0,
    interpolation="bilinear",
)


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """End a test that waits for a pipe with a failure."""
    signal.alarm(int(PATIENCE))
    yield
    signal.alarm(0)


def put_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def put_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def put_device(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def put_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(regular_file.MAX_BYTES + 1)


WRONG = {
    put_pipe: "not a regular file",
    put_folder: "Is a directory",
    put_device: "not a regular file",
    put_large: "more than the limit of",
}


@pytest.mark.parametrize("put", WRONG)
def test_other_than_a_small_regular_file_is_an_error(put, tmp_path: Path):
    put(tmp_path / "x")
    with pytest.raises(OSError, match=WRONG[put]):
        regular_file.read_bytes(tmp_path / "x")


def test_socket_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # Its path may not be long.
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("x")
        with pytest.raises(OSError):
            regular_file.read_bytes("x")


def test_regular_file_is_read_whole_through_a_link(tmp_path: Path):
    (tmp_path / "x").write_bytes(b"a\xc3\xa4\n" * 1000)
    (tmp_path / "link").symlink_to("x")
    assert regular_file.read_text(tmp_path / "link") == "aä\n" * 1000
    assert regular_file.read_bytes(tmp_path / "x", 4000) == b"a\xc3\xa4\n" * 1000
    with pytest.raises(OSError, match="4000 bytes, more than the limit of 3999"):
        regular_file.read_bytes(tmp_path / "x", 3999)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A folder as `export` writes it, whose weights are never read."""
    place = tmp_path / "exported"
    place.mkdir()
    about = {"model": DESCRIPTION.to_dict(), "origin": {"weights": "?"}}
    write_json(place / "config.json", {folder.OURS: about})
    (place / "model.safetensors").touch()
    return place


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run, before its first checkpoint."""
    place = tmp_path / "run"
    (place / "checkpoints" / "3").mkdir(parents=True)
    run_id = RunId.new(place)
    (place / "config.json").write_text(to_json(Config(), run_id))
    write_json(place / "model.json", run_id.stamp(DESCRIPTION.to_dict()))
    return place


@pytest.mark.parametrize("put", [put_pipe, put_folder, put_device])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_predict_refuses_a_folder_of_weights(
    put, name: str, exported: Path, capsys: pytest.CaptureFixture[str]
):
    put(exported / name)
    words = ["--workdir", str(exported), str(Path(__file__))]
    assert main(["predict", *words]) == 2
    told = capsys.readouterr().err
    assert f"{exported / name} cannot be read" in told and WRONG[put] in told
    assert "Errno" not in told


@pytest.mark.parametrize("put", WRONG)
def test_records_of_a_run_are_refused(put, run: Path):
    put(run / "temperature.json")
    with pytest.raises(UserError, match=WRONG[put]):
        temperature.read(run, {"step": 3, "run": None})
    put(run / "summary.json")
    with pytest.raises(UserError, match=WRONG[put]):
        read_summary(run, 3, None)
    put(run / "data.json")
    with pytest.raises(UserError, match=WRONG[put]):
        open_workdir(run, Config(), {}, fresh=False)


@pytest.mark.parametrize("put", WRONG)
def test_config_of_a_run_is_refused(put, run: Path, capsys: pytest.CaptureFixture[str]):
    put(run / "config.json")
    words = ["evaluate", "--workdir", str(run)]
    assert main(words) == 2 and "config.json" in capsys.readouterr().err
    with pytest.raises(UserError, match="cannot be resumed"):
        open_workdir(run, Config(), {}, fresh=False)


@pytest.mark.parametrize("put", [*WRONG, Path.unlink])
def test_model_of_a_run_needs_its_config(put, run: Path):
    put(run / "config.json")
    told = WRONG.get(put, "No such file")
    with pytest.raises(UserError, match=rf"config\.json cannot be read \(.*{told}"):
        RunId.read(run)


@pytest.mark.plugins
def test_report_tells_of_pipes(run: Path):
    from jaxtrain.plugins.report.history import read_history

    put_pipe(run / "metrics.jsonl")
    put_pipe(run / "summary.json")
    told = [
        "metrics.jsonl cannot be read: it is not a regular file",
        "summary.json cannot be read (it is not a regular file): restore the "
        "file from a copy",
    ]
    assert [text for text in read_history(run).missing if "json" in text] == told


def test_run_does_not_append_to_a_pipe(run: Path):
    put_pipe(run / "metrics.jsonl")
    with pytest.raises(UserError, match="not writable"):
        open_workdir(run, Config(), {}, fresh=False)


def test_pipe_in_a_checkpoint_is_refused(run: Path):
    inside = run / "checkpoints" / "3" / "state" / "params"
    inside.mkdir(parents=True)
    put_pipe(inside / ".zarray")
    with pytest.raises(OSError, match="not a regular file"):
        orbax.load(run / "checkpoints" / "3")
    put_pipe(run / "checkpoints" / "3" / orbax.METADATA)
    with pytest.raises(OSError, match="not a regular file"):
        orbax.read_info(run / "checkpoints" / "3")


def test_a_private_folder_is_one_that_only_its_user_can_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, link = tmp_path / "cache" / "xla", tmp_path / "link"
    assert regular_file.make_private(folder) and regular_file.make_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    link.symlink_to(folder)
    assert regular_file.make_private(link)
    for mode, private in ((0o755, True), (0o775, False), (0o702, False)):
        folder.chmod(mode)
        assert regular_file.make_private(folder) == private
    folder.chmod(0o700)
    (tmp_path / "file").touch()
    assert not regular_file.make_private(tmp_path / "file")
    with pytest.raises(OSError):
        regular_file.make_private(tmp_path / "file" / "xla")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not regular_file.make_private(folder)
