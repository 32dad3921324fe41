"""Optimizers, all of them optax's; defaults are optax's where none is given."""

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
    """Return the optimizer: the method by name with its weight decay.

    Clipping comes before (`clipping.py`). For lbfgs, whose line search finds the length
    of a step, `schedule` is None. Call `update` with the `value`, `grad` and `value_fn`
    that it needs and others ignore. State, arithmetic and updates are float32, or
    float64 as the parameters; `update.optimize` rounds their sum.

    Raises:
      UserError: the name is not known, there is no learning rate, or an option has no
        effect on the optimizer.
    """
    if config.name == LINE_SEARCH:
        _check_line_search(config)
    elif schedule is None:
        raise UserError(f"optimizer.learning_rate is not set: {config.name} needs one")
    return _widened(
        call_row(OPTIMIZERS, config, "optimizer.name", schedule, config.weight_decay)
    )


def decay_mask(params: Any) -> Any:
    """Return True for kernels, False for biases and norm parameters: the vectors."""
    return jax.tree.map(lambda p: p.ndim > 1, params)


def _widened(tx: Tx) -> optax.GradientTransformationExtraArgs:
    """Run `tx` on parameters and gradients of at least float32.

    In bfloat16 a decay of 0.999 rounds to 1: a second moment would never decay.
    """
    tx = optax.with_extra_args_support(tx)

    def init(params: Any) -> Any:
        state = tx.init(widen(params))
        # lbfgs's state has weak types, for which the second step would compile again,
        # and arrays that occur twice, which cannot be donated. Copies have neither.
        return jax.tree.map(lambda x: jnp.array(x, x.dtype), state)

    def update(
        updates: Any, state: Any, params: Any = None, **extra_args: Any
    ) -> tuple[Any, Any]:
        updates, params, extra_args = widen((updates, params, extra_args))
        return tx.update(updates, state, params, **extra_args)

    return optax.GradientTransformationExtraArgs(init, update)


def _l2(make: Callable[..., Tx]) -> Callable[..., Tx]:
    """Have `tx` get `gradients + weight_decay * params`, as in PyTorch."""

    def build(lr: Schedule, weight_decay: float, **options: Any) -> Tx:
        tx = make(lr, **options)
        return optax.chain(optax.add_decayed_weights(weight_decay, decay_mask), tx)

    return build


def _decoupled(make: Callable[..., Tx]) -> Callable[..., Tx]:
    """Have `make` decay the weights itself; the learning rate scales the decay."""

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
    """Subtract `lr * weight_decay` of the kernels: the momentum before never sees it.

    `optax.add_decayed_weights` takes no schedule.
    """

    def init(params: Any) -> Any:
        return optax.ScaleByScheduleState(jnp.zeros((), jnp.int32))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        updates = _decayed(updates, params, lr(state.count) * weight_decay)
        return updates, optax.ScaleByScheduleState(state.count + 1)

    return optax.GradientTransformation(init, update)


def _decayed(updates: Any, params: Any, share: jax.Array) -> Any:
    """Return updates that also take a share off the kernels."""
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


def _distance(
    make: Callable[..., Tx], lr: Schedule, weight_decay: float, b1: float, b2: float
) -> Tx:
    """Return an Adam that estimates its rate by the distance from the first weights.

    Where the learning rate is 0, as in the first step of a warm-up, there is nothing to
    estimate by, and optax would divide 0 by 0: nothing changes but the count.

    Args:
      make: Function of optax, which would decay all weights.
      lr: Factor on the estimate.
      weight_decay: Decay of the kernels, as AdamW's.
      b1: Decay of the first moment.
      b2: Decay of the second moment.
    """
    tx = make(lr, betas=(b1, b2))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        new: Any
        updates, new = tx.update(updates, state, params)
        finite = jnp.isfinite(new.estim_lr)
        updates = jax.tree.map(lambda u: jnp.where(finite, u, 0), updates)
        same = state._replace(count=new.count)
        kept = jax.tree.map(lambda x, y: jnp.where(finite, x, y), new, same)
        correction = jnp.sqrt(1 - b2**new.count) / (1 - b1**new.count)
        rate = state.estim_lr * lr(state.count) * correction
        return _decayed(updates, params, rate * weight_decay), kept

    return optax.GradientTransformation(tx.init, update)


def _prodigy(
    lr: Schedule,
    weight_decay: float,
    b1: float = 0.9,
    b2: float = 0.999,
    **options: Any,
) -> Tx:
    make = partial(optax.contrib.prodigy, **options)
    return _distance(make, lr, weight_decay, b1, b2)


def _dadapt_adamw(
    lr: Schedule,
    weight_decay: float,
    b1: float = 0.9,
    b2: float = 0.999,
    **options: Any,
) -> Tx:
    make = partial(optax.contrib.dadapt_adamw, **options)
    return _distance(make, lr, weight_decay, b1, b2)


def _lbfgs(lr: None, weight_decay: float) -> Tx:
    # _check_line_search has seen to it that neither argument is set.
    return optax.lbfgs()


def _check_nesterov(momentum: float, nesterov: bool) -> None:
    if nesterov and not momentum:
        raise UserError("optimizer.nesterov = True has no effect without momentum")


def _check_line_search(config: OptimizerConfig) -> None:
    """Raise UserError for any setting: a line search overrides or is misled by each."""
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
# Defazio et al. 2024, arXiv:2405.15682: what moves z, without a momentum.
SCHEDULE_FREE_SGD = Row(_l2(_schedule_free_sgd), ("momentum",))
SCHEDULE_FREE_ADAMW = Row(_schedule_free_adamw, ("b1", "b2", "eps"))
# Mishchenko & Defazio 2023, arXiv:2306.06101.
PRODIGY = Row(_prodigy, ("b1", "b2", "eps"))
# Defazio & Mishchenko 2023, arXiv:2301.07733.
DADAPT_ADAMW = Row(_dadapt_adamw, ("b1", "b2", "eps"))
# Liu & Nocedal 1989, Math. Programming 45, with a zoom line search.
LBFGS = Row(_lbfgs)
