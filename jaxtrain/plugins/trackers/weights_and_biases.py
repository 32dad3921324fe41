"""Weights & Biases."""

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

# The metric that is the horizontal axis of the charts.
AXIS = "step"
# Characters of an id at most.
MAX_ID = 128


def _read_id(path: Path) -> str:
    """Return the id of the run from a file of its own, which is written if need be."""
    if not os.path.lexists(path):
        atomic_file.write(path, secrets.token_hex(4))
    # It is sent: a link could lead to a secret.
    with open(links.open_in_place(path, os.O_RDONLY), encoding="utf-8") as file:
        return file.read(MAX_ID)


class WandbWriter(ConfiguredWriter):
    """A run of W&B, with the config and the summary, whose charts have our steps.

    W&B's own step, which counts its records, may only rise: it drops a record of an
    earlier one, as after a rewind or a kill.
    """

    may_fail = "logging.wandb_project"

    def __init__(self, run: LoggedRun):
        import wandb  # pyright: ignore[reportMissingImports]

        # Kept in the workdir, so that a resumed run is the same one, and a fresh one
        # is not.
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
                allow_val_change=True,  # A longer run, for example.
            )
            self._run.define_metric(AXIS)
            self._run.define_metric("*", step_metric=AXIS)
        except Exception as error:  # Of many kinds, such as that nobody is logged in.
            raise UserError(
                f"logging.wandb_project = {project!r}: W&B does not start ({error}): "
                "see `wandb login`, set WANDB_MODE=offline, or leave the field out"
            ) from error

    @classmethod
    def enabled(cls, config: LoggingConfig) -> bool:
        return config.wandb_project is not None

    @classmethod
    def check(cls, config: LoggingConfig) -> None:
        # W&B itself makes a folder of that name where a run starts.
        if extras.missing("wandb"):
            raise UserError(
                f"logging.wandb_project = {config.wandb_project!r} needs the extra "
                f"wandb: {extras.install('wandb')}"
            )

    def write(self, kind: str, step: int, values: Values) -> None:
        self._run.log({AXIS: step, **scalars_by_split(kind, values)})

    def finish(self, summary: dict[str, Any]) -> None:
        self._run.summary.update(finite(summary))

    def close(self) -> None:
        self._run.finish()
