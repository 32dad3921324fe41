"""Which checkpoints stay: as configured, also after kills, and always a good one."""

import contextlib
import errno
import shutil
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxtrain.checkpoints import retention
from jaxtrain.checkpoints.folder import COMMITTED, DAMAGED
from jaxtrain.checkpoints.orbax import METADATA
from jaxtrain.checkpoints.retention import kept
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import CheckpointConfig
from jaxtrain.errors import CheckpointError, DamagedError
from jaxtrain.json_files.run_id import RunId
from tests.helpers.damage import zero
from tests.helpers.rows import each_row
from tests.helpers.saved import ABSTRACT, ACCURACY, RUN, STATE, opened

ARRAY = "state/params.conv.kernel/c/0/0/0/0"
verify = Checkpoints.read

# Accuracies by step, and the steps that stay with keep=2, keep_best=2.
KEPT: list[tuple[dict[int, float | None], set[int]]] = [
    ({}, set()),
    ({1: 0.1}, {1}),
    ({1: 0.9, 2: None, 3: None}, {1, 2, 3}),
    ({1: 0.9, 2: 0.8, 3: 0.7, 4: 0.6, 5: 0.5, 6: 0.4, 7: 0.3}, {1, 2, 6, 7}),
    ({1: 0.5, 2: 0.5, 3: 0.5, 5: 0.4, 6: 0.4}, {2, 3, 5, 6}),
    ({1: float("nan"), 2: 0.1, 3: 0.2, 5: None, 6: None}, {2, 3, 5, 6}),
    ({4: None, 8: None, 9: None, 10: None, 11: None}, {10, 11}),
]


@each_row(("accuracies", "expected"), KEPT)
def test_the_last_and_the_best_are_kept(
    accuracies: dict[int, float | None], expected: set[int]
):
    config = CheckpointConfig(keep=2, keep_best=2)
    metrics = {s: None if a is None else {"accuracy": a} for s, a in accuracies.items()}
    assert kept(metrics, config, ACCURACY) == expected


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Steps 1 to 6, of which the second is the best."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    with opened(folder, keep=9) as saved:
        for step, accuracy in enumerate([0.1, 0.9, 0.2, 0.3, 0.4, 0.5], start=1):
            saved.save(step, STATE, {}, {"accuracy": accuracy})
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def good(folder: Path, run: RunId = RUN) -> set[int]:
    """Return the steps that hold what was saved."""
    found = set()
    saved = Checkpoints(folder, CheckpointConfig(), run=run, read_only=True)
    with contextlib.closing(saved):
        for step in saved.steps():
            with contextlib.suppress(DamagedError):
                verify(saved, step)
                found.add(step)
    return found


def test_what_a_kill_left_to_remove_is_removed(folder: Path):
    """Killed after it had committed a step and before it removed those it replaces."""
    with opened(folder, keep=1, keep_best=1) as saved:
        assert saved.restore_newest(ABSTRACT)
    assert names(folder) == {"2", "6"}


def test_halves_that_a_kill_left_are_no_steps_and_go(
    folder: Path, caplog: pytest.LogCaptureFixture
):
    """Steps 5 and 6 are half written, or half removed; the folder of 7 is empty."""
    (folder / "5" / COMMITTED).unlink()
    shutil.rmtree(folder / "5" / "state")
    (folder / "6" / COMMITTED).unlink()
    (folder / "6" / METADATA).write_text("{")
    (folder / "7").mkdir()
    with opened(folder, keep=2, keep_best=0) as saved:
        restored = saved.restore_newest(ABSTRACT)
        saved.save(6, STATE, {}, None)
    assert restored and restored[1]["metrics"] == {"accuracy": 0.3}
    assert names(folder) == {"4", "6"}
    assert not caplog.text


@pytest.fixture
def once_committed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Set what to do with the folder of a step that is written, and not yet read."""

    def set_it(act: Callable[[Path], Any]) -> None:
        def act_and_verify(self: Checkpoints, step: int) -> Any:
            act(self.directory / str(step))
            return verify(self, step)

        monkeypatch.setattr(Checkpoints, "read", act_and_verify)

    return set_it


def damage(step: Path) -> None:
    zero(step / ARRAY)


def test_an_old_step_stays_until_the_new_one_was_read_back(
    folder: Path, once_committed: Callable[[Any], None]
):
    seen = []
    once_committed(lambda step: seen.append((int(step.name), good(folder))))
    with opened(folder, keep=1, keep_best=0) as saved:
        assert saved.restore_newest(ABSTRACT)
        for step in (7, 8):
            saved.save(step, STATE, {}, None)
        saved.finish()
    assert seen == [(7, {6, 7}), (8, {7, 8})]
    assert names(folder) == {"8"}


def test_reading_back_waits_for_its_turn(
    folder: Path, once_committed: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
):
    """Reading takes a second, and a twentieth of the time at most; the last is read."""
    seen: list[int] = []
    now = [100.0]

    def read(step: Path) -> None:
        seen.append(int(step.name))
        now[0] += 1

    once_committed(read)
    clock = types.SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(retention, "time", clock)
    monkeypatch.setattr(retention, "READING_SHARE", 0.05)
    with opened(folder, keep=1, keep_best=0) as saved:
        for step, left in ((7, {"7"}), (8, {"7", "8"}), (9, {"7", "9"})):
            saved.save(step, STATE, {}, None)
            saved.wait()
            assert (seen, names(folder)) == ([7], left)
            now[0] += 9  # Its turn comes after 19.
        now[0] = 120.0
        for step in (10, 11):
            saved.save(step, STATE, {}, None)
        saved.wait()
        assert (seen, names(folder)) == ([7, 10], {"10", "11"})
        saved.finish()
        assert (seen, names(folder)) == ([7, 10, 11], {"11"})
        saved.finish()
    assert seen == [7, 10, 11]


def test_a_save_that_is_not_what_was_saved_replaces_nothing(
    folder: Path, once_committed: Callable[[Any], None]
):
    once_committed(lambda step: step.name == "7" and damage(step))
    with opened(folder, keep=1, keep_best=0) as saved:
        assert saved.restore_newest(ABSTRACT)
        saved.save(7, STATE, {}, None)
        with pytest.raises(CheckpointError, match="could not save step 7"):
            saved.wait()
        assert names(folder) == {"6", f"{DAMAGED}-7"}
        assert good(folder) == {6}
        saved.save(8, STATE, {}, None)
    assert names(folder) == {"8", f"{DAMAGED}-7"}
    assert good(folder) == {8}


def test_the_only_good_step_is_never_removed(
    folder: Path, once_committed: Callable[[Any], None]
):
    """Steps 5 and 6 are damaged after the run has saved them, as is 7 while it does."""
    once_committed(lambda step: step.name == "7" and damage(step))
    with opened(folder, keep=3, keep_best=0) as saved:
        assert saved.restore_newest(ABSTRACT)
        for step in (5, 6):
            damage(folder / str(step))
        saved.save(7, STATE, {}, None)
        with pytest.raises(CheckpointError, match="could not save step 7"):
            saved.wait()
        assert good(folder) == {4}
    with opened(folder, keep=3, keep_best=0) as saved:
        restored = saved.restore_newest(ABSTRACT)
        assert restored and restored[1]["metrics"] == {"accuracy": 0.3}
        saved.save(5, STATE, {}, None)
    aside = {f"{DAMAGED}-{step}" for step in (5, 6, 7)}
    assert names(folder) == {"4", "5"} | aside


def test_a_disk_that_cannot_read_now_costs_no_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """Such as one with too many files open: no damage is known of."""

    def fail(*_: Any) -> Any:
        raise DamagedError("could not read step 7") from OSError(errno.EMFILE, "files")

    with opened(folder, keep=1, keep_best=0) as saved:
        monkeypatch.setattr(retention.manifest, "read", fail)
        saved.save(7, STATE, {}, None)
        with pytest.raises(CheckpointError, match="step 7: Too many open files"):
            saved.wait()
        monkeypatch.undo()
        assert names(folder) == {str(step) for step in range(1, 8)}
        saved.save(8, STATE, {}, None)
        saved.finish()
    assert names(folder) == {"8"}


def test_a_disk_that_removes_nothing_fails_no_save(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fail(*_: Any, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(errno.ENOTEMPTY, "Directory not empty")

    with opened(folder, keep=1, keep_best=0) as saved:
        monkeypatch.setattr(shutil, "rmtree", fail)
        for step in (7, 8):
            saved.save(step, STATE, {}, None)
        saved.finish()
        assert saved.steps()[-1] == 8
    assert "could not remove old checkpoints" in caplog.text


def test_a_best_step_that_cannot_be_rated_is_put_aside(
    folder: Path, caplog: pytest.LogCaptureFixture
):
    path = folder / "2" / METADATA
    path.write_text(path.read_text().replace('"accuracy": 0.9', '"accuracy": 0.1'))
    with opened(folder, keep=1, keep_best=2) as saved:
        saved.save(7, STATE, {}, None)
    assert (
        "step 2: the JSON of the checkpoint does not match its digest; moved aside"
        in caplog.text
    )
    assert names(folder) == {"5", "6", "7", f"{DAMAGED}-2"}
