"""Python API for training and evaluation, for scripts and notebooks."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxtrain import own, starting
from jaxtrain.checkpoints import CHECKPOINTS
from jaxtrain.checkpoints.folder import newest_step
from jaxtrain.config import Config, allow_own, replace
from jaxtrain.config.recipe import is_run, read_run
from jaxtrain.console import guarded
from jaxtrain.errors import Interrupted, UserError
from jaxtrain.parallel import devices
from jaxtrain.processes.signals import StopSignals
from jaxtrain.tools.evaluation.evaluated_model import open_model
from jaxtrain.tools.evaluation.result import Asked, evaluate as evaluate_model, views_of
from jaxtrain.trainer import train as run
from jaxtrain.trainer.callback import Callback, Callbacks, make_callbacks
from jaxtrain.trainer.trainer import Trainer
from jaxtrain.weights.trust import trust_recipe


def train(
    config: Config,
    workdir: str | os.PathLike[str],
    *,
    fresh: bool = False,
    resume_step: int | None = None,
    trust: bool = False,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Train, or resume the run in `workdir`; return the summary.

    The function can be called repeatedly in one process. Terminals and notebooks show
    a progress bar. Ctrl-C, or a notebook's interrupt button, stops the run gracefully:
    the same call then resumes the run. A second interrupt, or a save that takes longer
    than `checkpoint.grace_seconds`, ends the process.

    Args:
      workdir: Workdir of the run; resumed if it contains a run of this config.
      fresh: Whether to start a new run; an existing run is moved to a sibling
        directory.
      resume_step: Step of the checkpoint to resume from. Defaults to the newest.
      trust: Whether to run custom code of the model `model.pretrained`. The code is
        first shown, and compared with the recorded digests. Custom code named in
        `config` is always run.
      callbacks: Instances of `jaxtrain.Callback`, called after the built-in callbacks.

    Returns:
      The contents of `summary.json`, or only `step` if the run is not complete.

    Raises:
      UserError: The config, data, devices or workdir are invalid.
      BadNumbersError: Too many non-finite steps in a row.
      CheckpointError: A checkpoint could not be saved or read.
      KeyboardInterrupt: The run was interrupted; the state is saved.
    """
    began = time.perf_counter()
    allow_own(config)
    if trust:
        trust_recipe(None, config)
    every = Callbacks([make_callbacks(config), *callbacks])
    _start_devices(config, profiles=every.profiles)
    folder = Path(workdir)
    try:
        opening = starting.showing(f"opening the data: {config.data.source}")
        with guarded(), StopSignals() as signals, opening:
            signals.grace.limit(
                config.checkpoint.grace_seconds,
                lambda: newest_step(folder / CHECKPOINTS),
            )
            return run.train(
                config,
                folder,
                fresh=fresh,
                resume_step=resume_step,
                callbacks=[every],
                signals=signals,
                began=began,
            )
    except Interrupted as stopped:
        if stopped.signum != signal.SIGINT:
            raise
        raise KeyboardInterrupt(str(stopped)) from None


def evaluate(
    workdir: str | os.PathLike[str],
    *,
    split: str = "test",
    source: str | None = None,
    checkpoint: str | int = "best",
    tta: str | None = None,
    calibrate: bool = False,
    trust: bool = False,
) -> dict[str, Any]:
    """Compute metrics and confidence intervals of a trained model; write no files.

    Args:
      workdir: Workdir of a run or, if `source` is given, any model that `load_model`
        supports.
      split: Split to evaluate: `test`, `validation` or `train`; or `all` examples.
      source: Data set to evaluate on, as in `data.source`. Defaults to the run's.
      checkpoint: Checkpoint of the run: `best`, `latest` or a step.
      tta: Test-time augmentation: `flip`, `five_crop`, `ten_crop`, or `plain` for none.
        Defaults to the run's `train.tta`.
      calibrate: Whether to fit a temperature on the run's validation split.
      trust: Whether to run custom code referenced by files in `workdir`. The code is
        first shown, and compared with the recorded digests.

    Returns:
      The result, with the keys of `evaluation.json`, such as `metrics`.

    Raises:
      UserError: The images are incompatible with the model, or the task does not
        support an option.
      CheckpointError: The weights are damaged.
      BadNumbersError: Outputs of the model are not finite.
    """
    folder = Path(workdir)
    run = is_run(folder)
    if not run and (source is None or calibrate):
        raise UserError(
            f"{folder} is not the directory of a run, so the data are unknown: pass "
            "source, and leave calibrate out"
        )
    recipe = read_run(folder) if run else None
    data = Config().data if recipe is None else recipe.data
    if source is not None:
        own.allow([source])
        data = replace(data, "source", source)
    model, config, data = open_model(folder, checkpoint, recipe, data, trust=trust)
    asked = Asked(split=split, tta=views_of(tta, config), calibrate=calibrate)
    return evaluate_model(model, config, data, asked, progress=lambda line: None)


def open_trainer(config: Config) -> Trainer:
    """Create a `Trainer`: the components of a run, for a custom training loop.

    The devices are also initialized. This function is public as `jaxtrain.Trainer`.

    Args:
      config: Config of the run. Custom code named in the config is run.

    Raises:
      UserError: The config, data or devices are invalid.
    """
    allow_own(config)
    _start_devices(config)
    return Trainer(config)


def _start_devices(config: Config, *, profiles: bool = False) -> None:
    parallel = config.parallel
    devices.start(
        "auto",
        flags=parallel.xla_flags,
        cpus=parallel.cpu_devices,
        profiles=profiles,
    )
