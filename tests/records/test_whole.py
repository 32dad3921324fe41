"""Files that a user asked for: whole or not at all, after kills and on full disks."""

import errno
import json
import os
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jaxtrain import atomic_file
from jaxtrain.checkpoints import orbax
from jaxtrain.cli import main
from jaxtrain.config import Config, to_json
from jaxtrain.errors import UserError
from jaxtrain.json_files.read import has_digest
from jaxtrain.json_files.run_id import RunId
from jaxtrain.records import atomic_output as whole_lib
from jaxtrain.records.atomic_output import atomic_output, reported
from jaxtrain.records.workdir import folder_of_results
from jaxtrain.tasks.classification import Classification
from jaxtrain.tools.evaluation import evaluated_model, result as evaluation

RESULT: dict[str, Any] = {
    "data": {
        "source": "x",
        "split": "test",
        "num_examples": 9,
        "num_unreadable": 0,
        "absent_classes": [],
        "remarks": {},
    },
    "intervals": {"metrics": {"accuracy": [0.5, 0.75]}},
    "run": {"step": 8},
    "tta": None,
    "metrics": {"accuracy": 0.625},
    "sparsity": None,
    "class_names": None,
    "calibration": None,
    "out_of_distribution": None,
    "adversarial": None,
    "corruptions": None,
    "temperature": None,
}


def full(*args: Any, **options: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def left_by_a_kill(path: Path, *, folder: bool = False) -> Path:
    """Make what a process has left that was killed while it wrote a path."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    with (
        pytest.raises(RuntimeError),
        atomic_output("--out", path, folder=folder) as partial,
    ):
        raise RuntimeError
    left = partial.with_name(partial.name.replace(str(os.getpid()), str(ended.pid)))
    left.mkdir() if folder else left.touch()
    if folder:
        (left / "x").touch()
    return left


def write(path: Path, *, folder: bool = False) -> None:
    with atomic_output("--out", path, folder=folder) as partial:
        (partial / "x" if folder else partial).write_text("new")


@pytest.mark.parametrize("folder", [False, True])
def test_what_a_killed_process_has_left_is_removed(folder: bool, tmp_path: Path):
    path = tmp_path / "out"
    left = left_by_a_kill(path, folder=folder)
    assert list(tmp_path.iterdir()) == [left]
    # Of a process that lives, of another machine, of a user's own, and of another file.
    alive = f".out.{socket.gethostname()}-{os.getppid()}.partial"
    others = {alive, ".out.elsewhere-1.partial", ".out.mine.partial", "my.partial"}
    for name in others:
        (tmp_path / name).touch()
    write(path, folder=folder)
    assert {p.name for p in tmp_path.iterdir()} == {"out", *others}


def test_what_another_user_has_left_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    left = left_by_a_kill(tmp_path / "out")
    monkeypatch.setattr(whole_lib.os, "geteuid", lambda: 12345)
    write(tmp_path / "out")
    assert left.exists()


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "out.txt"
    with (
        pytest.raises(UserError, match="No space left"),
        atomic_output("--out", path),
        reported("--out", path),
    ):
        full()
    metadata = tmp_path / orbax.METADATA
    old = json.dumps({"custom_metadata": {"step": 1}, "other": 2})
    metadata.write_text(old)
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        atomic_file.write(path, "text")
    with pytest.raises(OSError, match="No space left"):
        orbax.replace_info(tmp_path, {"step": 2})
    assert metadata.read_text() == old and list(tmp_path.iterdir()) == [metadata]
    monkeypatch.undo()
    orbax.replace_info(tmp_path, {"step": 2})
    assert json.loads(metadata.read_text()) == {
        **json.loads(old),
        "custom_metadata": {"step": 2},
    }


def test_folders_made_for_a_result_go_with_it(tmp_path: Path):
    out = tmp_path / "runs" / "x" / "out.json"
    for made in (atomic_output("--out", out), folder_of_results(out.parent)):
        with pytest.raises(ZeroDivisionError), made:
            raise ZeroDivisionError
        assert list(tmp_path.iterdir()) == []
    out.parent.mkdir(parents=True)
    with pytest.raises(ZeroDivisionError), atomic_output("--out", out):
        raise ZeroDivisionError
    assert out.parent.is_dir()  # It was there.


def test_too_many_open_files_are_no_fault_of_the_place(tmp_path: Path):
    path = Path("x")
    with pytest.raises(OSError, match="Too many open"), reported("--out", path):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_an_evaluation_is_shown_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(to_json(Config(), RunId.new(run)))
    task = Classification((8, 8, 1), {"num_classes": 2})
    model = SimpleNamespace(task=task)
    monkeypatch.setattr(evaluated_model, "load_model", lambda *args: model)
    monkeypatch.setattr(evaluation, "evaluate", lambda *args: RESULT)
    words = ["evaluate", "--workdir", str(run)]
    assert main(words) == 0
    assert f"wrote {run / 'evaluation.json'}" in capsys.readouterr().out
    assert has_digest(run / "evaluation.json")
    monkeypatch.setattr(os, "replace", full)
    (run / "evaluation.json").unlink()
    assert main(words) == 2
    told = capsys.readouterr()
    assert "0.6250  (0.5000 to 0.7500)" in told.out and "wrote" not in told.out
    assert (
        told.err.count("error:") == 1 and "evaluation.json (No space left" in told.err
    )
    assert {p.name for p in run.iterdir()} == {"config.json"}
