"""Samplers and pruners of Optuna, by their names there."""

import inspect
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import optuna

from jaxtrain.errors import UserError, nearest

# These draw points of one sequence, which all trials of a study must share.
ONE_SEQUENCE = ("QMCSampler",)


def make_sampler(
    name: str, options: Mapping[str, Any], seed: int, number: int
) -> optuna.samplers.BaseSampler:
    """Return the sampler that chooses the values of one trial.

    Its random numbers are a function of the seed and the trial: so trials differ that
    several processes draw, and a sweep that was stopped draws what it would have.

    Args:
      name: Class of `optuna.samplers`.
      options: Arguments of the class; `seed` replaces that of the config.
      seed: Seed of the config.
      number: Number of the trial.

    Raises:
      UserError: There is no such class, or it takes other options.
    """
    base = optuna.samplers.BaseSampler
    kind = _find("--sampler", optuna.samplers, base, name)
    given = dict(options)
    if "seed" in inspect.signature(kind).parameters:
        seed = given.pop("seed", seed)
        if not isinstance(seed, int) or seed < 0:
            raise UserError(f"--sampler-options seed {seed}: expected 0 or more")
        of_trial = np.random.SeedSequence([seed, number]).generate_state(1)[0]
        given["seed"] = seed if name in ONE_SEQUENCE else int(of_trial)
    return _make("--sampler-options", kind, given)


def make_pruner(name: str, options: Mapping[str, Any]) -> optuna.pruners.BasePruner:
    """Return a pruner.

    Args:
      name: Class of `optuna.pruners`.
      options: Arguments of the class; the name of a pruner stands for it.

    Raises:
      UserError: There is no such class, or it takes other options.
    """
    base = optuna.pruners.BasePruner
    kind = _find("--pruner", optuna.pruners, base, name)
    table = _table(optuna.pruners, base)
    # Such as the pruner that PatientPruner waits for.
    made = {
        key: table[value]() if isinstance(value, str) and value in table else value
        for key, value in options.items()
    }
    return _make("--pruner-options", kind, made)


def _table(module: ModuleType, base: type) -> dict[str, Any]:
    """Return the classes of a kind that Optuna offers, without its abstract ones."""
    found = {name: getattr(module, name) for name in module.__all__}
    return {
        name: kind
        for name, kind in found.items()
        if inspect.isclass(kind) and issubclass(kind, base) and name[:4] != "Base"
    }


def _find(option: str, module: ModuleType, base: type, name: str) -> Any:
    table = _table(module, base)
    if name not in table:
        raise UserError(
            f"{option} {name}: expected {', '.join(table)}{nearest(name, table)}"
        )
    return table[name]


def _make(option: str, kind: Any, options: Mapping[str, Any]) -> Any:
    name, takes = kind.__name__, inspect.signature(kind).parameters
    for given in options:
        if given not in takes:
            raise UserError(
                f"{option} {given}: {name} takes {', '.join(takes) or 'no options'}"
                f"{nearest(given, takes)}"
            )
    try:
        with warnings.catch_warnings():
            # That an option is experimental in Optuna is known to who asks for it.
            warnings.simplefilter("ignore")
            return kind(**options)
    except (ImportError, TypeError, ValueError) as error:
        shown = " ".join(str(error).split())
        raise UserError(f"{option}: {name} does not take them ({shown})") from None
