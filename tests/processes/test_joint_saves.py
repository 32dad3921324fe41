"""Saves that all processes take part in: what each holds, other numbers, kills."""

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from jaxtrain.checkpoints.folder import committed_steps
from jaxtrain.checkpoints.orbax import load, read_info, write
from jaxtrain.trees import by_path
from tests.helpers.numerics import FP64
from tests.helpers.processes import Cli, run_two, two
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_summary
from tests.helpers.waiting import PATIENCE

# With fsdp its larger arrays are sharded over the processes.
CONFIG = recipe(
    precision='"fp64"',
    data='DataConfig(source="digits", batch_size=64, cache="stream")',
    model='ConvNetConfig(name="convnet", width=0.5)',
    optimizer="AdamWConfig(learning_rate=1e-3)",
    train="TrainConfig(steps=30, ema_decay=0.9, eval_every_steps=100)",
)
WORDS = ["--parallel.preset", "fsdp", "--checkpoint.every-steps", 10]
WORDS += ["--checkpoint.keep", 9]


def arrays(run: Path, step: int) -> dict[str, np.ndarray]:
    return by_path(load(run / "checkpoints" / str(step)))


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for path, x in one.items():
        assert x.dtype == other[path].dtype, path
        assert x.tobytes() == other[path].tobytes(), path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config file and the workdir of a run of two processes."""
    folder = tmp_path_factory.mktemp("finished")
    words = ["--config", write_recipe(folder / "recipe.py", CONFIG), *WORDS]
    result = run_two(folder, *words, "--workdir", folder / "run", **FP64)
    assert result.code == 0, result.stderr
    return folder


# The command line, which notes how many elements of each array a process copies at a
# save and loads at a start.
HELD = """
import json, jax, numpy as np
from jaxtrain.__main__ import run
from jaxtrain.checkpoints import shards, snapshot
from jaxtrain.trees import by_path

def elements(x):
    if isinstance(x, np.ndarray):
        return x.size
    return sum({str(s.index): s.data.size for s in x.addressable_shards}.values())

def noting(name, function):
    def call(*args):
        state = function(*args)
        held = {path: elements(x) for path, x in by_path(state).items()}
        with open(f"{name}-{jax.process_index()}.json", "w") as file:
            json.dump(held, file)
        return state
    return call

snapshot.take = noting("saved", snapshot.take)
shards.load_shards = noting("loaded", shards.load_shards)
run()
"""


@pytest.mark.slow
def test_no_process_holds_more_than_its_shards(finished: Path, cli: Cli):
    """Replicated arrays are copied and written by process 0 alone."""
    run = cli.directory / "run"
    words = ["--config", finished / "recipe.py", "--workdir", run, *WORDS]
    for steps in (10, 20):
        stop = ["--train.stop-after-steps", steps]
        both = [cli.start(*each, program=HELD, **FP64) for each in two(*words, *stop)]
        errors = [process.communicate(timeout=PATIENCE)[1] for process in both]
        assert [process.returncode for process in both] == [0, 0], errors
    saved, loaded = (
        [json.loads((cli.directory / f"{kind}-{i}.json").read_text()) for i in (0, 1)]
        for kind in ("saved", "loaded")
    )
    sizes = {path: x.size for path, x in arrays(run, 20).items()}
    sharded = [path for path in sizes if loaded[0][path] < sizes[path]]
    assert {"params/conv2/kernel", "params/head/kernel"} & {*sharded}
    for path, size in sizes.items():
        parts = [size // 2] * 2 if path in sharded else [size, 0]
        assert [one.get(path, 0) for one in saved] == parts, path
        assert loaded[0][path] == loaded[1][path] == parts[0], path
        # A file a shard, and another for the description.
        folder = run / "checkpoints" / "20" / "state" / path.replace("/", ".")
        files = [p for p in folder.rglob("*") if p.is_file()]
        assert len(files) == 1 + (2 if path in sharded else 1), files


@pytest.mark.slow
def test_saved_by_two_then_by_one_and_resumed_by_two(finished: Path, cli: Cli):
    """To the last bit; training itself rounds otherwise in one process."""
    run = cli.directory / "run"
    words = ["--config", finished / "recipe.py", "--workdir", run, *WORDS]
    first = run_two(cli.directory, *words, "--train.stop-after-steps", 10, **FP64)
    assert first.code == 0, first.stderr
    step = run / "checkpoints" / "10"
    by_two, info = load(step), read_info(step)
    shutil.rmtree(step)
    write(step, by_two, info)
    assert_same(arrays(finished / "run", 10), arrays(run, 10))
    last = run_two(cli.directory, *words, **FP64)
    assert last.code == 0, last.stderr
    for number in (20, 30):
        assert_same(arrays(finished / "run", number), arrays(run, number))


@pytest.mark.slow
def test_saved_by_two_and_resumed_by_one(finished: Path, cli: Cli):
    run = cli.directory / "run"
    shutil.copytree(finished / "run", run)
    words = ["--config", finished / "recipe.py", "--workdir", run, *WORDS]
    result = cli.process(*words, "--train.steps", 33, **FP64)
    assert result.code == 0, result.stderr
    assert "quarantine" not in "".join(p.name for p in (run / "checkpoints").iterdir())
    assert committed_steps(run / "checkpoints")[-1] == 33


# The command line, killed before the second call of a function.
KILLED = """
import os, signal
import jax
from jaxtrain.__main__ import run
from jaxtrain.checkpoints import handlers, joint, saving

def kill(*args):
    calls.append(args)
    if jax.process_index() == {index} and len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*args)

calls, owner, name = [], {owner}, "{name}"
function = getattr(owner, name)
setattr(owner, name, kill)
run()
"""
# From the first message of a save to its commit.
MOMENTS = [
    (0, "joint.JointSave", "collect"),
    (0, "joint.JointSave", "start"),
    (0, "joint.JointSave", "join"),
    (0, "handlers.LeadingHandler", "finalize"),
    (1, "joint.JointSave", "report"),
    (1, "saving", "write_shards"),
    (1, "joint.JointSave", "written"),
]
QUICK = ((0, "finalize"), (1, "write_shards"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("index", "owner", "name"),
    [
        pytest.param(
            index,
            owner,
            name,
            marks=() if (index, name) in QUICK else pytest.mark.exhaustive,
        )
        for index, owner, name in MOMENTS
    ],
)
def test_killed_in_the_midst_of_a_save(
    finished: Path, cli: Cli, index: int, owner: str, name: str
):
    """The checkpoint is absent, the one before is there, and the run ends the same."""
    run = cli.directory / "run"
    words = ["--config", finished / "recipe.py", "--workdir", run, *WORDS]
    program = KILLED.format(index=index, owner=owner, name=name)
    limit = ["--heartbeat-timeout", 20]
    both = [cli.start(*each, program=program, **FP64) for each in two(*words, *limit)]
    errors = [process.communicate(timeout=PATIENCE)[1] for process in both]
    codes = [process.returncode for process in both]
    assert codes[index] == -signal.SIGKILL, errors
    # Of this package, which a collective tells that another is gone; or JAX's abort.
    assert codes[1 - index] in (75, -signal.SIGABRT), errors
    assert committed_steps(run / "checkpoints") == [10]
    again = run_two(cli.directory, *words, **FP64)
    assert again.code == 0, again.stderr
    assert {p.name for p in (run / "checkpoints").iterdir()} == {"10", "20", "30"}
    for step in (10, 20, 30):
        assert_same(arrays(finished / "run", step), arrays(run, step))
    ours, theirs = (read_summary(folder) for folder in (run, finished / "run"))
    assert ours["eval"] == theirs["eval"]


# The command line, where the disk of process 1 is full from its second save on.
FULL = """
import errno, os
from jaxtrain.__main__ import run
from jaxtrain.checkpoints import saving

def full(*args):
    saves.append(args)
    if len(saves) > 1:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    write(*args)

saves, write, saving.write_shards = [], saving.write_shards, full
run()
"""


@pytest.mark.slow
def test_full_disk_of_another_process_ends_both(finished: Path, cli: Cli):
    run = cli.directory / "run"
    words = ["--config", finished / "recipe.py", "--workdir", run, *WORDS]
    words += ["--checkpoint.every-steps", 5]
    both = [cli.start(*each, program=FULL, **FP64) for each in two(*words)]
    errors = [process.communicate(timeout=PATIENCE)[1] for process in both]
    assert [process.returncode for process in both] == [1, 1], errors
    reason = "process 1: No space left on device ("
    assert f"warning: could not save step 10: {reason}" in errors[0]
    assert f"error: could not save step 20: {reason}" in errors[0]
    assert (
        "The last good checkpoint is 5. To fix the error: free disk space" in errors[0]
    )
    assert "error: stopping because process 0 ended" in errors[1]
    assert "Traceback" not in "".join(errors)
    assert {p.name for p in (run / "checkpoints").iterdir()} == {"5"}
