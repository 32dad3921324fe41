"""Trials that are trained together: the members of one ensemble, with its own numbers.

A member of an ensemble whose seeds are the same is the run that has its learning rate
and its weight decay. So trials that differ in nothing else are one run, after which
each goes on, and ends, as the run that it is, from the last state of its member.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxtrain.checkpoints import manifest
from jaxtrain.checkpoints.digest import digests
from jaxtrain.checkpoints.orbax import write
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import MAX_COUNT, Config, get, own_parts
from jaxtrain.config.recipe import read_run
from jaxtrain.errors import CheckpointError, UserError
from jaxtrain.json_files.run_id import RunId, read_of_run
from jaxtrain.records import workdir as workdir_lib
from jaxtrain.records.whole import reported, whole
from jaxtrain.run.progress import Progress
from jaxtrain.tools.sweep.queue import TakenTrial
from jaxtrain.tools.sweep.space import DECAY, RATE, apply
from jaxtrain.training.state import SHARED_FIELDS

# What a run of several trials has in the place of the config's.
_SHARED: Mapping[str, Any] = {
    "train.ensemble_seeds": "same",
    # A trial whose numbers are bad is skipped by itself, and ends by itself.
    "train.max_bad_steps": MAX_COUNT,
    "logging.report": False,
}
_CHANGED = (
    *(*_SHARED, "train.ensemble", RATE, DECAY),
    *("optimizer.member_rates", "optimizer.member_decays"),
)


def check_config(config: Config, num: int) -> None:
    """Check that trials of a config can be trained together.

    Raises:
      UserError: They cannot.
    """
    reasons = {
        "train.ensemble": config.train.ensemble > 1
        and "a trial is one member of an ensemble, and cannot be one",
        "train.early_stop_patience": config.train.early_stop_patience
        and "one trial would stop the others",
        "optimizer.schedule = 'plateau'": config.optimizer.schedule == "plateau"
        and "one trial would reduce the rate of the others",
    }
    for name, reason in reasons.items():
        if reason:
            raise UserError(
                f"--together {num} with {name}: {reason}; leave one of the two out"
            )


def join(config: Config, trials: Sequence[TakenTrial]) -> Config:
    """Return the config of the run of some trials.

    Raises:
      UserError: The config, or a number of a trial, cannot be trained so.
    """
    alone = [apply(config, trial.overrides).optimizer for trial in trials]
    changes = {**_SHARED, "train.ensemble": len(trials)}
    for path, name in ((RATE, "rates"), (DECAY, "decays")):
        numbers = [getattr(one, path.partition(".")[2]) for one in alone]
        largest = max(numbers, key=lambda x: 0.0 if x is None else x)
        changes[path] = largest
        if largest:
            changes[f"optimizer.member_{name}"] = [x / largest for x in numbers]
    return apply(config, changes)


def part(together: Path, trials: Sequence[TakenTrial], config: Config) -> None:
    """Write the folders of trials that were trained together, all but their ends.

    Each has the last state of its member, and goes on from there as a run of its own.

    Args:
      together: Folder of their run, which is finished.
      trials: The trials, as its members.
      config: Config of the sweep.

    Raises:
      CheckpointError: The last state of the run cannot be read.
    """
    missing = {i: t for i, t in enumerate(trials) if not t.workdir.exists()}
    if not missing:
        return
    folder, run = together / workdir_lib.CHECKPOINTS, RunId.read(together)
    saved = Checkpoints(folder, config.checkpoint, run=run, read_only=True)
    steps = saved.steps()
    if not steps:
        raise CheckpointError(f"{folder} holds no checkpoint: restore it from a copy")
    state, info = saved.read(steps[-1])
    data = read_of_run(together / workdir_lib.DATA, dict[str, Any], run)
    if data is None:
        raise CheckpointError(f"{together}: {workdir_lib.DATA} is not there")
    # As a run settles it, with what the trials have of their own as in the sweep.
    alone = apply(read_run(together), {path: get(config, path) for path in _CHANGED})
    for index, trial in missing.items():
        own = _member(state, index)
        with (
            whole("--workdir", trial.workdir, folder=True) as partial,
            reported("--workdir", trial.workdir),
        ):
            changed = apply(alone, trial.overrides)
            new = RunId.new(partial)
            workdir_lib.write_start(partial, changed, data, new)
            progress = Progress(
                bad_steps_told=int(own["bad_steps"]["total"]),
                **{
                    name: info["progress"][name]
                    for name in ("train_seconds", "step_seconds")
                },
                seconds=info["progress"]["seconds"],
            )
            kept = {
                **{name: info[name] for name in ("versions", "statistics")},
                "config": dataclasses.asdict(changed),
                "own_parts": own_parts(changed),
                "progress": dataclasses.asdict(progress),
            }
            made_of = manifest.make(own, digests(own), kept, None, new)
            write(partial / workdir_lib.CHECKPOINTS / str(steps[-1]), own, made_of)


def _member(state: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return the state of a member, of that of all."""

    def one(x: Any) -> np.ndarray:
        return np.array(x[index])

    return {
        name: field if name in SHARED_FIELDS else jax.tree.map(one, field)
        for name, field in state.items()
    }
