"""Checkpoints, behind Orbax: asynchronous, verified against the state they go into.

A checkpoint of step N holds the state after N steps and JSON with the config, the
versions and the progress of the run; the position in the data is the step itself.
"""

import contextlib
import logging
import math
import warnings
from pathlib import Path
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from jaxtrain.config import CheckpointConfig
from jaxtrain.errors import CheckpointError, UserError

FORMAT = 1
_STATE = "state"

# Orbax reports routine steps, and the use of the faster non-OCDBT format, as warnings.
logging.getLogger("absl").setLevel(logging.ERROR)


class Checkpoints:
    """The checkpoints of one run, `directory/<step>/`, newest and best kept."""

    def __init__(self, directory: Path, config: CheckpointConfig):
        context = ocp.Context()
        # A step counts once its commit file is written: an empty or half-deleted folder
        # never does.
        context.atomicity.mode = type(context.atomicity.mode).COMMIT_FILE
        # The faster format for the small states of CNNs (docs/decisions.md).
        context.array_options.saving.use_ocdbt = False
        # The types of Orbax's policies are not those that its Checkpointer names.
        policies: Any = ocp.training.preservation_policies
        decisions: Any = ocp.training.save_decision_policies
        keep = [policies.LatestN(config.keep)]
        if config.keep_best:
            keep.append(
                policies.BestN(
                    get_metric_fn=lambda metrics: _rank(config.best_metric, metrics),
                    n=config.keep_best,
                    keep_checkpoints_without_metrics=False,
                )
            )
        self._checkpointer = ocp.training.Checkpointer(
            str(directory.absolute()),
            context=context,
            # The loop decides when to save.
            save_decision_policy=decisions.FixedIntervalPolicy(1),
            preservation_policy=policies.AnyPreservationPolicy(keep),
            cleanup_tmp_directories=True,
        )
        self._pending: tuple[int, Any] | None = None
        self._failed = False

    def steps(self) -> list[int]:
        """List the committed steps, rising."""
        self.wait()
        return [checkpoint.step for checkpoint in self._checkpointer.checkpoints]

    def save(
        self,
        step: int,
        state: dict[str, Any],
        info: dict[str, Any],
        metrics: dict[str, Any] | None,
    ) -> None:
        """Start to save; the arrays are copied before this returns.

        Args:
          step: completed steps.
          state: nested dicts of arrays.
          info: JSON values.
          metrics: of the validation split, by which the best checkpoints are kept.

        Raises:
          CheckpointError: this save could not start, or the one before it failed.
        """
        self.wait()
        try:
            response = self._checkpointer.save_checkpointables_async(
                step,
                {_STATE: state},
                metrics=None if metrics is None else {**metrics, "step": step},
                custom_metadata={"format": FORMAT, **info},
            )
        except Exception as error:
            raise CheckpointError(
                f"could not save step {step}: {_root(error)}"
            ) from error
        if response is None:
            raise CheckpointError(f"Orbax did not save step {step}: it skipped it")
        self._pending = step, response

    def wait(self) -> None:
        """Wait until the last save is committed.

        Raises:
          CheckpointError: it failed.
        """
        if self._pending is None:
            return
        (step, response), self._pending = self._pending, None
        try:
            committed = response.result()
        except Exception as error:
            self._failed = True
            raise CheckpointError(
                f"could not save step {step}: {_root(error)}"
            ) from error
        if not committed:
            raise CheckpointError(f"could not save step {step}: Orbax gave no reason")

    def restore(
        self, step: int, abstract_state: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Load a step onto the abstract state, with today's shardings.

        Returns:
          The state, and the JSON saved with it.

        Raises:
          UserError: the checkpoint's arrays have other paths, shapes or dtypes.
          CheckpointError: it cannot be read.
        """
        try:
            metadata: Any = self._checkpointer.checkpointables_metadata(step)
            saved = metadata.metadata[_STATE]
            info: dict[str, Any] = dict(metadata.custom_metadata)
        except Exception as error:
            raise CheckpointError(
                f"could not read step {step}: {_root(error)}"
            ) from error
        _check_format(step, info)
        _check_match(step, saved, abstract_state)
        try:
            with warnings.catch_warnings():
                # Resuming on other devices than those that saved is what we are for.
                warnings.filterwarnings("ignore", message=".*[Ss]harding.*")
                loaded = self._checkpointer.load_checkpointables(
                    step, {_STATE: abstract_state}
                )
        except Exception as error:
            raise CheckpointError(
                f"could not read step {step}: {_root(error)}"
            ) from error
        return loaded[_STATE], info

    def close(self) -> None:
        try:
            self.wait()
        finally:
            # Orbax raises a failed save, which `wait` has told, once more.
            with contextlib.suppress(*([Exception] if self._failed else [])):
                self._checkpointer.close()


def _rank(name: str, metrics: dict[str, Any]) -> tuple[float, int]:
    """Order evaluations: higher is better, of equal ones the first, NaN is worst."""
    value = metrics[name]
    if not isinstance(value, int | float) or not math.isfinite(value):
        return -math.inf, 0
    return (-value if name == "loss" else value), -metrics["step"]


def _check_format(step: int, info: dict[str, Any]) -> None:
    if info.get("format") != FORMAT:
        raise UserError(
            f"checkpoint {step} has format {info.get('format')!r}, this version of "
            f"jaxtrain reads {FORMAT}: use the version that wrote it"
        )


def _check_match(step: int, saved: Any, wanted: Any) -> None:
    """Compare paths, shapes and dtypes: Orbax casts another dtype silently."""
    old, new = _describe(saved), _describe(wanted)
    lines = [
        f"  missing in the checkpoint: {p} {new[p]}" for p in new.keys() - old.keys()
    ]
    lines += [f"  unknown to the model: {p} {old[p]}" for p in old.keys() - new.keys()]
    lines += [
        f"  {p}: {old[p]} in the checkpoint, {new[p]} in the model"
        for p in old.keys() & new.keys()
        if old[p] != new[p]
    ]
    if lines:
        raise UserError(
            f"checkpoint {step} does not fit this model and optimizer:\n"
            + "\n".join(sorted(lines))
        )


def _describe(tree: Any) -> dict[str, str]:
    """Map the path of each array to its dtype and shape.

    Orbax's metadata has dicts and lists where the state has named tuples: the names of
    the keys and fields and the positions are the same.
    """
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): (
            f"{jax.numpy.dtype(x.dtype).name}{list(x.shape)}"
        )
        for path, x in leaves
    }


def _root(error: BaseException) -> str:
    """Return the message of the first cause: Orbax wraps it in its own."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"
