"""Optimizers by name, all of them optax's; defaults are optax's where none is given."""

import dataclasses
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
from jaxtrain.training.schedules import Schedule

Tx = optax.GradientTransformation


def make_optimizer(
    config: OptimizerConfig, schedule: Schedule | None
) -> optax.GradientTransformationExtraArgs:
    """Return the optimizer: the method by name with its weight decay.

    Clipping comes before (`clip`): it takes the norm of all gradients, and a pipeline
    stage has but its own.
    For lbfgs, whose line search finds the length of a step, `schedule` is None. Call
    `update` with the `value`, `grad` and `value_fn` that it needs and others ignore.
    State, arithmetic and updates are float32, or float64 as the parameters; `Update`
    rounds their sum.

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


def clip(grads: Any, norm: jax.Array, max_norm: float) -> Any:
    """Return `grads` scaled down to `max_norm` if `norm` is larger.

    So does `optax.clip_by_global_norm`, which takes the norm of what it is given.
    """
    return jax.tree.map(
        lambda g: jnp.where(norm < max_norm, g, g / norm * max_norm),
        grads,
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


def _l2(weight_decay: float, tx: Tx) -> Tx:
    """Add `weight_decay * params` to the gradients that `tx` gets, as PyTorch does."""
    return optax.chain(optax.add_decayed_weights(weight_decay, decay_mask), tx)


def _sgd(
    lr: Schedule, weight_decay: float, momentum: float = 0.9, nesterov: bool = False
) -> Tx:
    """SGD with momentum (Sutskever et al. 2013, ICML)."""
    _check_nesterov(momentum, nesterov)
    return _l2(weight_decay, optax.sgd(lr, momentum or None, nesterov))


def _adam(lr: Schedule, weight_decay: float, **options: Any) -> Tx:
    """Adam with L2 regularization (Kingma & Ba 2014, arXiv:1412.6980)."""
    return _l2(weight_decay, optax.adam(lr, **options))


def _adamw(lr: Schedule, weight_decay: float, **options: Any) -> Tx:
    """AdamW (Loshchilov & Hutter 2017, arXiv:1711.05101).

    As in PyTorch the learning rate scales the decay; so it does in lamb, lion and muon.
    """
    return optax.adamw(lr, weight_decay=weight_decay, mask=decay_mask, **options)


def _lamb(lr: Schedule, weight_decay: float, **options: Any) -> Tx:
    """LAMB, its trust ratio on all parameters (You et al. 2019, arXiv:1904.00962)."""
    return optax.lamb(lr, weight_decay=weight_decay, mask=decay_mask, **options)


def _lars(
    lr: Schedule, weight_decay: float, momentum: float = 0.9, nesterov: bool = False
) -> Tx:
    """LARS, the trust ratio on kernels only (You et al. 2017, arXiv:1708.03888)."""
    _check_nesterov(momentum, nesterov)
    return optax.lars(
        lr,
        weight_decay,
        weight_decay_mask=decay_mask,
        trust_ratio_mask=decay_mask,
        momentum=momentum,
        nesterov=nesterov,
    )


def _lion(lr: Schedule, weight_decay: float, **options: Any) -> Tx:
    """Lion (Chen et al. 2023, arXiv:2302.06675)."""
    return optax.lion(lr, weight_decay=weight_decay, mask=decay_mask, **options)


def _rmsprop(
    lr: Schedule,
    weight_decay: float,
    b2: float = 0.9,
    momentum: float = 0.0,
    nesterov: bool = False,
    **options: Any,
) -> Tx:
    """RMSprop (Tieleman & Hinton 2012, Coursera, lecture 6e)."""
    _check_nesterov(momentum, nesterov)
    rmsprop = optax.rmsprop(
        lr, b2, momentum=momentum or None, nesterov=nesterov, **options
    )
    return _l2(weight_decay, rmsprop)


def _adagrad(lr: Schedule, weight_decay: float, **options: Any) -> Tx:
    """AdaGrad (Duchi et al. 2011, JMLR 12)."""
    return _l2(weight_decay, optax.adagrad(lr, **options))


def _muon(
    lr: Schedule, weight_decay: float, momentum: float = 0.95, nesterov: bool = True
) -> Tx:
    """Muon for kernels, Adam for the rest (https://kellerjordan.github.io/posts/muon)."""

    def dimension_numbers(params: Any) -> Any:
        # A convolution kernel, HWIO, is the matrix of H * W * I inputs and O outputs.
        return jax.tree.map(
            lambda p: (
                MuonDimensionNumbers(range(p.ndim - 1), -1) if p.ndim > 1 else None
            ),
            params,
        )

    return optax.contrib.muon(
        lr,
        beta=momentum,
        nesterov=nesterov,
        weight_decay=weight_decay,
        weight_decay_mask=decay_mask,
        muon_weight_dimension_numbers=dimension_numbers,
    )


def _lbfgs(lr: None, weight_decay: float) -> Tx:
    """L-BFGS with a zoom line search (Liu & Nocedal 1989, Math. Programming 45)."""
    del lr, weight_decay  # _check_line_search has seen to it that neither is set.
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


OPTIMIZERS = {
    "sgd": Row(_sgd, ("momentum", "nesterov")),
    "adam": Row(_adam, ("b1", "b2", "eps", "nesterov")),
    "adamw": Row(_adamw, ("b1", "b2", "eps", "nesterov")),
    "lamb": Row(_lamb, ("b1", "b2", "eps")),
    "lars": Row(_lars, ("momentum", "nesterov")),
    "lion": Row(_lion, ("b1", "b2")),
    "rmsprop": Row(_rmsprop, ("b2", "eps", "momentum", "nesterov")),
    "adagrad": Row(_adagrad, ("eps",)),
    "muon": Row(_muon, ("momentum", "nesterov")),
    "lbfgs": Row(_lbfgs),
}
