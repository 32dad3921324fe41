"""Consistency check of the processes of a run, before the first step.

Processes with different configs, versions or device counts would compute wrong results
or deadlock.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

import jaxtrain
from jaxtrain import config as config_lib
from jaxtrain.config import Config
from jaxtrain.errors import UserError, first_of
from jaxtrain.json_files.run_id import RunId
from jaxtrain.processes import cluster
from jaxtrain.records import data_record
from jaxtrain.trainer.records import versions

# Maximum number of processes to list per value, and of differing values per message.
NUM_PROCESSES, NUM_VALUES = 5, 20
# Longest wait in seconds for a file written by process 0: NFS caches the absence of a
# file for half a minute (acdirmin).
LOOK_SECONDS = 60.0


def check_started_alike(config: Config, options: Mapping[str, Any]) -> None:
    """Check that all processes were started with the same config, code and devices.

    Args:
      config: Config of the recipe, with the overrides of the command line.
      options: Other options of the command, by name.

    Raises:
      UserError: Some values differ.
    """
    if cluster.current().num == 1:
        return
    # Omit the paths of the data: `check_same_data` compares the data later.
    fields = config_lib.shared_values(config, same_data=True)
    code = {f"version of {name}": version for name, version in versions().items()}
    parts = {f"sha256 of {file}": x for file, x in config_lib.own_parts(config).items()}
    compare(
        {
            **fields,
            **options,
            **code,
            "sha256 of jaxtrain's source": _source_digest(),
            **parts,
            "JAX_ENABLE_X64": jax.config.read("jax_enable_x64"),
            "local devices": jax.local_device_count(),
        }
    )


def check_same_data(config: Config, data: Mapping[str, Any]) -> None:
    """Check that all processes read the same data, even from different paths.

    Args:
      config: Config of the run.
      data: Data record (see `data_record`).

    Raises:
      UserError: The data differ, or cannot be compared.
    """
    # Omit the class names, as there may be thousands; `digest` of the data covers them.
    found = cluster.current().gather({**data, "class_names": None})
    data_record.check_agree(found)
    if any(one["digest"] is None for one in found):
        compare(config_lib.shared_values(config, same_data=False))


def check_same_workdir(workdir: Path, run: RunId) -> None:
    """Check that all processes have the workdir that process 0 opened.

    Args:
      workdir: Workdir of this process.
      run: Id of the run in the workdir of process 0.

    Raises:
      UserError: The workdir of a process does not contain this run.
    """
    told = None if jax.process_index() == 0 else _look_for(workdir, run)
    for process, reason in enumerate(cluster.current().gather(told)):
        if reason is not None:
            raise UserError(
                f"--workdir: process {process} does not find the run of process 0 "
                f"({reason}): give all processes the same directory, on a shared file "
                "system"
            )


def compare(values: Mapping[str, Any]) -> None:
    """Check that all processes have the same values.

    Args:
      values: JSON values of this process, by their name in messages.

    Raises:
      UserError: Some values differ; the message lists them.
    """
    told = describe_differences(cluster.current().gather(dict(values)))
    if told:
        raise UserError(
            "the processes of this run were started with different options:\n  "
            + "\n  ".join(told[:NUM_VALUES])
            + (f"\n  and {len(told) - NUM_VALUES} more" * (len(told) > NUM_VALUES))
            + (
                "\nStart all processes with the same command, recipe, package versions "
                "and number of devices"
            )
        )


def describe_differences(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe the values that differ between processes.

    Args:
      found: Values by name, one mapping per process.
    """
    told = []
    for name in dict.fromkeys(name for values in found for name in values):
        processes: dict[str, list[int]] = {}
        for process, values in enumerate(found):
            processes.setdefault(repr(values.get(name)), []).append(process)
        if len(processes) > 1:
            parts = [
                f"{value} in process {first_of(numbers, NUM_PROCESSES)}"
                for value, numbers in processes.items()
            ]
            told.append(f"{name}: {'; '.join(parts)}")
    return told


def _look_for(workdir: Path, run: RunId) -> str | None:
    """Wait until the workdir contains the run; after a timeout, return the reason."""
    until = time.monotonic() + LOOK_SECONDS
    while True:
        try:
            found = RunId.read(workdir)
            if found.value == run.value:
                return None
            reason = f"{found.source} belongs to another run"
        except UserError as error:
            reason = str(error)
        if time.monotonic() > until:
            return reason
        time.sleep(0.1)


def _source_digest() -> str:
    """SHA-256 of the source files of jaxtrain, in order of their paths."""
    root, found = Path(jaxtrain.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        found.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return found.hexdigest()
