"""What a trained run predicts for the examples of its own splits."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxtrain.config import Config
from jaxtrain.data import sources
from jaxtrain.errors import UserError
from jaxtrain.evaluation.passes import Pass, Subject
from jaxtrain.evaluation.subject import build_task
from jaxtrain.inference.load import load_model
from jaxtrain.parallel import devices
from jaxtrain.tasks.classification import Classification


def predict_splits(config: Config, workdir: Path) -> dict[str, np.ndarray]:
    """Return the probabilities that the best checkpoint of a run gives each class.

    Args:
      config: of the run.
      workdir: its folder.

    Returns:
      Split -> probabilities of its examples, float32 (n, classes), in their order; NaN
      where an image cannot be read.

    Raises:
      UserError: it learns no classes, or has no checkpoint.
      CheckpointError: the checkpoint is damaged.
    """
    devices.start("auto")
    # What shares the work changes no result: here devices share the batch.
    parallel = ParallelConfig(batch_norm=config.parallel.batch_norm)
    config = replace(config, parallel=parallel)
    setup = build_setup(config, devices=jax.devices()[: _num_devices(config)])
    if not isinstance(setup.task, Classification):
    splits = sources.load(config.data, config.seed)
    model = load_model(workdir)
    task = build_task(config, model, splits.train.facts, config.data)
    if not isinstance(task, Classification):
        raise UserError(
            f"--workdir {workdir}: task = {config.task!r} has no classes whose labels "
            "could be judged"
        )
    state = _restore(setup, workdir)
    function = _make_function(setup, state)
    return {
        name: _predict_split(setup, name, source, function)
        for name, source in setup.splits.named().items()
    }


def _num_devices(config: Config) -> int:
    """Return how many devices can share the batches of a run of any number of them."""
    sizes = [config.micro_batch_size, eval_batch_size(config.data)]
    if config.norm_groups > 1:
        sizes.append(config.norm_groups)
    if config.data.augment.mixes:
        sizes.append(config.data.batch_size // (2 * config.data.repeats))
    shares = math.gcd(*sizes)
    return max(n for n in range(1, len(jax.devices()) + 1) if shares % n == 0)


def _restore(setup: Setup, workdir: Path) -> TrainState:
    """Load the best checkpoint, or the newest if none is known to be the best."""
    folder = workdir / CHECKPOINTS
    saved = Checkpoints(folder, setup.config.checkpoint, read_only=True)
    with contextlib.closing(saved):
        steps = saved.steps()
        if not steps:
            raise UserError(f"--workdir {workdir} holds no checkpoint in {folder}")
        best = (saved.info(steps[-1])["progress"]["best"] or {}).get("step")
        step = best if best in steps else steps[-1]
        return TrainState(**saved.restore(step, as_dict(setup.abstract_state))[0])


def _make_function(setup: Setup, state: TrainState) -> Callable[[Any], jax.Array]:
    """Return `batches`, as an evaluation has them, -> probabilities of the classes."""
    config = setup.config
    mean, std = sources.mean_and_std(config.data, setup.splits.train)
    _, plain = make_preprocesses(setup, mean, std, setup.policy.compute_dtype)

    def function(params: Any, model_state: Any, batches: Any) -> jax.Array:
        batch = jax.tree.map(lambda x: x[0], batches)
        unused = jnp.zeros((), jnp.int32)
        batch = plain({}, batch, keys.root_key(0), unused)
        logits = predict(setup.graphdef, params, model_state, batch["image"])
        return jax.nn.softmax(widen(logits), axis=-1)

    jitted = jax.jit(function, out_shardings=sharding.replicated(setup.mesh))
    params, model_state = state.eval_params, state.eval_model_state
    return lambda batches: jitted(params, model_state, batches)


def _predict_split(
    setup: Setup,
    name: str,
    source: sources.Source,
    function: Callable[[Any], jax.Array],
) -> np.ndarray:
    """Predict a split as an evaluation goes through it, streamed."""
    config, num = setup.config.data, len(source)
    size = eval_batch_size(config)
    defects = Defects(name, num, max_fraction=1.0)
    dataset = loader.Dataset(source, {}, defects)
    found = np.full((num, setup.task.num_outputs), np.nan, np.float32)
    with jax.default_matmul_precision(setup.policy.products):
        for batch in loader.eval_batches(config, dataset, setup.mesh, size):
            local = jax.tree.map(lambda rows: rows[None], batch)
            batches = sharding.put_batch(setup.mesh, local, size)
            probabilities = np.asarray(function(batches))
            known = batch["mask"] > 0
            found[batch["index"][known]] = probabilities[known]
    subject = Subject(
        model=model,
        task=task,
        data=config.data,
        size=splits.size,
        fit=splits.fit,
        max_bad_fraction=1.0,
    )
    one = Pass(subject, keep=_probabilities)
    found = {}
    for name, source in splits.named().items():
        passed = one(source, name)
        rows = np.full((len(source), task.num_outputs), np.nan, np.float32)
        rows[passed.numbers] = passed.kept["probabilities"]
        found[name] = rows
    return found


def _probabilities(outputs: jax.Array, target: Any, _: jax.Array) -> dict[str, Any]:
    return {"probabilities": jax.nn.softmax(outputs, axis=-1)}
