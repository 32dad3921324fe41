"""Folding of batch norms into preceding convolutions, in evaluation.

In evaluation, a batch norm is an affine function per channel. If it follows a
convolution, the factor is folded into the kernel, and the offset becomes the bias. This
saves a pass over the activations. On GPUs, a single cuDNN kernel then computes
convolution, bias, residual sum and ReLU.

On CPUs, inference with folding is slower: XLA computes convolution and bias in two
passes, and scales the kernels again for each batch.

If the weights are constants of the program, as in an exported file, kernels are scaled
when the program is traced, so that folding has no cost on CPUs.

Folding rewrites the traced jaxpr of any model. It does not apply to a norm before a
convolution, a convolution whose result is used several times, or a factor that depends
on the images.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend import core

from jaxtrain.dtypes import wide
from jaxtrain.models import jaxprs


@dataclass(frozen=True, eq=False)
class _Weight:
    """An array that does not depend on the images.

    Attributes:
      array: The array.
      unrounded: The array before the cast to its dtype, so that scaled kernels are
        rounded only once.
    """

    array: Any
    unrounded: Any


@dataclass(frozen=True, eq=False)
class _Step:
    """An equation to be evaluated, and the jaxpr that contains it."""

    jaxpr: Any
    eqn: Any

    @property
    def name(self) -> str:
        """Name of the primitive."""
        return self.eqn.primitive.name

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Evaluate the equation; inputs are arrays, `_Weight`s or `_Convolved`s."""
        return jaxprs.apply(self.jaxpr, self.eqn, [_array(x) for x in inputs])


@dataclass(frozen=True, eq=False)
class _Convolved:
    """A result `scale * conv(x, kernel) + shift` that is not computed yet.

    Attributes:
      convolve: Function that computes the convolution of the input with a kernel.
      kernel: Kernel of the convolution, not scaled.
      dims: Dim of the output channels in the kernel, and in the result.
      unfolded: Function that computes the result with the operations of the jaxpr.
      like: Shape and dtype of the result.
      scale: Factor per channel, (channels,). None means that nothing is folded.
      shift: Offset per channel, (channels,).
    """

    convolve: Callable[[Any], jax.Array]
    kernel: _Weight
    dims: tuple[int, int]
    unfolded: Callable[[], jax.Array]
    like: Any
    scale: Any = None
    shift: Any = 0.0

    def compute(self) -> jax.Array:
        """Compute `scale * conv(x, kernel) + shift`.

        The scale is folded into the kernel before the kernel is cast to its dtype.
        """
        if self.scale is None:
            return self.unfolded()
        kernel, (dim_in_kernel, dim) = self.kernel, self.dims
        with _eager_if_concrete(kernel.array, self.scale, self.shift):
            factor = _broadcastable(self.scale, dim_in_kernel, self.like.ndim)
            scaled = (kernel.unrounded * factor).astype(kernel.array.dtype)
            shift = _broadcastable(self.shift, dim, self.like.ndim)
        y = self.convolve(scaled)
        y = y + shift.astype(y.dtype)
        return y.astype(self.like.dtype)

    def try_fold(self, step: _Step, inputs: Sequence[Any]) -> "_Convolved | None":
        """Fold the operation `step` into this result; return None if impossible."""
        (like,), name = (v.aval for v in step.eqn.outvars), step.name
        is_float = jnp.issubdtype(like.dtype, jnp.floating)
        if not is_float or like.shape != self.like.shape:
            return None

        def unfolded() -> jax.Array:
            return step.run([self.unfolded() if x is self else x for x in inputs])[0]

        same = replace(self, unfolded=unfolded, like=like)
        if name == "convert_element_type":
            return same
        if name not in ("add", "sub", "mul", "div"):
            return None
        first = inputs[0] is self
        by = _per_channel(inputs[1 if first else 0], self.dims[1], like.shape)
        if by is None or (name == "div" and not first):
            return None
        with _eager_if_concrete(by, self.scale, self.shift):
            return self._fold(same, name, by, first)

    def _fold(
        self, same: "_Convolved", name: str, by: Any, first: bool
    ) -> "_Convolved":
        """Fold an elementwise operation with one value per channel into this result.

        Args:
          same: This result, but with the shape and dtype of the operation's result.
          name: Name of the primitive: add, sub, mul or div.
          by: Other operand, (channels,).
          first: Whether this result is the first operand.
        """
        scale, shift = self.scale, self.shift
        if name in ("mul", "div"):
            factor = by if name == "mul" else 1 / by
            scale = factor if scale is None else scale * factor
            return replace(same, scale=scale, shift=shift * factor)
        if name == "add":
            return replace(same, shift=shift + by)
        if first:
            return replace(same, shift=shift - by)
        scale = -1.0 if scale is None else -scale
        return replace(same, scale=scale, shift=by - shift)


def fold_norms(function: Callable[..., Any], weights: Any, x: Any) -> Any:
    """Compute `function(weights, x)`, with norms folded into convolutions.

    Args:
      function: Traceable function of two pytrees.
      weights: Pytree of arrays that do not depend on the images.
      x: Images, or the input of consecutive pieces of a model.
    """
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(weights, x)
    inputs = [_Weight(w, w) for w in jax.tree.leaves(weights)] + jax.tree.leaves(x)
    outputs = _evaluate(traced, inputs)
    return jax.tree.unflatten(jax.tree.structure(shapes), map(_array, outputs))


def _evaluate(traced: Any, inputs: Sequence[Any]) -> list[Any]:
    jaxpr = traced.jaxpr
    atoms = [*(v for eqn in jaxpr.eqns for v in eqn.invars), *jaxpr.outvars]
    uses = Counter(v for v in atoms if isinstance(v, core.Var))
    values: dict[Any, Any] = {}

    def read(atom: Any) -> Any:
        if isinstance(atom, core.Literal):
            return _Weight(atom.val, atom.val)
        return values[atom]

    def write(variable: Any, value: Any) -> None:
        # Later operations are not folded into a result that is used several times.
        several = isinstance(value, _Convolved) and uses[variable] != 1
        values[variable] = value.compute() if several else value

    for variable, constant in zip(jaxpr.constvars, traced.consts, strict=True):
        write(variable, _Weight(constant, constant))
    for variable, value in zip(jaxpr.invars, inputs, strict=True):
        write(variable, value)
    for eqn in jaxpr.eqns:
        outputs = _apply(_Step(jaxpr, eqn), [read(atom) for atom in eqn.invars])
        for variable, value in zip(eqn.outvars, outputs, strict=True):
            write(variable, value)
    return [read(atom) for atom in jaxpr.outvars]


def _apply(step: _Step, inputs: list[Any]) -> list[Any]:
    if step.name == "jit":
        return _evaluate(step.eqn.params["jaxpr"], inputs)
    if all(isinstance(x, _Weight) for x in inputs):
        return _fold_constants(step, inputs)
    if step.name == "conv_general_dilated" and isinstance(inputs[1], _Weight):
        return [_convolution(step, _array(inputs[0]), inputs[1])]
    deferred = [x for x in inputs if isinstance(x, _Convolved)]
    if len(deferred) == len(step.eqn.outvars) == 1:
        folded = deferred[0].try_fold(step, inputs)
        if folded is not None:
            return [folded]
    return step.run(inputs)


def _fold_constants(step: _Step, inputs: list[_Weight]) -> list[_Weight]:
    with _eager_if_concrete(*(x.array for x in inputs)):
        results = [_Weight(y, y) for y in step.run(inputs)]
    if step.name == "convert_element_type":
        return [_Weight(results[0].array, inputs[0].array)]
    return results


def _eager_if_concrete(*arrays: Any) -> contextlib.AbstractContextManager[Any]:
    """Return a context manager for eager evaluation if all arrays are concrete."""
    traced = any(isinstance(x, Tracer) for x in arrays)
    return contextlib.nullcontext() if traced else jax.ensure_compile_time_eval()


def _convolution(step: _Step, x: jax.Array, kernel: _Weight) -> Any:
    (like,), numbers = (
        (v.aval for v in step.eqn.outvars),
        step.eqn.params["dimension_numbers"],
    )

    def convolve(kernel: Any) -> jax.Array:
        return step.run([x, kernel])[0]

    # Integer and 8-bit kernels are quantized: scaling would require another rounding.
    is_float = all(jnp.issubdtype(x.dtype, jnp.floating) for x in (like, kernel.array))
    if not is_float or jnp.finfo(kernel.array.dtype).bits < 16:
        return convolve(kernel.array)
    return _Convolved(
        convolve=convolve,
        kernel=kernel,
        dims=(numbers.rhs_spec[0], numbers.out_spec[1]),
        unfolded=partial(convolve, kernel.array),
        like=like,
    )


def _per_channel(x: Any, dim: int, shape: Sequence[int]) -> Any:
    """Reshape `x` to (channels,), or (1,) for a scalar.

    Return None if `x` depends on the images or varies within a channel.
    """
    if not isinstance(x, _Weight):
        return None
    with _eager_if_concrete(x.array):
        return _reshape_per_channel(jnp.asarray(x.array), dim, shape)


def _reshape_per_channel(array: jax.Array, dim: int, shape: Sequence[int]) -> Any:
    others = [n for d, n in enumerate(array.shape) if d != dim]
    if array.ndim not in (0, len(shape)) or any(n != 1 for n in others):
        return None
    return array.reshape(-1).astype(wide(array.dtype))


def _broadcastable(numbers: Any, dim: int, ndim: int) -> jax.Array:
    """Reshape (channels,) to `ndim` dims for broadcasting, with channels at `dim`."""
    return jnp.reshape(numbers, [-1 if d == dim else 1 for d in range(ndim)])


def _array(value: Any) -> Any:
    if isinstance(value, _Convolved):
        return value.compute()
    return value.array if isinstance(value, _Weight) else value
