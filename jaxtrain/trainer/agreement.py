"""Comparison of the processes of a run before the first step.

Processes of other configs, versions or numbers of devices would train something else
together, or wait for each other forever.
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

# Processes, and differing values, that a message names.
NUM_PROCESSES, NUM_VALUES = 5, 20
# Longest wait for a file that process 0 has written: network file systems keep for half
# a minute that there is none (acdirmin of NFS).
LOOK_SECONDS = 60.0


def check_started_alike(config: Config, options: Mapping[str, Any]) -> None:
    """Check that all processes were started with the same config, code and devices.

    Args:
      config: Config of the recipe with the overrides of the command line.
      options: Other options of the command, by name.

    Raises:
      UserError: They were not.
    """
    if cluster.current().num == 1:
        return
    # Whether the data are the same is known once they are opened.
    fields = _fields(config, same_data=True)
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
    """Check that all processes see the same data, wherever each has them.

    Args:
      config: Config of the run.
      data: Record of the data: see `data_record`.

    Raises:
      UserError: They do not, or it cannot be known.
    """
    # There may be many thousand names, which the digest holds, too.
    found = cluster.current().gather({**data, "class_names": None})
    data_record.check_agree(found)
    if any(one["digest"] is None for one in found):
        compare(_fields(config, same_data=False))


def check_same_workdir(workdir: Path, run: RunId) -> None:
    """Check that all processes see the workdir in which process 0 has begun the run.

    Raises:
      UserError: One does not.
    """
    told = None if jax.process_index() == 0 else _look_for(workdir, run)
    for process, reason in enumerate(cluster.current().gather(told)):
        if reason is not None:
            raise UserError(
                f"process {process} does not see the run that process 0 has begun in "
                f"its --workdir ({reason}): give all processes the same folder, on a "
                "disk that they share"
            )


def compare(values: Mapping[str, Any]) -> None:
    """Check that the values of all processes are equal.

    Args:
      values: Values of this process that JSON can hold, by name.

    Raises:
      UserError: Some differ; the message names each with its values.
    """
    told = describe_differences(cluster.current().gather(dict(values)))
    if told:
        raise UserError(
            "the processes of this run were not started alike:\n  "
            + "\n  ".join(told[:NUM_VALUES])
            + (f"\n  and {len(told) - NUM_VALUES} more" * (len(told) > NUM_VALUES))
            + "\nStart all of them with the same command, recipe and packages, and as "
            "many devices each"
        )


def describe_differences(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe the values that are not the same for all processes.

    Args:
      found: Values by name, in the order of the processes.
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


def _fields(config: Config, *, same_data: bool) -> dict[str, Any]:
    paths = config_lib.shared_paths(same_data=same_data)
    return {path: config_lib.get(config, path) for path in paths}


def _look_for(workdir: Path, run: RunId) -> str | None:
    """Return why the workdir does not hold a run; None: it does."""
    until = time.monotonic() + LOOK_SECONDS
    while True:
        try:
            found = RunId.read(workdir)
            if found.value == run.value:
                return None
            reason = f"{found.source} is that of another run"
        except UserError as error:
            reason = str(error)
        if time.monotonic() > until:
            return reason
        time.sleep(0.1)


def _source_digest() -> str:
    """Return the SHA-256 of the source files of the package, by their names."""
    root, found = Path(jaxtrain.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        found.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return found.hexdigest()
