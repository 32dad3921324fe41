"""Steps put aside: renamed, so that they are neither read nor counted again."""

from pathlib import Path

import jax

from jaxtrain.processes import peers

# What a damaged step is called then, and one that a run went back behind.
DAMAGED, REWOUND = "quarantine", "rewound"


def put_aside(directory: Path, step: int, label: str = DAMAGED) -> None:
    """Rename a step to `LABEL-STEP`; all processes must call it."""
    if jax.process_index() == 0:
        rename(directory, step, label)
    peers.gather(None)


def rename(directory: Path, step: int, label: str = DAMAGED) -> None:
    """Rename a step to `LABEL-STEP`."""
    number, target = 0, directory / f"{label}-{step}"
    while target.exists():
        number += 1
        target = directory / f"{label}-{step}-{number}"
    (directory / str(step)).rename(target)
