"""Loading of weights from runs, exported models, other libraries and the hub."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from jaxtrain import own
from jaxtrain.checkpoints import CHECKPOINTS
from jaxtrain.checkpoints.manifest import best_step
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import CheckpointConfig, ModelConfig, own_references
from jaxtrain.config.recipe import CONFIG
from jaxtrain.errors import CheckpointError, DamagedError, UserError
from jaxtrain.json_files.run_id import RunId
from jaxtrain.processes import cluster
from jaxtrain.training.state import eval_weights
from jaxtrain.trees import by_path
from jaxtrain.weights import NUM_SHOWN, description, folder, foreign
from jaxtrain.weights.description import Description
from jaxtrain.weights.names import OWN
from jaxtrain.weights.spec import Spec, find
from jaxtrain.weights.stored import (
    Weights,
    abstract_members,
    check_task,
    fit_arrays,
    path_in_weights,
    shapes_of,
)

T = TypeVar("T")


def load(
    spec: str | os.PathLike[str] | Spec, models: Sequence[ModelConfig] = ()
) -> Weights:
    """Open trained weights with the description of their model; arrays are read lazily.

    Args:
      spec: One of the following forms:
        - directory of a run, for its best checkpoint
        - directory of a model that is exported as safetensors, or in timm's format
        - LIBRARY:ARCHITECTURE=FILE, a weight file of timm or torchvision
        - FILE, if the name of the weight file starts with the architecture
        - hf:OWNER/REPO, a model on the Hugging Face Hub
      models: Model configs of the recipe, used if a file name has no architecture.

    Raises:
      UserError: The spec is not a model of a supported version.
      CheckpointError: The checkpoint of a run is damaged.
    """
    found = spec if isinstance(spec, Spec) else find(os.fspath(spec))
    if found.is_run:
        return with_checkpoint(found.path, "best", lambda weights: weights)
    if found.is_file:
        return foreign.open_file(found.path, found.reference, models)
    config = foreign.read_config(found.path / CONFIG)
    if folder.OURS in config:
        return folder.open_folder(found.path, config)
    return foreign.open_folder(found.path, config, found.names)


def load_named(
    spec: str, field: str, digest: str | None, models: Sequence[ModelConfig] = ()
) -> Weights:
    """Open the weights that a config field names, and compare them across processes.

    Args:
      spec: Value of the field; see `load`.
      field: Name of the field, for messages; `FIELD_digest` holds the digest.
      digest: Expected prefix of the SHA-256. None accepts any.
      models: Model configs of the recipe.

    Raises:
      UserError: The weights are missing or damaged, have another digest, or differ
        between processes.
    """
    named = f"{field} = {spec!r}"

    @contextlib.contextmanager
    def user_errors() -> Iterator[None]:
        try:
            yield
        except CheckpointError as error:
            raise UserError(
                f"{named}: {error}; restore the checkpoint from a copy, or give other "
                "weights"
            ) from None

    with user_errors():
        weights = load(spec, models)
    sha256 = weights.digest()
    digests = cluster.current().gather(sha256)
    for process, other in enumerate(digests):
        if other != digests[0]:
            raise UserError(
                f"{named} has sha256 {other[:NUM_SHOWN]} in process {process}, but "
                f"{digests[0][:NUM_SHOWN]} in process 0: give all processes the same "
                "weight file"
            )
    if not sha256.startswith(digest or ""):
        raise UserError(
            f"{field}_digest = {digest!r}: {weights.where} has sha256 {sha256}; give "
            f"the intended weights, or change {field}_digest"
        )
    return dataclasses.replace(weights, read=user_errors()(weights.read))


def with_checkpoint(
    workdir: Path, checkpoint: str | int, use: Callable[[Weights], T]
) -> T:
    """Call a function with the weights of a checkpoint, even while the run is training.

    Args:
      workdir: Directory of the run.
      checkpoint: `best` by the validation metric, `latest`, or a step.
      use: Function to call with the weights.

    Raises:
      UserError: The checkpoint does not exist, or is of an unsupported version.
      CheckpointError: The checkpoint is damaged.
    """
    with _open_run(workdir) as (about, saved):
        while True:
            steps = saved.listed()
            try:
                return use(_weights(about, saved, _choose(saved, steps, checkpoint)))
            except DamagedError:
                # A run that is still training may remove old checkpoints: retry with
                # the new list.
                if saved.listed() == steps:
                    raise


@contextlib.contextmanager
def _open_run(workdir: Path) -> Iterator[tuple[Description, Checkpoints]]:
    about = description.read(workdir)
    check_task(about, str(workdir))
    for field, name in own_references(about.model, "model."):
        own.check_allowed(field, name)
    run = RunId.read(workdir)
    saved = Checkpoints(
        workdir / CHECKPOINTS, CheckpointConfig(), run=run, read_only=True
    )
    with contextlib.closing(saved):
        yield about, saved


def _weights(about: Description, saved: Checkpoints, step: int) -> Weights:
    workdir, info = saved.directory.parent, saved.info(step)
    arrays = json.dumps(info["arrays"], sort_keys=True).encode()
    where = f"{saved.directory / str(step)}"
    about = about.with_chosen(info["progress"]["chosen"], where)

    def read() -> Mapping[str, np.ndarray]:
        with _open_run(workdir) as (_, again):
            state, _ = again.read(step)
        fitted = by_path(fit_arrays(about, *eval_weights(state), where))
        return {OWN.name(path_in_weights(path)): x for path, x in fitted.items()}

    shapes = shapes_of(abstract_members(about))
    return Weights(
        where=f"{workdir}, step {step}",
        about=about,
        shapes={OWN.name(path): shape for path, shape in shapes.items()},
        digest=functools.cache(lambda: hashlib.sha256(arrays).hexdigest()),
        read=read,
        origin={"step": step, "run": saved.run.value},
    )


def _choose(saved: Checkpoints, steps: list[int], checkpoint: str | int) -> int:
    workdir = saved.directory.parent
    if not steps:
        raise UserError(
            f"{workdir} has no checkpoint, as the run stopped before the first "
            "checkpoint: resume the run with train"
        )
    if checkpoint == "best":
        return best_step(saved.info(steps[-1]), steps)
    if checkpoint == "latest":
        return steps[-1]
    for step in steps:
        if str(checkpoint) == str(step):
            return step
    raise UserError(
        f"checkpoint = {checkpoint!r}: expected best, latest or one of the steps "
        f"{', '.join(map(str, steps))} in {workdir}"
    )
