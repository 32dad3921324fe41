"""Nothing is written or removed through a link; unit by unit."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxtrain import atomic_file, links
from jaxtrain.checkpoints import folder as folder_lib
from jaxtrain.checkpoints.folder import COMMITTED, unused
from jaxtrain.checkpoints.orbax import METADATA, replace_info
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import CheckpointConfig, Config
from jaxtrain.errors import UserError
from jaxtrain.json_files.run_id import RunId
from jaxtrain.records.folder_lock import LOCK, locked
from jaxtrain.records.metrics_file import truncate_after
from jaxtrain.records.workdir import FOLDERS, METRICS, open_workdir
from jaxtrain.records.writer import APPEND, AppendedFile


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A folder outside of the workdir, which must stay as it is."""
    folder = tmp_path / "victim"
    for step in ("3", "7"):
        (folder / step).mkdir(parents=True)
        (folder / step / METADATA).write_text("{}")
    (folder / "7" / COMMITTED).touch()
    (folder / "file").write_text("precious")
    before = contents(folder)
    yield folder
    assert contents(folder) == before


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in folder.rglob("*")
    }


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_link_is_replaced_and_not_followed(victim: Path, workdir: Path):
    for name, target in (("a", victim / "file"), ("b", victim / "not there")):
        (workdir / name).symlink_to(target)
        atomic_file.write(workdir / name, "new")
        assert (workdir / name).read_text() == "new"
        assert not (workdir / name).is_symlink()
    os.link(victim / "file", workdir / "c")
    atomic_file.write(workdir / "c", "new")
    assert {p.name for p in workdir.iterdir()} == {"a", "b", "c"}


def test_two_writers_of_one_file_do_not_meet(workdir: Path):
    path = workdir / "out"
    with atomic_file.replacing(path) as one, atomic_file.replacing(path) as other:
        one.write_text("one")
        other.write_text("other")
    assert [p.name for p in workdir.iterdir()] == ["out"]
    assert path.read_text() == "one"  # The last to be renamed.


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_files_have_the_permissions_of_the_umask(umask: int, workdir: Path):
    """Workdirs are shared by groups: a private temporary file would shut them out."""
    before = os.umask(umask)
    try:
        atomic_file.write(workdir / "file", "x")
        with atomic_file.replacing(workdir / "folder", folder=True):
            pass
        os.close(links.open_in_place(workdir / "appended", APPEND))
    finally:
        os.umask(before)
    assert mode(workdir / "file") == mode(workdir / "appended") == 0o666 & ~umask
    assert mode(workdir / "folder") == 0o777 & ~umask


def test_what_is_no_regular_file_is_not_replaced(workdir: Path):
    os.mkfifo(workdir / "pipe")
    (workdir / "null").symlink_to(os.devnull)
    for name in ("pipe", "null"):
        with pytest.raises(OSError, match="is not a regular file"):
            atomic_file.write(workdir / name, "x")
        with pytest.raises(OSError, match="not a regular file"):
            atomic_file.check_writable(workdir / name)
        assert not (workdir / name).is_file()
    assert {p.name for p in workdir.iterdir()} == {"pipe", "null"}


IN_PLACE: dict[str, tuple[Callable[[Path, Path], Any], str]] = {
    "link": (lambda path, victim: path.symlink_to(victim / "file"), "is a link"),
    "dangling": (lambda path, victim: path.symlink_to(victim / "new"), "is a link"),
    "hard link": (
        lambda path, victim: os.link(victim / "file", path),
        "has 2 hard links",
    ),
    "pipe": (lambda path, victim: os.mkfifo(path), "regular file|No such device"),
    "folder": (lambda path, victim: path.mkdir(), "directory"),
}


@pytest.mark.parametrize("kind", IN_PLACE)
def test_a_file_that_is_changed_in_place_has_no_other_place(
    kind: str, victim: Path, workdir: Path
):
    make, told = IN_PLACE[kind]
    path = workdir / "metrics.damaged.jsonl"
    make(path, victim)
    with pytest.raises(OSError, match=told):
        links.open_in_place(path, APPEND)
    # Where damaged lines are set aside.
    (workdir / METRICS).write_text("{damaged")
    with pytest.raises(UserError, match=told):
        truncate_after(workdir / METRICS, 1)


def test_paths_lie_below_the_real_folder(victim: Path, workdir: Path):
    (workdir / "out").symlink_to(victim)
    (workdir / "in").symlink_to(workdir / "deep")
    (workdir / "deep").mkdir()
    (workdir.parent / "link").symlink_to(workdir)
    # The folder itself may be reached through a link, and links may stay inside.
    for root in (workdir, workdir.parent / "link"):
        for name in ("new", "in", "in/new", "deep/../deep"):
            links.check_inside(root / name, root)
        for name in ("out", "out/3", "../victim", "deep/../../victim"):
            with pytest.raises(OSError, match=f"resolves to {victim}"):
                links.check_inside(root / name, root)
    # Names that begin alike are not below each other.
    with pytest.raises(OSError, match="resolves to"):
        links.check_inside(workdir.parent / "running", workdir)
    with pytest.raises(OSError, match="resolves to"):
        links.remove_tree(workdir / "out" / "3", workdir)
    links.remove_tree(workdir / "out", workdir)  # The link alone.
    links.remove_tree(workdir / "deep", workdir)
    assert [p.name for p in workdir.iterdir()] == ["in"]


@pytest.mark.parametrize("name", [*FOLDERS, "checkpoints/7", "checkpoints/new"])
@pytest.mark.parametrize("target", ["", "not there"])
def test_a_folder_that_leads_out_of_the_workdir_is_refused(
    name: str, target: str, victim: Path, workdir: Path
):
    (workdir / name).parent.mkdir(parents=True, exist_ok=True)
    (workdir / name).symlink_to(victim / target)
    with pytest.raises(UserError, match=f"{workdir / name} resolves to") as error:
        open_workdir(workdir, Config(), {}, fresh=False)
    assert f"--workdir {workdir}: the directory is not writable" in str(error.value)


@pytest.mark.parametrize("name", [METRICS, LOCK])
@pytest.mark.parametrize("target", ["file", "not there"])
def test_a_file_of_a_run_that_is_a_link_is_refused(
    name: str, target: str, victim: Path, workdir: Path
):
    (workdir / name).symlink_to(victim / target)
    with pytest.raises(UserError, match=f"{name} is a link"), locked(workdir):
        open_workdir(workdir, Config(), {}, fresh=False)


def test_fresh_moves_links_and_not_what_they_lead_to(victim: Path, workdir: Path):
    (workdir / "checkpoints").symlink_to(victim)
    (workdir / METRICS).symlink_to(victim / "file")
    open_workdir(workdir, Config(), {}, fresh=True)
    (aside,) = workdir.parent.glob("run.old-*")
    assert os.readlink(aside / "checkpoints") == str(victim)
    assert not (workdir / "checkpoints").is_symlink()


def test_a_workdir_with_hard_links_to_a_backup_goes_on(workdir: Path):
    """As of `cp -al` or rsync: the backup stays as it is."""
    line = '{"kind": "train", "step": 1}\n'
    (workdir / METRICS).write_text(line)
    backup = workdir.parent / "backup.jsonl"
    os.link(workdir / METRICS, backup)
    open_workdir(workdir, Config(), {}, fresh=False)
    truncate_after(workdir / METRICS, 1)
    file = AppendedFile(workdir / METRICS)
    file.write(b"more\n")
    file.close()
    assert backup.read_text() == line
    assert (workdir / METRICS).read_text() == line + "more\n"


def test_checkpoints_are_removed_in_the_workdir_alone(victim: Path, workdir: Path):
    directory = workdir / "checkpoints"
    directory.symlink_to(victim)
    with contextlib.closing(
        Checkpoints(directory, CheckpointConfig(), run=RunId.new(workdir))
    ):
        pass  # It removes uncommitted steps at both ends.
    for change in (
        lambda: folder_lib.remove(directory / "7"),
        lambda: folder_lib.rename(directory, 7),
        lambda: replace_info(directory / "7", {"step": 1}),
    ):
        with pytest.raises(OSError, match="resolves to"):
            change()
    directory.unlink()
    directory.mkdir()
    for step in ("3", "7"):
        (directory / step).symlink_to(victim / step)
    with pytest.raises(OSError, match="resolves to"):
        replace_info(directory / "7", {"step": 1})
    folder_lib.remove_uncommitted(directory)
    assert [p.name for p in directory.iterdir()] == ["7"]
    folder_lib.remove(directory / "7")
    assert not [*directory.iterdir()]


def test_an_unused_name_is_that_of_no_link(workdir: Path):
    (workdir / "a.old").symlink_to(workdir / "not there")
    assert unused(workdir / "a", ".old").name == "a-1.old"
