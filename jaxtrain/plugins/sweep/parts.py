"""Construction of Optuna's samplers and pruners by class name."""

import inspect
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import optuna

from jaxtrain.errors import UserError, nearest

# Quasi-random samplers: all trials need the same seed, because they draw from the same
# sequence.
ONE_SEQUENCE = ("QMCSampler",)


def make_sampler(
    name: str, options: Mapping[str, Any], seed: int, number: int
) -> optuna.samplers.BaseSampler:
    """Create the sampler of a trial.

    The sampler's seed is derived from `seed` and `number`, so that trials of different
    processes differ, and interruptions of the sweep do not change the draws.

    Args:
      name: Name of a class in `optuna.samplers`.
      options: Arguments of the class. The key `seed` replaces the config's seed.
      seed: Seed of the config.
      number: Index of the trial in the sweep, from 0.

    Raises:
      UserError: The class is unknown, or rejects the options.
    """
    if "seed" in options:
        seed = options["seed"]
        if not isinstance(seed, int) or seed < 0:
            raise UserError(
                f"--sampler-options seed {seed}: expected a seed of 0 or more"
            )
    kind = _find("--sampler", optuna.samplers, name)
    if "seed" in inspect.signature(kind).parameters:
        trial_seed = np.random.SeedSequence([seed, number]).generate_state(1)[0]
        options = {**options, "seed": seed if name in ONE_SEQUENCE else int(trial_seed)}
    return _make("--sampler-options", kind, options)


def make_pruner(name: str, options: Mapping[str, Any]) -> optuna.pruners.BasePruner:
    """Create a pruner.

    Args:
      name: Name of a class in `optuna.pruners`.
      options: Arguments of the class. A value that is a class name in `optuna.pruners`
        is replaced by a pruner of this class with default arguments.

    Raises:
      UserError: The class is unknown, or rejects the options.
    """
    kind = _find("--pruner", optuna.pruners, name)
    # PatientPruner, for example, wraps another pruner.
    made = {
        key: getattr(optuna.pruners, value)()
        if value in optuna.pruners.__all__
        else value
        for key, value in options.items()
    }
    return _make("--pruner-options", kind, made)


def _find(option: str, module: ModuleType, name: str) -> Any:
    known = [n for n in module.__all__ if n[0].isupper() and n[:4] != "Base"]
    if name not in known:
        expected = f"expected {', '.join(known)}{nearest(name, known)}"
        raise UserError(f"{option} {name}: {expected}")
    return getattr(module, name)


def _make(option: str, kind: Any, options: Mapping[str, Any]) -> Any:
    try:
        with warnings.catch_warnings():
            # Silence warnings that a class is experimental: the user chose the class.
            warnings.simplefilter("ignore")
            return kind(**options)
    except (ImportError, TypeError, ValueError) as error:
        takes = ", ".join(inspect.signature(kind).parameters) or "no options"
        shown = " ".join(str(error).split())
        raise UserError(
            f"{option}: {kind.__name__} takes {takes}; correct the options ({shown})"
        ) from None
