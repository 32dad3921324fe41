"""Train state, a pytree of plain dicts."""

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

import jax
from flax import nnx

# Names of the transforms whose arrays other modules read.
AVERAGE, GUARD = "average", "guard"


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class TrainState:
    """Train state: input and output of the training step.

    Attributes:
      step: Number of completed steps, int32; also the position in the data.
      params: Parameters, nested dicts.
      model_state: Other model state, such as batch-norm statistics.
      opt_state: Optimizer state.
      extras: Arrays of each StepTransform, by transform name.
    """

    step: jax.Array
    params: Any
    model_state: Any
    opt_state: Any
    extras: dict[str, dict[str, Any]]

    @property
    def skipped_steps(self) -> int:
        """Number of skipped steps."""
        return int(jax.device_get(self.extras[GUARD]["total"]))

    @property
    def eval_params(self) -> Any:
        """Parameters to evaluate: the average, if the run averages weights."""
        return eval_weights(as_dict(self))[0]

    @property
    def eval_model_state(self) -> Any:
        """Model state to evaluate with `eval_params`."""
        return eval_weights(as_dict(self))[1]


def as_dict(state: TrainState) -> dict[str, Any]:
    """Convert a state to a dict of its fields, as saved in a checkpoint."""
    return {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}


def eval_weights(fields: dict[str, Any]) -> tuple[Any, Any]:
    """Select (params, model_state) to evaluate: the averages, if the run has them.

    Args:
      fields: Fields of a TrainState (see `as_dict`), for example from a checkpoint.
    """
    average = fields["extras"].get(AVERAGE, fields)
    return average["params"], average["model_state"]


def with_extra(state: TrainState, name: str, extra: dict[str, Any]) -> TrainState:
    """Return the state with the arrays of the transform `name` replaced."""
    return replace(state, extras={**state.extras, name: extra})


def split_model(model: nnx.Module) -> tuple[Any, Any, Any]:
    """Split a model into its graphdef and two dicts: parameters and other state."""
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)
    return graphdef, nnx.to_pure_dict(params), nnx.to_pure_dict(rest)


def num_params(params: Any) -> int:
    return sum(x.size for x in jax.tree.leaves(params))
