"""Metric writer for Weights & Biases."""

import dataclasses
import os
import secrets
from pathlib import Path
from typing import Any

from jaxtrain import atomic_file, extras, links
from jaxtrain.config import LoggingConfig
from jaxtrain.errors import UserError
from jaxtrain.json_files.write import finite
from jaxtrain.records.folder_lock import cannot_write
from jaxtrain.records.writer import ConfiguredWriter, LoggedRun, scalars_by_split
from jaxtrain.tasks.base import Values

# Name of the metric on the x axis of W&B's charts.
AXIS = "step"
# Maximum number of characters of a run ID.
MAX_ID = 128


def _read_id(path: Path) -> str:
    """Read the W&B run ID from a file; if it is missing, write a new ID to it."""
    if not os.path.lexists(path):
        atomic_file.write(path, secrets.token_hex(4))
    # Do not follow a symbolic link, as it may lead to a secret: the ID is sent to W&B.
    with open(links.open_in_place(path, os.O_RDONLY), encoding="utf-8") as file:
        return file.read(MAX_ID)


class WandbWriter(ConfiguredWriter):
    """Writer of a W&B run: config, metrics by training step, and summary.

    The training step is logged as a metric instead of W&B's step, which must increase:
    W&B would drop the steps that are repeated after a rewind or a kill.
    """

    may_fail = "logging.wandb_project"

    def __init__(self, run: LoggedRun):
        import wandb  # pyright: ignore[reportMissingImports]

        # Store the ID in the workdir: a resumed run then continues its W&B run, and a
        # run in a new workdir starts a new W&B run.
        try:
            run_id = _read_id(run.workdir / "wandb_id")
        except OSError as error:
            raise cannot_write(run.workdir, error) from None
        project = run.config.logging.wandb_project
        try:
            self._run = wandb.init(
                project=project,
                name=run.workdir.name,
                id=run_id,
                dir=run.workdir,
                resume="allow",
                config=dataclasses.asdict(run.config),
                allow_val_change=True,  # Some config fields may change on resumption.
            )
            self._run.define_metric(AXIS)
            self._run.define_metric("*", step_metric=AXIS)
        except Exception as error:  # W&B raises errors of many types.
            raise UserError(
                f"logging.wandb_project = {project!r}: W&B does not start ({error}): "
                "run `wandb login`, set WANDB_MODE=offline, or leave "
                "logging.wandb_project out"
            ) from error

    @classmethod
    def enabled(cls, config: LoggingConfig) -> bool:
        return config.wandb_project is not None

    @classmethod
    def check(cls, config: LoggingConfig) -> None:
        # `extras.missing` ignores the directory wandb/ that W&B creates in the current
        # directory, and that Python could import as a namespace package.
        if extras.missing("wandb"):
            raise UserError(
                f"logging.wandb_project = {config.wandb_project!r} requires wandb, "
                f"which is not installed: {extras.install('wandb')}"
            )

    def write(self, kind: str, step: int, values: Values) -> None:
        self._run.log({AXIS: step, **scalars_by_split(kind, values)})

    def finish(self, summary: dict[str, Any]) -> None:
        self._run.summary.update(finite(summary))

    def close(self) -> None:
        self._run.finish()
