"""A workdir has one run at a time: a second one is refused, and changes nothing."""

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxtrain.checkpoints import store
from jaxtrain.checkpoints.folder import committed_steps
from jaxtrain.cli import main
from jaxtrain.config import Config, differences, replace, to_json
from jaxtrain.errors import Interrupted, UserError
from jaxtrain.json_files.run_id import RunId
from jaxtrain.records import folder_lock
from jaxtrain.records.folder_lock import LOCK, locked
from jaxtrain.records.run_log import RunLog
from jaxtrain.records.workdir import open_workdir, resolve_link
from jaxtrain.trainer import train
from jaxtrain.trainer.trainer import Trainer
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import assert_same_run, read_summary
from tests.helpers.waiting import PATIENCE

STEPS = 24
CONFIG = recipe(
    train=f"TrainConfig(steps={STEPS}, eval_every_steps=12)",
    logging="LoggingConfig(every_steps=8, tensorboard=False)",
)
STAGES = {
    "before the first step",
    "train at step 8",
    "save of step 10",
    "evaluation",
    "save of step 20",
    "eval at step 24",
    "end",
}
OTHER_CONFIG = ["--optimizer.learning-rate", "0.2"]
REFUSED = "another process trains in"


def start(folder: Path, workdir: Path, *words: str) -> int:
    return main(["--config", f"{folder}/recipe.py", "--workdir", str(workdir), *words])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config file and the finished workdir of a run that was alone."""
    folder = tmp_path_factory.mktemp("undisturbed")
    write_recipe(folder / "recipe.py", CONFIG)
    assert start(folder, folder / "run") == 0
    return folder


def contents(run: Path) -> dict[str, bytes]:
    """Read all files but those of checkpoints that are being written."""
    folder = run / "checkpoints"
    names = [p.name for p in run.iterdir() if p.is_file()]
    names += [f"checkpoints/{step}" for step in committed_steps(folder)]
    paths = [p for name in names for p in (run / name, *(run / name).rglob("*"))]
    return {str(p.relative_to(run)): p.read_bytes() for p in paths if p.is_file()}


def assert_unchanged(run: Path, before: dict[str, bytes]) -> None:
    assert before.items() <= contents(run).items()
    assert {p.name for p in run.iterdir()} == {p.split("/")[0] for p in before} | {
        "checkpoints"
    }


def names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


@pytest.fixture
def at_stages(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Call `act(stage)` at each stage of a run, once; it waits there."""

    def hook(act: Callable[[str], None]) -> None:
        told = set[str]()

        def once(stage: str) -> None:
            if stage in STAGES - told:
                told.add(stage)
                act(stage)

        def after(owner: Any, name: str, stage: Callable[..., str]) -> None:
            original = getattr(owner, name)

            def function(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                once(stage(*args))
                return result

            monkeypatch.setattr(owner, name, function)

        after(Trainer, "begin", lambda *_: "before the first step")
        after(RunLog, "write", lambda _, kind, step, **__: f"{kind} at step {step}")
        after(Trainer, "evaluate", lambda *_: "evaluation")
        after(train, "_write", lambda *_: "end")
        saving, told_saving = threading.Event(), store.Checkpoints.save

        def save(self: Any, step: int, *args: Any, **kwargs: Any) -> None:
            saving.clear()  # The save is not over before the others have come.
            told_saving(self, step, *args, **kwargs)
            once(f"save of step {step}")
            saving.set()

        complete = store.Checkpoints._complete

        def wait_and_complete(*args: Any) -> None:
            assert saving.wait(PATIENCE)
            complete(*args)

        monkeypatch.setattr(store.Checkpoints, "save", save)
        monkeypatch.setattr(store.Checkpoints, "_complete", wait_and_complete)

    return hook


@pytest.mark.slow
def test_second_run_is_refused_at_every_stage_of_the_first(
    undisturbed: Path,
    tmp_path: Path,
    at_stages: Callable[..., None],
    capfd: pytest.CaptureFixture[str],
):
    """Whatever it asks for, and whether it comes through a link."""
    run, link = tmp_path / "run", tmp_path / "link"
    run.mkdir()
    link.symlink_to(run)
    stages = []

    def come(stage: str) -> None:
        stages.append(stage)
        before = contents(run)
        for words in ([], ["--fresh"], OTHER_CONFIG, ["--resume-step", "10"]):
            workdir = link if words == ["--fresh"] else run
            capfd.readouterr()
            assert start(undisturbed, workdir, *words) == 2, stage
            assert capfd.readouterr().err.startswith(f"error: {REFUSED} {run}: wait")
            assert_unchanged(run, before)

    at_stages(come)
    assert start(undisturbed, link) == 0
    assert set(stages) == STAGES
    assert_same_run(undisturbed / "run", run, STEPS)
    assert names(tmp_path) == {"run", "link"}
    assert LOCK not in names(run)


@pytest.mark.slow
def test_run_without_a_checkpoint_keeps_its_config(undisturbed: Path, tmp_path: Path):
    """It would bind nobody else, were the run over."""
    run = tmp_path / "run"
    with locked(run):
        open_workdir(run, Config(), {}, fresh=False)
        before = contents(run)
        assert start(undisturbed, run, *OTHER_CONFIG) == 2
        assert_unchanged(run, before)
    assert start(undisturbed, run, "--train.stop-after-steps", "12") == 0
    assert start(undisturbed, run, *OTHER_CONFIG) == 2
    assert start(undisturbed, run) == 0
    assert_same_run(undisturbed / "run", run, STEPS)


@pytest.mark.slow
def test_lock_that_a_killed_run_has_left_keeps_nobody_out(
    undisturbed: Path, tmp_path: Path
):
    """Nor is it part of the run that is moved aside."""
    run = Path(shutil.copytree(undisturbed / "run", tmp_path / "run"))
    (run / LOCK).touch()
    assert start(undisturbed, run, "--fresh", "--train.steps", "2") == 0
    (aside,) = tmp_path.glob("run.old-*")
    assert contents(aside) == contents(undisturbed / "run")
    assert LOCK not in names(aside) | names(run)


def test_checkpoints_are_shown_while_a_run_holds_the_folder(
    digits_run: Path, tmp_path: Path
):
    run = Path(shutil.copytree(digits_run, tmp_path / "run"))
    with locked(run):
        before = contents(run)
        for how in ("--list", "--verify"):
            assert main(["checkpoint", how, "--workdir", str(run)]) == 0
        assert_unchanged(run, before)


@pytest.fixture
def small_run(tmp_path: Path) -> Path:
    """A folder that holds some files of a run."""
    run = tmp_path / "run"
    for name in ("checkpoints/10/commit_success.txt", "config.json", "notes.txt"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(name)
    return run


def files(folder: Path) -> dict[str, str]:
    paths = [p for p in folder.rglob("*") if p.is_file() and p.name != LOCK]
    return {str(p.relative_to(folder)): p.read_text() for p in paths}


def test_lock_that_an_ended_run_removes_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Between opening and locking: what is locked then is no file of the folder."""
    run, flock, removed = tmp_path / "run", fcntl.flock, []

    def remove_first(descriptor: int, how: int) -> None:
        if len(removed) < 3:
            removed.append(descriptor)
            (run / LOCK).unlink()
            if len(removed) > 1:
                run.rmdir()
        flock(descriptor, how)

    monkeypatch.setattr(folder_lock.fcntl, "flock", remove_first)
    with locked(run), pytest.raises(UserError, match=REFUSED), locked(run):
        pass
    assert len(removed) == 3


def test_runs_that_come_and_go_are_never_two_at_once(small_run: Path):
    """Each moves aside what the one before it has left."""
    inside, errors, taken = [], [], []

    def come() -> None:
        for _ in range(60):
            with contextlib.suppress(UserError), locked(small_run):
                inside.append(1)
                if len(inside) > 1 or (small_run / "mine").exists():
                    errors.append("two at once")
                (small_run / "mine").touch()
                try:
                    open_workdir(small_run, Config(), {}, fresh=True)
                except Exception as error:
                    errors.append(error)
                if (small_run / "mine").exists():
                    errors.append("not moved")
                taken.append(1)
                inside.pop()

    threads = [threading.Thread(target=come) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    moved = [*small_run.parent.glob("run.old-*")]
    assert len(moved) == len(taken) > 0
    assert all((aside / "mine").exists() for aside in moved)
    assert sum((aside / "notes.txt").exists() for aside in moved) == 1


def test_error_inside_of_a_run_is_its_own(tmp_path: Path):
    """Also one that looks like that of a lock which another holds."""
    error = BlockingIOError(errno.EAGAIN, "of a socket")
    with pytest.raises(BlockingIOError) as caught, locked(tmp_path):
        raise error
    assert caught.value is error


def test_folders_that_stay_empty_are_not_left_behind(tmp_path: Path):
    kept = tmp_path / "kept"
    kept.mkdir()
    with locked(kept), locked(tmp_path / "runs" / "new"):
        assert names(tmp_path) == {"kept", "runs"}
    assert names(tmp_path) == {"kept"}
    with locked(tmp_path / "runs" / "new"):
        (tmp_path / "runs" / "new" / "file").touch()
    assert names(tmp_path / "runs" / "new") == {"file"}


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_file_system_without_locks_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    number: int,
):
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(folder_lock.fcntl, "flock", fail)
    with locked(tmp_path):
        assert (
            f"{tmp_path}: the file system does not support file locks"
            in capfd.readouterr().err
        )
    assert not names(tmp_path)


def test_fresh_moves_all_but_the_folder(small_run: Path):
    """Whoever waits at its door, or follows a link to it, finds the new run there."""
    before, inode = files(small_run), small_run.stat().st_ino
    small_run.chmod(0o700)
    with locked(small_run):
        open_workdir(small_run, Config(), {}, fresh=True)
    (aside,) = small_run.parent.glob("run.old-*")
    assert files(aside) == before
    began = {"config.json", "data.json", "metrics.jsonl", "checkpoints"}
    assert names(small_run) == began
    assert small_run.stat().st_ino == inode
    assert aside.stat().st_mode & 0o777 == 0o700


def test_fresh_that_a_signal_stops_moves_nothing(
    small_run: Path, monkeypatch: pytest.MonkeyPatch
):
    before, rename = files(small_run), Path.rename

    def interrupt(self: Path, target: Path) -> Path:
        moved = rename(self, target)
        if target.name == "notes.txt" and target.parent != small_run:
            raise Interrupted(signal.SIGINT, "between two of the names")
        return moved

    monkeypatch.setattr(Path, "rename", interrupt)
    with locked(small_run), pytest.raises(Interrupted):
        open_workdir(small_run, Config(), {}, fresh=True)
    assert files(small_run) == before
    assert names(small_run.parent) == {"run"}


def test_run_that_a_kill_of_fresh_left_in_parts_is_refused(small_run: Path):
    """Its checkpoints are the last to go: it is not taken for a new run."""
    (small_run / "config.json").unlink()
    with (
        locked(small_run),
        pytest.raises(UserError, match=r"config\.json does not exist"),
    ):
        open_workdir(small_run, Config(), {}, fresh=False)
    assert set(files(small_run)) >= {"checkpoints/10/commit_success.txt"}


@pytest.mark.slow
def test_fresh_that_cannot_move_all_moves_nothing(disk: Path, small_run: Path):
    """A disk is mounted in the folder: it stays, after other files have been moved."""
    run = disk.parent
    shutil.copytree(small_run, run, dirs_exist_ok=True)
    shutil.rmtree(small_run)
    before, beside = files(run), names(run.parent)
    message = "--fresh: cannot move the old run in .* resource busy"
    with locked(run), pytest.raises(UserError, match=message):
        open_workdir(run, Config(), {}, fresh=True)
    assert files(run) == before
    assert names(run.parent) == beside


def links(tmp_path: Path, undisturbed: Path) -> tuple[Path, Path]:
    """Return a link, and a folder elsewhere that it leads to, with a finished run."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run = Path(shutil.copytree(undisturbed / "run", elsewhere / "run"))
    link = tmp_path / "link"
    link.symlink_to(run)
    return link, run


@pytest.mark.slow
def test_fresh_through_a_link_stays_where_that_leads(undisturbed: Path, tmp_path: Path):
    link, run = links(tmp_path, undisturbed)
    assert start(undisturbed, link, "--fresh", "--train.steps", "2") == 0
    assert os.readlink(link) == str(run)
    assert read_summary(run)["step"] == 2
    (aside,) = (tmp_path / "elsewhere").glob("run.old-*")
    assert contents(aside) == contents(undisturbed / "run")
    assert names(tmp_path) == {"link", "elsewhere"}


@pytest.mark.slow
def test_run_stays_where_its_link_led(
    undisturbed: Path, tmp_path: Path, at_stages: Callable[..., None]
):
    """Such as `latest`, which is then set to the next run."""
    link, run = links(tmp_path, undisturbed)
    shutil.rmtree(run)
    other = tmp_path / "other"

    def turn(stage: str) -> None:
        if stage == "train at step 8":
            link.unlink()
            link.symlink_to(other)

    at_stages(turn)
    assert start(undisturbed, link) == 0
    assert not other.exists()
    assert_same_run(undisturbed / "run", run, STEPS)


@pytest.mark.slow
def test_link_that_leads_nowhere(
    undisturbed: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    """Its folder is made, as any workdir; that of a disk that is not there is not."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "disk" / "run")
    assert start(undisturbed, link) == 2
    error = capfd.readouterr().err
    assert f"--workdir {link} is a link to {tmp_path}/disk/run" in error
    assert f"{tmp_path}/disk does not exist: mount or create {tmp_path}/disk" in error
    assert names(tmp_path) == {"link"}
    assert start(undisturbed, link / "digits") == 2  # A folder behind the link.
    assert f"{link} is a link to {tmp_path}/disk/run" in capfd.readouterr().err
    assert names(tmp_path) == {"link"}
    (tmp_path / "disk").mkdir()
    assert start(undisturbed, link, "--train.steps", "2") == 0
    assert read_summary(tmp_path / "disk" / "run")["step"] == 2


def test_path_without_links_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In messages it is what the user wrote."""
    monkeypatch.chdir(os.path.realpath(tmp_path))
    assert resolve_link(Path("runs/digits")) == Path("runs/digits")
    os.symlink("loop", "loop")
    with (
        pytest.raises(UserError, match="--workdir loop"),
        locked(resolve_link(Path("loop"))),
    ):
        pass


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"optimizer.learning_rate": 0.5},
            "the config of the run (--optimizer.learning-rate None), give "
            "--fresh to move the run aside and start a new run, or choose another "
            "--workdir (to start from the weights of the run: --model.pretrained "
            "{run})",
        ),
        (
            {"data.channels": 3, "precision": "bf16"},
            "the config of the run (--precision fp32 --data.channels None), ",
        ),
        ({"model.width": 0.5}, "start a new run, or choose another --workdir"),
        (
            {"data.augment.own": ("a.py:f",)},
            "Resume with the config of the run, give --fresh",
        ),
    ],
)
def test_another_config_is_told_with_what_can_be_done(
    changes: dict[str, Any], told: str, tmp_path: Path
):
    workdir, other = tmp_path / "my run", Config()
    (workdir / "checkpoints" / "3").mkdir(parents=True)
    (workdir / "config.json").write_text(to_json(Config(), RunId.new(workdir)))
    for path, value in changes.items():
        other = replace(other, path, value)
    with pytest.raises(UserError) as error:
        open_workdir(workdir, other, {}, fresh=False)
    assert told.format(run=f"'{workdir}'") in str(error.value)


def test_what_watches_a_run_may_change():
    other = Config()
    for path, value in {
        "train.early_stop_patience": 3,
        "train.early_stop_metric": "accuracy",
        "train.eval_every_steps": 7,
        "checkpoint.every_steps": 9,
        "logging.every_steps": 11,
    }.items():
        other = replace(other, path, value)
    assert differences(Config(), other) == []


def test_name_that_is_not_utf8_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """TensorStore would fail at the first save, and at the first load."""
    write_recipe(tmp_path / "run.py", recipe())
    name = tmp_path / "run\udcff"
    words = ["--config", str(tmp_path / "run.py"), "--workdir", str(name)]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "run\\udcff: a directory name in this path is not UTF-8" in told
    assert not name.exists()
    (name / "checkpoints").mkdir(parents=True)
    assert main(["checkpoint", "--list", "--workdir", str(name)]) == 2
    assert "is not UTF-8" in capsys.readouterr().err
