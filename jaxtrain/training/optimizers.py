"""Optimizers from optax, with optax's defaults."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from optax.contrib import MuonDimensionNumbers

from jaxtrain.config import OptimizerConfig, optimizers as parts
from jaxtrain.config.base import default_of
from jaxtrain.config.optimizer import LINE_SEARCH
from jaxtrain.config.part import Part
from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError
from jaxtrain.registry import Row, call_row
from jaxtrain.training import OPTIMIZERS
from jaxtrain.training.schedules import Schedule

Tx = optax.GradientTransformation


def make_optimizer(
    config: OptimizerConfig, schedule: Schedule | None
) -> optax.GradientTransformationExtraArgs:
    """Create the optimizer of a config, including weight decay.

    Clipping is separate (`clipping.py`). `schedule` is None for lbfgs, which has a line
    search: its `update` needs `value`, `grad` and `value_fn`, which other optimizers
    ignore. State, arithmetic and updates are in float32, or in float64 for float64
    parameters; `update.optimize` rounds the new parameters.

    Raises:
      UserError: Unknown name, missing learning rate, or an option without effect on the
        optimizer.
    """
    if config.name == LINE_SEARCH:
        _check_line_search(config)
    elif schedule is None:
        raise UserError(
            f"optimizer.learning_rate is not set: {config.name} has no default; "
            "set a value"
        )
    args = schedule, config.weight_decay
    return _widened(call_row(OPTIMIZERS, config, "optimizer.name", *args))


def decay_mask(params: Any) -> Any:
    """Weight-decay mask: False for vectors (biases and norm parameters)."""
    return jax.tree.map(lambda p: p.ndim > 1, params)


def _widened(tx: Tx) -> optax.GradientTransformationExtraArgs:
    """Run `tx` on parameters and gradients in at least float32.

    In bfloat16 a decay of 0.999 rounds to 1, so the second moment would never decay.
    """
    tx = optax.with_extra_args_support(tx)

    def init(params: Any) -> Any:
        state = tx.init(widen(params))
        # The state of lbfgs has weak types, which would recompile the second step, and
        # duplicate buffers, which cannot be donated. Copies avoid both problems.
        return jax.tree.map(lambda x: jnp.array(x, x.dtype), state)

    def update(
        updates: Any, state: Any, params: Any = None, **extra_args: Any
    ) -> tuple[Any, Any]:
        updates, params, extra_args = widen((updates, params, extra_args))
        return tx.update(updates, state, params, **extra_args)

    return optax.GradientTransformationExtraArgs(init, update)


def _l2(make: Callable[..., Tx]) -> Callable[..., Tx]:
    """Add L2 regularization, `weight_decay * kernel`, to the gradients."""

    def build(lr: Schedule, weight_decay: float, **options: Any) -> Tx:
        tx = make(lr, **options)
        return optax.chain(optax.add_decayed_weights(weight_decay, decay_mask), tx)

    return build


def _decoupled(make: Callable[..., Tx]) -> Callable[..., Tx]:
    """Restrict the decoupled weight decay of an optax optimizer to kernels."""

    def build(lr: Schedule, weight_decay: float, **options: Any) -> Tx:
        return make(lr, weight_decay=weight_decay, mask=decay_mask, **options)

    return build


def _sgd(lr: Schedule, momentum: float, nesterov: bool) -> Tx:
    _check_nesterov(momentum, nesterov)
    return optax.sgd(lr, momentum or None, nesterov)


def _lars(lr: Schedule, weight_decay: float, momentum: float, nesterov: bool) -> Tx:
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
    lr: Schedule, b2: float, eps: float, momentum: float, nesterov: bool
) -> Tx:
    _check_nesterov(momentum, nesterov)
    return optax.rmsprop(lr, b2, eps, momentum=momentum or None, nesterov=nesterov)


def _adopt(lr: Schedule, weight_decay: float, **options: Any) -> Tx:
    return optax.chain(
        optax.contrib.scale_by_adopt(**options),
        optax.add_decayed_weights(weight_decay, decay_mask),
        optax.scale_by_learning_rate(lr),
    )


def _muon(lr: Schedule, weight_decay: float, momentum: float, nesterov: bool) -> Tx:
    def dimension_numbers(p: jax.Array) -> MuonDimensionNumbers | None:
        # Treat an HWIO kernel as a matrix with H * W * I inputs and O outputs.
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
    """Decoupled weight decay: subtract `lr * weight_decay * kernel` from updates."""

    def init(params: Any) -> Any:
        return optax.ScaleByScheduleState(jnp.zeros((), jnp.int32))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        updates = decayed(updates, params, lr(state.count) * weight_decay)
        return updates, optax.ScaleByScheduleState(state.count + 1)

    return optax.GradientTransformation(init, update)


def decayed(updates: Any, params: Any, share: jax.Array) -> Any:
    """Add decoupled weight decay: subtract `share * params` from updates of kernels.

    Args:
      updates: Updates of the parameters by an optimizer.
      params: Parameters before the update, with the same structure.
      share: Learning rate times weight decay, a scalar.
    """
    return jax.tree.map(
        lambda u, p, decays: u - (share * p).astype(u.dtype) if decays else u,
        updates,
        params,
        decay_mask(params),
    )


def _schedule_free_sgd(lr: Schedule, momentum: float) -> Tx:
    del momentum  # `make_average` passes `momentum` to `ScheduleFree`.
    return optax.sgd(lr)


def _schedule_free_adamw(
    lr: Schedule, weight_decay: float, b1: float, b2: float, eps: float
) -> Tx:
    del b1  # `make_average` passes `b1` to `ScheduleFree`.
    return optax.chain(
        optax.scale_by_rms(b2, eps, eps_in_sqrt=False, bias_correction=True),
        optax.add_decayed_weights(weight_decay, decay_mask),
        optax.scale_by_learning_rate(lr),
    )


def _lbfgs(lr: None, weight_decay: float) -> Tx:
    # `_check_line_search` ensures that learning rate and weight decay are unset.
    tx = optax.lbfgs()

    def init(params: Any) -> Any:
        if jax.tree.leaves(params):
            return tx.init(params)
        # `optax.tree_map_params` passes placeholders instead of arrays, but the line
        # search needs a dtype.
        pair = params, jnp.zeros(())
        alike = jax.tree.structure(pair)

        def is_pair(node: Any) -> bool:
            return jax.tree.structure(node) == alike

        state = tx.init(pair)
        return jax.tree.map(lambda x: x[0] if is_pair(x) else x, state, is_leaf=is_pair)

    return optax.GradientTransformationExtraArgs(init, tx.update)


def _check_nesterov(momentum: float, nesterov: bool) -> None:
    if nesterov and not momentum:
        raise UserError(
            "optimizer.nesterov = True: no effect without momentum; set "
            "optimizer.momentum, or remove optimizer.nesterov"
        )


def _check_line_search(config: OptimizerConfig) -> None:
    """Raise UserError for options that have no effect with a line search."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name != "name" and value and value != default_of(config, field.name):
            value = value.name if isinstance(value, Part) else value
            raise UserError(
                f"optimizer.{field.name} = {value!r}: lbfgs takes no options, as its "
                f"line search sets the step size; remove optimizer.{field.name}"
            )


# Values of `jaxtrain.training.OPTIMIZERS`.

# Sutskever et al. 2013, ICML.
SGD = Row(_l2(_sgd), parts.SGDConfig)
# Kingma & Ba 2014, arXiv:1412.6980.
ADAM = Row(_l2(optax.adam), parts.AdamConfig)
# Loshchilov & Hutter 2017, arXiv:1711.05101.
ADAMW = Row(_decoupled(optax.adamw), parts.AdamWConfig)
# You et al. 2019, arXiv:1904.00962, with the trust ratio on all parameters.
LAMB = Row(_decoupled(optax.lamb), parts.LambConfig)
# You et al. 2017, arXiv:1708.03888, with the trust ratio on kernels only.
LARS = Row(_lars, parts.LarsConfig)
# Chen et al. 2023, arXiv:2302.06675.
LION = Row(_decoupled(optax.lion), parts.LionConfig)
# Xie et al. 2022, arXiv:2208.06677: Nesterov's momentum without a second gradient.
ADAN = Row(_decoupled(optax.adan), parts.AdanConfig)
# Pagliardini et al. 2024, arXiv:2409.03137: a fast and a slow first moment.
ADEMAMIX = Row(_decoupled(optax.contrib.ademamix), parts.AdEMAMixConfig)
# Taniguchi et al. 2024, arXiv:2411.02853: Adam that converges with any b2.
ADOPT = Row(_adopt, parts.AdoptConfig)
# Tieleman & Hinton 2012, Coursera, lecture 6e.
RMSPROP = Row(_l2(_rmsprop), parts.RMSpropConfig)
# Duchi et al. 2011, JMLR 12.
ADAGRAD = Row(_l2(optax.adagrad), parts.AdagradConfig)
# https://kellerjordan.github.io/posts/muon for kernels; Adam for other parameters.
MUON = Row(_muon, parts.MuonConfig)
# Loshchilov & Hutter 2017, arXiv:1711.05101, algorithm 1.
SGDW = Row(_sgdw, parts.SGDWConfig)
# Defazio et al. 2024, arXiv:2405.15682: the update of z, without momentum.
SCHEDULE_FREE_SGD = Row(_l2(_schedule_free_sgd), parts.ScheduleFreeSGDConfig)
SCHEDULE_FREE_ADAMW = Row(_schedule_free_adamw, parts.ScheduleFreeAdamWConfig)
# Liu & Nocedal 1989, Math. Programming 45, with a zoom line search.
LBFGS = Row(_lbfgs, parts.LBFGSConfig)
