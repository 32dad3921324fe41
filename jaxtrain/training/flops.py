"""FLOPs of convolutions and matrix products, counted in a jaxpr.

XLA's cost analysis omits library calls, such as cuDNN convolutions.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn


def count_flops(jaxpr: Jaxpr) -> int:
    """Count FLOPs over all devices; a multiply-add is two FLOPs.

    Padding is counted as part of the image. A scan body is counted once per iteration,
    and a `while` body once. Of a `cond`, only the most expensive branch is counted.
    """
    return sum(_flops(equation) for equation in jaxpr.eqns)


def _flops(equation: JaxprEqn) -> int:
    name, params = equation.primitive.name, equation.params
    if name in PRODUCTS:
        return PRODUCTS[name](equation)
    inner = [count_flops(jaxpr) for jaxpr in _inner_jaxprs(params)]
    if name == "cond":
        return max(inner)
    return sum(inner) * _num_executions(name, params)


def _inner_jaxprs(params: Mapping[str, Any]) -> Iterator[Jaxpr]:
    for value in params.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            if isinstance(one, ClosedJaxpr):
                yield one.jaxpr
            elif isinstance(one, Jaxpr):
                yield one


def _num_executions(name: str, params: Mapping[str, Any]) -> int:
    """Number of executions of an equation's inner jaxpr."""
    if name == "scan":
        return params["length"]
    if name == "shard_map":
        sizes = params["mesh"].shape
        # The prefix of `manual_axes` differs between versions of JAX. Without this
        # parameter, all axes are manual.
        named = (v for key, v in params.items() if key.endswith("manual_axes"))
        return math.prod(sizes[axis] for axis in next(named, sizes))
    return 1


def _shape(variable: Any) -> tuple[int, ...]:
    return variable.aval.shape


def _dot_flops(equation: JaxprEqn) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left, result = _shape(equation.invars[0]), _shape(equation.outvars[0])
    return 2 * math.prod(result) * math.prod(left[dim] for dim in contracted)


def _conv_flops(equation: JaxprEqn) -> int:
    """FLOPs of a convolution, except on zeros inserted by input dilation."""
    params, kernel = equation.params, _shape(equation.invars[1])
    channels = kernel[params["dimension_numbers"].rhs_spec[0]]
    products = math.prod(_shape(equation.outvars[0])) * math.prod(kernel) // channels
    return 2 * products // math.prod(params["lhs_dilation"])


PRODUCTS: dict[str, Callable[[JaxprEqn], int]] = {
    "dot_general": _dot_flops,
    "conv_general_dilated": _conv_flops,
}
