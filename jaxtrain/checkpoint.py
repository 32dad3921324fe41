"""Checkpoints, behind Orbax: asynchronous, verified against the state they go into.

A checkpoint of step N holds the state after N steps and JSON with the config, the
versions and the progress of the run; the position in the data is the step itself. The
JSON also has the dtype, the shape and a digest of every array, and its own checksum:
Orbax would load a flipped bit, and cast another dtype, without a word.
"""

import contextlib
import functools
import inspect
import json
import logging
import math
import os
import re
import shutil
import sys
import time
import warnings
import zlib
from pathlib import Path
from typing import Any

import jax
from jax.experimental import multihost_utils
from orbax.checkpoint import v1 as ocp

from jaxtrain.config import CheckpointConfig
from jaxtrain.digest import digests, flatten, name, scan
from jaxtrain.errors import BadNumbersError, CheckpointError, DamagedError, UserError

FORMAT = 1
# What steps that are put aside are called.
QUARANTINE, REWOUND = "quarantine", "rewound"
_STATE = "state"
# What Orbax writes last into a checkpoint.
COMMITTED = "commit_success.txt"
# Tries to remove a failed save, 50 ms apart.
REMOVALS = 40

# Orbax reports routine steps, and the use of the faster non-OCDBT format, as warnings.
# What is wrong with a checkpoint this module says itself, once.
logging.getLogger("absl").setLevel(logging.CRITICAL)
logging.getLogger("asyncio").setLevel(logging.CRITICAL)
_log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one run, `directory/<step>/`, newest and best kept."""

    def __init__(
        self, directory: Path, config: CheckpointConfig, *, read_only: bool = False
    ):
        self.directory = directory
        for path in directory.glob("*/metrics/metrics"):
            self._check_metrics(path, read_only=read_only)
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
        self._open = functools.partial(
            ocp.training.Checkpointer,
            str(directory.absolute()),
            context=context,
            # The loop decides when to save.
            save_decision_policy=decisions.FixedIntervalPolicy(1),
            preservation_policy=policies.AnyPreservationPolicy(keep),
            # Of saves that were cut off; a reader must not touch those of a live run.
            cleanup_tmp_directories=not read_only,
        )
        self._checkpointer = self._open()
        self._pending: tuple[int, Any] | None = None
        self._failed = False

    def steps(self) -> list[int]:
        """List the committed steps, rising."""
        self.wait()
        return [checkpoint.step for checkpoint in self._checkpointer.checkpoints]

    def newest(self) -> str:
        """Name the newest checkpoint, for a message."""
        steps = self.steps()
        return str(self.directory / str(steps[-1])) if steps else "none yet"

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
          BadNumbersError: the state is not finite.
        """
        self.wait()
        sums, bad = scan(state)
        if bad:
            more = f" and {len(bad) - 1} more arrays" if len(bad) > 1 else ""
            raise BadNumbersError(
                f"step {step}: {bad[0]}{more} of the state is not finite; it is not "
                f"saved, and the last good checkpoint is {self.newest()}"
            )
        info = {"format": FORMAT, "arrays": _describe(state, sums), **info}
        _silence_abandoned_work()
        try:
            response = self._checkpointer.save_checkpointables_async(
                step,
                {_STATE: state},
                metrics=None if metrics is None else {**metrics, "step": step},
                custom_metadata={**info, "checksum": _checksum(info)},
            )
        except Exception as error:
            self._forget_failed(step)
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
        self.committed(timeout=None)

    def committed(self, timeout: float | None = 0) -> bool:
        """Tell, once for each save, that it is committed.

        Args:
          timeout: seconds to wait for it; None: until it is done.

        Raises:
          CheckpointError: it failed; what it left is removed.
        """
        if self._pending is None:
            return False
        step, response = self._pending
        try:
            response.result(timeout)
        except Exception as error:
            if timeout is not None and isinstance(error, TimeoutError):
                return False
            self._pending = None
            self._forget_failed(step)
            raise CheckpointError(
                f"could not save step {step}: {_root(error)}"
            ) from error
        self._pending = None
        return True

    def _forget_failed(self, step: int) -> None:
        """Remove what a failed save left, and open the folder anew.

        After one, Orbax lists no step any more, and raises the same error again. Of
        several processes none could open it alone.
        """
        self._failed = jax.process_count() > 1
        if self._failed:
            return
        with contextlib.suppress(Exception):
            self._checkpointer.close()
        remains = self.directory / str(step)
        for _ in range(REMOVALS):
            if (remains / COMMITTED).exists():
                break
            shutil.rmtree(remains, ignore_errors=True)
            time.sleep(0.05)
            # Other files of the same save may have been under way.
            if not remains.exists():
                break
        self._checkpointer = self._open()

    def restore(
        self, step: int, abstract_state: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Load a step onto the abstract state, with today's shardings.

        Returns:
          The state, and the JSON saved with it.

        Raises:
          UserError: the checkpoint's arrays have other paths, shapes or dtypes.
          DamagedError: it cannot be read, or is not what was saved.
        """
        info, _ = self._read_info(step)
        _check_match(step, info["arrays"], abstract_state)
        state = self._load(step, abstract_state)
        _check_digests(step, info["arrays"], state)
        return state, info

    def restore_newest(
        self, abstract_state: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Restore the newest good step; put damaged ones aside as `quarantine-STEP`.

        Returns:
          What `restore` does; None if there is no checkpoint at all.

        Raises:
          UserError: the newest good step does not fit.
          CheckpointError: there are checkpoints, but none is good.
        """
        for step in reversed(self.steps()):
            try:
                return self.restore(step, abstract_state)
            except DamagedError as error:
                _log.warning("%s; put aside", error)
                self._put_aside(step)
                self._checkpointer.reload()
        damaged = sorted(p.name for p in self.directory.glob(f"{QUARANTINE}-*"))
        if damaged:
            raise CheckpointError(
                f"no checkpoint in {self.directory} is good ({', '.join(damaged)}): "
                "bring one back from a backup, or start anew with --fresh"
            )
        return None

    def verify(self, step: int) -> dict[str, Any]:
        """Read all of a step onto one device; return the JSON saved with it.

        Raises:
          DamagedError: it cannot be read, or is not what was saved.
        """
        info, saved = self._read_info(step)
        device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        abstract = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device), saved
        )
        _check_digests(step, info["arrays"], self._load(step, abstract))
        return info

    def info(self, step: int) -> dict[str, Any]:
        """Return the JSON saved with a step.

        Raises:
          DamagedError: it cannot be read, or is not what was saved.
        """
        return self._read_info(step)[0]

    def _read_info(self, step: int) -> tuple[dict[str, Any], Any]:
        """Return the JSON of a step, and Orbax's own description of its state."""
        try:
            metadata: Any = self._checkpointer.checkpointables_metadata(step)
            saved = metadata.metadata[_STATE]
            info: dict[str, Any] = dict(metadata.custom_metadata)
        except Exception as error:
            raise DamagedError(f"could not read step {step}: {_root(error)}") from error
        checksum = info.pop("checksum", None)
        if checksum != _checksum(info):
            raise DamagedError(f"step {step}: its JSON is not what was saved")
        _check_format(step, info)
        return info, saved

    def _load(self, step: int, abstract_state: Any) -> Any:
        _silence_abandoned_work()
        try:
            with warnings.catch_warnings():
                # Resuming on other devices than those that saved is what we are for.
                warnings.filterwarnings("ignore", message=".*[Ss]harding.*")
                loaded = self._checkpointer.load_checkpointables(
                    step, {_STATE: abstract_state}
                )
            return loaded[_STATE]
        except Exception as error:
            raise DamagedError(f"could not read step {step}: {_root(error)}") from error

    def _check_metrics(self, path: Path, *, read_only: bool) -> None:
        """Put a step with unreadable metrics aside: Orbax would not open the folder."""
        step = path.parent.parent.name
        if not step.isdigit():
            return
        try:
            json.loads(path.read_text())
        except ValueError as error:
            message = f"step {step}: its metrics cannot be read ({error})"
            if read_only:
                raise DamagedError(f"{message}; resuming puts it aside") from None
            _log.warning("%s; put aside", message)
            self._put_aside(int(step))

    def put_aside_after(self, step: int) -> None:
        """Rename all newer steps to `rewound-STEP`: training goes on from this one."""
        for newer in reversed(self.steps()):
            if newer > step:
                self._put_aside(newer, REWOUND)
        self._checkpointer.reload()

    def _put_aside(self, step: int, label: str = QUARANTINE) -> None:
        """Rename a step, so that it is neither read nor counted again."""
        if jax.process_index() == 0:
            number, target = 0, self.directory / f"{label}-{step}"
            while target.exists():
                number += 1
                target = self.directory / f"{label}-{step}-{number}"
            (self.directory / str(step)).rename(target)
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices(f"{label}-{step}")

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


def _check_match(step: int, saved: dict[str, Any], wanted: Any) -> None:
    """Compare paths, shapes and dtypes: Orbax casts another dtype silently."""
    old = {path: kind for path, (kind, _) in saved.items()}
    new = {name(path): _kind(x) for path, x in flatten(wanted)}
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


def _check_digests(step: int, saved: dict[str, Any], state: Any) -> None:
    loaded = _describe(state, digests(state))
    differing = sorted(
        path
        for path in saved.keys() | loaded.keys()
        if saved.get(path) != loaded.get(path)
    )
    if differing:
        more = f" and {len(differing) - 1} more arrays" if len(differing) > 1 else ""
        raise DamagedError(
            f"step {step}: {differing[0]}{more} is not what was saved: the files are "
            "damaged"
        )


def _describe(state: Any, sums: dict[str, int]) -> dict[str, list[str | int]]:
    """Map the path of each array to its dtype and shape, and its digest.

    Orbax's metadata has dicts and lists where the state has named tuples: the names of
    the keys and fields and the positions are the same.
    """
    return {name(path): [_kind(x), sums[name(path)]] for path, x in flatten(state)}


def _kind(x: Any) -> str:
    return f"{jax.numpy.dtype(x.dtype).name}{list(x.shape)}"


def _checksum(info: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(info, sort_keys=True).encode())


@functools.cache  # Once for a process.
def _silence_abandoned_work() -> None:
    """Drop the tracebacks of reads and writes that Orbax abandons when one fails."""
    previous = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        late = str(unraisable.exc_value) == "Event loop is closed"
        if not (late or inspect.iscoroutine(unraisable.object)):
            previous(unraisable)

    sys.unraisablehook = hook


def _root(error: BaseException) -> str:
    """Return the message of the first cause: Orbax wraps it in its own."""
    while error.__cause__ is not None:
        error = error.__cause__
    # What the system said, if it did: TensorStore hides it in a long text.
    code = re.search(r"os_error_code='(\d+)'", str(error))
    number = int(code[1]) if code else getattr(error, "errno", None)
    return os.strerror(number) if number else f"{type(error).__name__}: {error}"
