"""The training state: a pytree of plain dicts, created already sharded."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from jaxtrain import keys
from jaxtrain.config import TrainConfig
from jaxtrain.dtypes import wide, widen
from jaxtrain.models.blueprint import Blueprint, initial_rngs
from jaxtrain.training.averages import Average
from jaxtrain.training.precision import create_loss_scale
from jaxtrain.training.pruning import Pruning, masked
from jaxtrain.training.spikes import make_detector


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class TrainState:
    """All that a step reads and changes.

    Attributes:
      step: Completed steps, int32, which are the position in the data.
      params: Parameters, nested dicts.
      model_state: All other state of the model, such as batch-norm statistics.
      opt_state: State of the optimizer.
      ema_params: Average of the parameters (`averages`), at least float32; {} without
        one.
      loss_scale: Dynamic loss scale of fp16; {} without it.
      bad_steps: Counts of skipped steps, int32, `total` and `in_a_row`.
      ema_model_state: Of a moving average that of `model_state`, with the same weights:
        of batch norm that of the statistics of each batch. What is not float is that of
        the last step. Of other averages `model_state`, in which an evaluation computes
        the statistics of batch norms anew.
      loss_stats: Statistics of the losses, to find spikes; {} without a detector.
      average_memory: What the average remembers; {} if nothing.
      plateau: `factor` on the learning rate, float32, that evaluations have set; {}
        without such a schedule.
      pruning: `masks` of the pruned parameters, and their `sparsity` (`pruning`); {} if
        nothing is pruned.
    """

    step: jax.Array
    params: Any
    model_state: Any
    opt_state: Any
    ema_params: Any
    loss_scale: dict[str, jax.Array]
    bad_steps: dict[str, jax.Array]
    ema_model_state: Any = dataclasses.field(default_factory=dict)
    loss_stats: dict[str, jax.Array] = dataclasses.field(default_factory=dict)
    average_memory: dict[str, jax.Array] = dataclasses.field(default_factory=dict)
    plateau: dict[str, jax.Array] = dataclasses.field(default_factory=dict)
    pruning: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def skipped_steps(self) -> int:
        """The steps that were skipped."""
        return int(jax.device_get(self.bad_steps["total"]))

    @property
    def eval_params(self) -> Any:
        """The parameters to evaluate: their average if there is one."""
        return self.ema_params or self.params

    @property
    def eval_model_state(self) -> Any:
        """The other state of the model, to evaluate with `eval_params`."""
        return self.ema_model_state or self.model_state


def as_dict(state: TrainState) -> dict[str, Any]:
    """Return the state's fields, as a checkpoint holds them."""
    return {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}


def split_model(model: nnx.Module) -> tuple[Any, Any, Any]:
    """Split a model into its graph, parameters and other state, as plain dicts."""
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)
    return graphdef, nnx.to_pure_dict(params), nnx.to_pure_dict(rest)


@dataclass(frozen=True, eq=False)
class CreateState:
    """The pure function from the root key to the first TrainState, and its two steps.

    Jit it with `out_shardings` to create each array where it belongs. A run jits the
    steps one by one: what changes the first weights, such as reading those of another
    model, has its place between them.

    Attributes:
      blueprint: What the model is built from.
      config: Section of the training.
      tx: Optimizer of the run.
      average: Average of the weights that the run evaluates; None keeps none.
      has_plateau: Whether evaluations change the learning rate.
      pruning: Weights that become 0; None prunes none.
    """

    blueprint: Blueprint
    config: TrainConfig
    tx: optax.GradientTransformation
    average: Average | None = None
    has_plateau: bool = False
    pruning: Pruning | None = None

    def __call__(self, root: jax.Array) -> TrainState:
        return self.begin(self.weights(root))

    def weights(self, root: jax.Array) -> tuple[Any, Any]:
        """Return the first parameters, and the model's other state.

        Args:
          root: Root key of the run.
        """
        model = self.blueprint.build(initial_rngs(keys.stream(root, keys.INIT)))
        return split_model(model)[1:]

    def begin(self, weights: tuple[Any, Any]) -> TrainState:
        """Return the state of a run that begins with such weights."""
        params, model_state = weights
        averages = self.average is not None
        pruning = self.pruning.create(params) if self.pruning else {}
        params = masked(params, pruning.get("masks", {}))
        dtype = jnp.result_type(*(wide(x.dtype) for x in jax.tree.leaves(params)))
        detector = make_detector(self.config)
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            params=params,
            model_state=model_state,
            opt_state=self.tx.init(params),
            ema_params=_wide_copy(params) if averages else {},
            ema_model_state=_wide_copy(model_state) if averages else {},
            average_memory=self.average.create(dtype) if self.average else {},
            loss_scale=create_loss_scale(self.blueprint.policy),
            bad_steps={n: jnp.zeros((), jnp.int32) for n in ("in_a_row", "total")},
            loss_stats=detector.create() if detector else {},
            plateau={"factor": jnp.float32(1)} if self.has_plateau else {},
            pruning=pruning,
        )


def _wide_copy(tree: Any) -> Any:
    """Copy: a donated buffer must not occur twice; bfloat16 would lose the average."""
    return jax.tree.map(lambda x: jnp.array(x, copy=True), widen(tree))


def num_params(params: Any) -> int:
    return sum(x.size for x in jax.tree.leaves(params))
