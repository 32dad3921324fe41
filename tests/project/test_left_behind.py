"""A run of the tests leaves nothing in memory, and trusts no folder of other users."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import places
from tests.helpers.forked import ROOT
from tests.helpers.processes import ENV
from tests.helpers.rows import each_row
from tests.helpers.waiting import PATIENCE, wait_until

TESTS = """
import pathlib, time

def test_fails(tmp_path):
    (tmp_path / "large").write_bytes(bytes(100))
    pathlib.Path({mark!r}).touch()
    time.sleep({seconds})
    assert False
"""


def start(folder: Path, seconds: int, *words: str) -> "subprocess.Popen[str]":
    """Start pytest with our fixtures, and its temporary files in `folder`."""
    (folder / "temporary").mkdir()
    file = folder / "test_one.py"
    file.write_text(TESTS.format(mark=str(folder / "mark"), seconds=seconds))
    env = {**os.environ, "PYTEST_DEBUG_TEMPROOT": str(folder / "temporary")}
    env.pop("PYTEST_XDIST_WORKER", None)
    command = [*ENV, sys.executable, "-m", "pytest", "-p", "tests.conftest"]
    command += ["--rootdir", str(folder), "-p", "no:cacheprovider", str(file), *words]
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=-1, text=True)


@pytest.mark.slow
def test_a_run_that_fails_leaves_nothing(tmp_path: Path):
    process = start(tmp_path, 0, "-n", "1")
    told, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, told
    assert (tmp_path / "mark").exists()
    assert not [*(tmp_path / "temporary").iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signum", "words"), [(signal.SIGINT, ["-n", "1"]), (signal.SIGTERM, [])]
)
def test_a_run_that_is_stopped_leaves_nothing(
    tmp_path: Path, signum: signal.Signals, words: list[str]
):
    process = start(tmp_path, 3600, *words)
    wait_until((tmp_path / "mark").exists, process)
    assert [*(tmp_path / "temporary").iterdir()]
    process.send_signal(signum)
    told, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, told
    assert not [*(tmp_path / "temporary").iterdir()]


@pytest.mark.slow
def test_what_a_killed_run_leaves_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", str(tmp_path))
    code = "from tests.helpers import places; print(places.temporary(), flush=True)"
    dies = f"{code}; import os; os.kill(os.getpid(), 9)"
    lives = f"{code}; input()"
    killed = subprocess.run([sys.executable, "-c", dies], cwd=ROOT, stdout=-1)
    live = subprocess.Popen(
        [sys.executable, "-c", lives], cwd=ROOT, stdin=-1, stdout=-1, text=True
    )
    assert live.stdout is not None
    used = Path(live.stdout.readline().strip())
    left = Path(killed.stdout.decode().strip())
    assert left.is_dir() and used.is_dir()
    # Not before a minute has passed: a run locks its folder after it has made it.
    later = places.time.time() + 100
    monkeypatch.setattr(places.time, "time", lambda: later)
    places.temporary()
    assert used.is_dir() and not left.exists()
    live.communicate("\n")
    assert not used.exists()


def test_programs_are_kept_in_the_cache_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = places.cache(tmp_path)
    assert found == tmp_path / "cache" / places.CACHE
    assert found.stat().st_mode & 0o777 == 0o700
    # As the workers of xdist find it.
    monkeypatch.setenv("XDG_CACHE_HOME", str(found))
    assert places.cache(tmp_path) == found


@each_row("of_whom", ["another", "anybody", "nobody"])
def test_programs_of_other_users_are_not_run(
    of_whom: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    home = tmp_path / of_whom
    (home / places.CACHE).mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    with monkeypatch.context() as patch:
        if of_whom == "another":
            patch.setattr(os, "geteuid", lambda: 12345)
        elif of_whom == "anybody":
            (home / places.CACHE).chmod(0o777)
        else:
            patch.setenv("XDG_CACHE_HOME", str(home / "file" / "cache"))
            (home / "file").touch()
        assert places.cache(tmp_path) == tmp_path / "cache"
