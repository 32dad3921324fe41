"""Mode keywords: `__call__` arguments that select training or evaluation mode."""

import functools
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from flax import nnx

# Keywords that are True in training, and keywords that are True in evaluation.
TRAINING = ("train", "training", "is_training")
EVALUATED = ("deterministic",)
# Keyword of Flax's batch norm; True in evaluation.
STATISTICS = "use_running_average"


def keywords_of(kind: type) -> frozenset[str]:
    """Parameter names of a module's `__call__`."""
    return frozenset(inspect.signature(kind.__call__).parameters)


def mode(keywords: Iterable[str], *, training: bool) -> dict[str, bool]:
    """Return the value of each mode keyword among `keywords`."""
    switches = dict.fromkeys(TRAINING, training) | dict.fromkeys(
        EVALUATED, not training
    )
    return {name: switches[name] for name in keywords if name in switches}


def evaluation_values(names: Iterable[str]) -> dict[str, bool]:
    """Return values of mode keywords in evaluation, including `use_running_average`."""
    names = [*names]
    values = mode(names, training=False)
    return values | ({STATISTICS: True} if STATISTICS in names else {})


def as_evaluated(
    parameters: Iterable[str],
    values: Mapping[str, bool],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Set mode keywords in the positional or keyword arguments of a call.

    Args:
      parameters: Parameter names of the called function, in order, without `self`.
      values: Values of mode keywords, by name.
      args: Positional arguments of the call.
      kwargs: Keyword arguments of the call.

    Returns:
      The new positional and keyword arguments.
    """
    positional = [*zip(parameters, args, strict=False)]
    changed = tuple(values.get(name, x) for name, x in positional)
    others = {n: x for n, x in values.items() if n not in dict(positional)}
    return changed + args[len(positional) :], {**kwargs, **others}


@functools.cache
def evaluated_class(kind: type[nnx.Module]) -> type[nnx.Module]:
    """Subclass of an NNX layer that is always called in evaluation mode.

    `eval()` has no effect on a layer whose mode is a keyword argument.
    """
    if "__call__" not in dir(kind):
        return kind
    parameters = [*inspect.signature(kind.__call__).parameters][1:]
    values = evaluation_values(parameters)
    if not values:
        return kind

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = as_evaluated(parameters, values, args, kwargs)
        return kind.__call__(self, *args, **kwargs)

    metaclass: Any = type(kind)
    return metaclass(kind.__name__, (kind,), {"__call__": call})
