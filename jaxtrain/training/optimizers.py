"""Optimizers of optax, with its defaults."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from optax.contrib import MuonDimensionNumbers

from jaxtrain.config import OptimizerConfig
from jaxtrain.config.optimizer import LINE_SEARCH
from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError
from jaxtrain.registry import Row, call_row
from jaxtrain.training import OPTIMIZERS
from jaxtrain.training.averages import SCHEDULE_FREE_BETA
from jaxtrain.training.schedules import Schedule

Tx = optax.GradientTransformation


def make_optimizer(
    config: OptimizerConfig, schedule: Schedule | None
) -> optax.GradientTransformationExtraArgs:
    """Create the optimizer of a config, with its weight decay.

    Clipping is separate (`clipping.py`). `schedule` is None for lbfgs, which has a line
    search: its `update` needs `value`, `grad` and `value_fn`, which others ignore.
    State, arithmetic and updates are in float32, or float64 for such parameters;
    `update.optimize` rounds the new parameters.

    Raises:
      UserError: Unknown name, missing learning rate, or an option without effect on the
        optimizer.
    """
    if config.name == LINE_SEARCH:
        _check_line_search(config)
    elif schedule is None:
        raise UserError(f"optimizer.learning_rate is not set: {config.name} needs one")
    return _widened(
        call_row(OPTIMIZERS, config, "optimizer.name", schedule, config.weight_decay)
    )


def decay_mask(params: Any) -> Any:
    """Mask of weight decay: False for vectors (biases, norm parameters)."""
    return jax.tree.map(lambda p: p.ndim > 1, params)


def _widened(tx: Tx) -> optax.GradientTransformationExtraArgs:
    """Run `tx` on parameters and gradients in at least float32.

    A decay of 0.999 rounds to 1 in bfloat16: the second moment would never decay.
    """
    tx = optax.with_extra_args_support(tx)

    def init(params: Any) -> Any:
        state = tx.init(widen(params))
        # lbfgs's state has weak types, which would recompile the second step, and
        # duplicate buffers, which cannot be donated. Copies have neither.
        return jax.tree.map(lambda x: jnp.array(x, x.dtype), state)

    def update(
        updates: Any, state: Any, params: Any = None, **extra_args: Any
    ) -> tuple[Any, Any]:
        updates, params, extra_args = widen((updates, params, extra_args))
        return tx.update(updates, state, params, **extra_args)

    return optax.GradientTransformationExtraArgs(init, update)


def _l2(make: Callable[..., Tx]) -> Callable[..., Tx]:
    """L2 regularization: `tx` gets `gradients + weight_decay * params`."""

    def build(lr: Schedule, weight_decay: float, **options: Any) -> Tx:
        tx = make(lr, **options)
        return optax.chain(optax.add_decayed_weights(weight_decay, decay_mask), tx)

    return build


def _decoupled(make: Callable[..., Tx]) -> Callable[..., Tx]:
    """Decoupled weight decay by `make` itself, scaled by the learning rate."""

    def build(lr: Schedule, weight_decay: float, **options: Any) -> Tx:
        return make(lr, weight_decay=weight_decay, mask=decay_mask, **options)

    return build


def _sgd(lr: Schedule, momentum: float = 0.9, nesterov: bool = False) -> Tx:
    _check_nesterov(momentum, nesterov)
    return optax.sgd(lr, momentum or None, nesterov)


def _lars(
    lr: Schedule, weight_decay: float, momentum: float = 0.9, nesterov: bool = False
) -> Tx:
    _check_nesterov(momentum, nesterov)
    return optax.lars(
        lr,
        weight_decay,
        weight_decay_mask=decay_mask,
        trust_ratio_mask=decay_mask,
        momentum=momentum,
        nesterov=nesterov,
    )


def _rmsprop(
    lr: Schedule,
    b2: float = 0.9,
    momentum: float = 0.0,
    nesterov: bool = False,
    **options: Any,
) -> Tx:
    _check_nesterov(momentum, nesterov)
    return optax.rmsprop(
        lr, b2, momentum=momentum or None, nesterov=nesterov, **options
    )


def _adopt(lr: Schedule, weight_decay: float, **options: Any) -> Tx:
    return optax.chain(
        optax.contrib.scale_by_adopt(**options),
        optax.add_decayed_weights(weight_decay, decay_mask),
        optax.scale_by_learning_rate(lr),
    )


def _muon(
    lr: Schedule, weight_decay: float, momentum: float = 0.95, nesterov: bool = True
) -> Tx:
    def dimension_numbers(p: jax.Array) -> MuonDimensionNumbers | None:
        # A convolution kernel, HWIO, is the matrix of H * W * I inputs and O outputs.
        return MuonDimensionNumbers(range(p.ndim - 1), -1) if p.ndim > 1 else None

    return optax.contrib.muon(
        lr,
        beta=momentum,
        nesterov=nesterov,
        weight_decay=weight_decay,
        weight_decay_mask=decay_mask,
        muon_weight_dimension_numbers=partial(jax.tree.map, dimension_numbers),
    )


def _sgdw(lr: Schedule, weight_decay: float, **options: Any) -> Tx:
    return optax.chain(_sgd(lr, **options), _decay_by(lr, weight_decay))


def _decay_by(lr: Schedule, weight_decay: float) -> Tx:
    """Subtract `lr * weight_decay * kernel`, after the momentum.

    `optax.add_decayed_weights` takes no schedule.
    """

    def init(params: Any) -> Any:
        return optax.ScaleByScheduleState(jnp.zeros((), jnp.int32))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        updates = decayed(updates, params, lr(state.count) * weight_decay)
        return updates, optax.ScaleByScheduleState(state.count + 1)

    return optax.GradientTransformation(init, update)


def decayed(updates: Any, params: Any, share: jax.Array) -> Any:
    """Add the decay of the kernels to updates."""
    return jax.tree.map(
        lambda u, p, decays: u - (share * p).astype(u.dtype) if decays else u,
        updates,
        params,
        decay_mask(params),
    )


def _schedule_free_sgd(lr: Schedule, momentum: float = SCHEDULE_FREE_BETA) -> Tx:
    del momentum  # Of the average (`ScheduleFree`).
    return optax.sgd(lr)


def _schedule_free_adamw(
    lr: Schedule,
    weight_decay: float,
    b1: float = SCHEDULE_FREE_BETA,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> Tx:
    del b1  # Of the average (`ScheduleFree`).
    return optax.chain(
        optax.scale_by_rms(b2, eps, eps_in_sqrt=False, bias_correction=True),
        optax.add_decayed_weights(weight_decay, decay_mask),
        optax.scale_by_learning_rate(lr),
    )


def _lbfgs(lr: None, weight_decay: float) -> Tx:
    # _check_line_search has refused both arguments.
    tx = optax.lbfgs()

    def init(params: Any) -> Any:
        if jax.tree.leaves(params):
            return tx.init(params)
        # `optax.tree_map_params` passes no arrays, but the line search reads a dtype.
        pair = params, jnp.zeros(())
        alike = jax.tree.structure(pair)

        def is_pair(node: Any) -> bool:
            return jax.tree.structure(node) == alike

        state = tx.init(pair)
        return jax.tree.map(lambda x: x[0] if is_pair(x) else x, state, is_leaf=is_pair)

    return optax.GradientTransformationExtraArgs(init, tx.update)


def _check_nesterov(momentum: float, nesterov: bool) -> None:
    if nesterov and not momentum:
        raise UserError("optimizer.nesterov = True has no effect without momentum")


def _check_line_search(config: OptimizerConfig) -> None:
    """Raise UserError for settings that a line search overrides or cannot honour."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name != "name" and value and value != field.default:
            raise UserError(
                f"optimizer.{field.name} = {value!r}: lbfgs takes no options, its line "
                "search finds the length of every step; leave it unset"
            )


# Rows of `OPTIMIZERS` (see `jaxtrain.training`).
# Sutskever et al. 2013, ICML.
SGD = Row(_l2(_sgd), ("momentum", "nesterov"))
# Kingma & Ba 2014, arXiv:1412.6980.
ADAM = Row(_l2(optax.adam), ("b1", "b2", "eps", "nesterov"))
# Loshchilov & Hutter 2017, arXiv:1711.05101.
ADAMW = Row(_decoupled(optax.adamw), ("b1", "b2", "eps", "nesterov"))
# You et al. 2019, arXiv:1904.00962, the trust ratio on all parameters.
LAMB = Row(_decoupled(optax.lamb), ("b1", "b2", "eps"))
# You et al. 2017, arXiv:1708.03888, the trust ratio on kernels alone.
LARS = Row(_lars, ("momentum", "nesterov"))
# Chen et al. 2023, arXiv:2302.06675.
LION = Row(_decoupled(optax.lion), ("b1", "b2"))
# Xie et al. 2022, arXiv:2208.06677: Nesterov's momentum without a second gradient.
ADAN = Row(_decoupled(optax.adan), ("b1", "b2", "eps"))
# Pagliardini et al. 2024, arXiv:2409.03137: a fast and a slow first moment.
ADEMAMIX = Row(_decoupled(optax.contrib.ademamix), ("b1", "b2", "eps"))
# Taniguchi et al. 2024, arXiv:2411.02853: Adam that converges with any b2.
ADOPT = Row(_adopt, ("b1", "b2", "eps"))
# Tieleman & Hinton 2012, Coursera, lecture 6e.
RMSPROP = Row(_l2(_rmsprop), ("b2", "eps", "momentum", "nesterov"))
# Duchi et al. 2011, JMLR 12.
ADAGRAD = Row(_l2(optax.adagrad), ("eps",))
# https://kellerjordan.github.io/posts/muon, for kernels; Adam for the rest.
MUON = Row(_muon, ("momentum", "nesterov"))
# Loshchilov & Hutter 2017, arXiv:1711.05101, algorithm 1.
SGDW = Row(_sgdw, ("momentum", "nesterov"))
# Defazio et al. 2024, arXiv:2405.15682: the update of z, without momentum.
SCHEDULE_FREE_SGD = Row(_l2(_schedule_free_sgd), ("momentum",))
SCHEDULE_FREE_ADAMW = Row(_schedule_free_adamw, ("b1", "b2", "eps"))
# Liu & Nocedal 1989, Math. Programming 45, with a zoom line search.
LBFGS = Row(_lbfgs)
