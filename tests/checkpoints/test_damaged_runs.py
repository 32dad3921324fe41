"""Whatever happens to a file of the newest checkpoint, the run ends as it would have.

Each trial copies a run that stopped in the middle, damages one file of its newest
checkpoint and lets `main` carry the run to its end; all in one process, where the
compiled programs are there already. `test_quarantine.py` shows what is restored.
"""

import collections
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxtrain.checkpoints.folder import COMMITTED, DAMAGED
from jaxtrain.checkpoints.orbax import METADATA
from jaxtrain.cli import main
from tests.helpers.damage import files, truncate, zero
from tests.helpers.processes import Cli
from tests.helpers.recipes import EIGHT_STEPS, write_recipe
from tests.helpers.runs import assert_same_run, read_lines
from tests.helpers.tiers import thinned

FIRST, BEFORE, NEWEST, END = 2, 4, 6, 8


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config, a run that nothing stopped, and one that stopped at step 6 of 8."""
    folder = tmp_path_factory.mktemp("runs")
    write_recipe(folder / "recipe.py", EIGHT_STEPS)
    words = ["--config", str(folder / "recipe.py"), "--workdir"]
    assert main([*words, str(folder / "whole")]) == 0
    part = [str(folder / "part"), "--train.stop-after-steps", str(NEWEST)]
    assert main([*words, *part]) == 0
    assert steps(folder / "part") == {str(s) for s in (FIRST, BEFORE, NEWEST)}
    return folder


def steps(workdir: Path) -> set[str]:
    return {path.name for path in (workdir / "checkpoints").iterdir()}


def kind(path: Path) -> str:
    """Name what a file of a checkpoint is: all arrays have the same two kinds."""
    if path.name == "zarr.json":
        return "array's JSON"
    return "array" if "c" in path.parts else str(path)


def by_kind(runs: Path) -> dict[str, list[Path]]:
    """Return the paths, in the folder of a step, of each kind of file."""
    newest = runs / "part" / "checkpoints" / str(NEWEST)
    found = collections.defaultdict[str, list[Path]](list)
    for path in files(newest):
        found[kind(path.relative_to(newest))].append(path.relative_to(newest))
    return found


def end_of(runs: Path, folder: Path, path: Path, damage: Callable[[Path], None]) -> str:
    """Carry a damaged copy of the run to its end, and tell what the damage came to.

    Returns:
      "harmless", "found": the step was put aside, or "uncommitted": it is gone.
    """
    shutil.copytree(runs / "part", folder)
    damage(folder / "checkpoints" / str(NEWEST) / path)
    assert main(["--config", f"{runs}/recipe.py", "--workdir", str(folder)]) == 0
    assert_same_run(runs / "whole", folder, END)
    names, aside = steps(folder), f"{DAMAGED}-{NEWEST}"
    assert names - {aside} == steps(runs / "whole")
    events = read_lines(folder, "event")
    (resumed,) = (line["step"] for line in events if line["event"] == "resumed")
    shutil.rmtree(folder)
    if aside in names:
        assert resumed == BEFORE
        return "found"
    return "harmless" if resumed == NEWEST else "uncommitted"


@pytest.mark.parametrize("damage", thinned(2, [Path.unlink, truncate]))
def test_damaged_files_change_no_run(
    runs: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
):
    """One file of each kind."""
    ends = {}
    for kind, paths in by_kind(runs).items():
        caplog.clear()
        ends[kind] = end_of(runs, tmp_path / "run", paths[-1], damage)
        assert ("moved aside" in caplog.text) == (ends[kind] == "found")
    print(ends, file=sys.stderr)
    assert ends["array"] == "found"
    # As what a kill in the middle of a save leaves.
    gone = {k for k, end in ends.items() if end == "uncommitted"}
    assert gone == ({COMMITTED} if damage is Path.unlink else set())


@pytest.mark.slow
def test_the_command_goes_behind_two_damaged_steps(runs: Path, cli: Cli):
    """Both are told of, and the run goes on from the one before."""
    folder = cli.directory / "run"
    shutil.copytree(runs / "part", folder)
    checkpoints = folder / "checkpoints"
    zero(checkpoints / str(NEWEST) / "state" / "params.conv2.kernel/c/0/0/0/0")
    truncate(checkpoints / str(BEFORE) / METADATA)
    result = cli.done("--config", runs / "recipe.py", "--workdir", folder)
    assert_same_run(runs / "whole", folder, END)
    aside = {f"{DAMAGED}-{step}" for step in (BEFORE, NEWEST)}
    assert steps(folder) == steps(runs / "whole") | aside
    assert read_lines(folder, "event")[-1]["step"] == FIRST
    for step in (BEFORE, NEWEST):
        assert f"step {step}: " in result.stderr
    assert "params.conv2.kernel" in result.stderr
    assert result.stderr.count("moved aside") == 2
