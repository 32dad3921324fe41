"""Dependency analysis of channels through a model's jaxpr.

Operations without a rule, and operations that mix all channels, such as the mean of a
layer norm, pin their input channels: pinned channels cannot be removed. Any other
channels can be removed without a change of the outputs if they are zero.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxtrain import scopes
from jaxtrain.models.jaxprs import BARRIER, CALLS, IDENTITIES, called
from jaxtrain.plugins.compact.channels.labels import (
    ANY,
    STAYS,
    LabelClasses,
    Labelled,
    LabelledProduct,
    copies,
    fixed,
    reshape,
)
from jaxtrain.plugins.compact.channels.primitives import (
    ELEMENTWISE,
    REDUCTIONS,
    WINDOWS,
)

Dims = tuple[np.ndarray, ...]


def follow(
    function: Callable[[Any, Any], Any], weights: Any, images: Any
) -> tuple[LabelClasses, list[Labelled]]:
    """Label the channels in `function(weights, images)`, with abstract arguments.

    Returns:
      The equivalence classes, and the labels of each leaf in `weights`.
    """
    closed, found = jax.make_jaxpr(function)(weights, images), LabelClasses()
    given = [
        Labelled(tuple(found.new(n) for n in x.shape), of_images=False)
        for x in jax.tree.leaves(weights)
    ]
    shown = [
        Labelled(tuple(map(fixed, x.shape)), of_images=True)
        for x in jax.tree.leaves(images)
    ]
    inputs = [*given, *shown]
    for output in _Follower(found).read(closed.jaxpr, closed.consts, inputs):
        for labels in output.dims:
            found.pin(labels, "its channels are outputs of the model")
    return found, given


class _Follower:
    """Interpreter of jaxprs that computes channel labels instead of values."""

    def __init__(self, found: LabelClasses):
        self.found = found

    def read(
        self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Labelled]
    ) -> list[Labelled]:
        """Return the channel labels of a jaxpr's outputs."""
        values: dict[Any, Labelled] = {}

        def value_of(atom: Any) -> Labelled:
            if hasattr(atom, "val"):  # a literal
                return _constant(atom.val)
            return values[atom]

        values.update(zip(jaxpr.constvars, map(_constant, consts), strict=True))
        values.update(zip(jaxpr.invars, inputs, strict=True))
        for eqn in _needed(jaxpr):
            outputs = self._apply(eqn, [value_of(atom) for atom in eqn.invars])
            values.update(zip(eqn.outvars, outputs, strict=True))
        return [value_of(atom) for atom in jaxpr.outvars]

    def _apply(self, eqn: Any, inputs: list[Labelled]) -> list[Labelled]:
        name = eqn.primitive.name
        if name in CALLS:
            return self.read(*called(eqn), inputs)
        if name in IDENTITIES or name == BARRIER:
            return inputs
        made = self._apply_rule(eqn, inputs)
        images = any(x.of_images for x in inputs)
        if made is not None:
            return [Labelled(made, images)]
        for x in inputs:
            self._pin(x.dims, eqn)
        shapes = (out.aval.shape for out in eqn.outvars)
        return [Labelled(tuple(map(fixed, shape)), images) for shape in shapes]

    def _apply_rule(self, eqn: Any, inputs: list[Labelled]) -> Dims | None:
        """Return the labels of the outputs, or None if the primitive has no rule."""
        name, rules = eqn.primitive.name, self._rules()
        if name in ELEMENTWISE:
            return self._elementwise(eqn, inputs)
        if name in REDUCTIONS:
            return self._reduce(eqn, inputs[0])
        if name in WINDOWS:
            return self._window(eqn, inputs[0])
        return rules[name](eqn, *inputs) if name in rules else None

    def _rules(self) -> dict[str, Callable[..., Dims | None]]:
        return {
            "broadcast_in_dim": self._broadcast,
            "concatenate": self._concatenate,
            "conv_general_dilated": self._convolve,
            "dot_general": self._dot,
            "iota": lambda eqn: tuple(map(fixed, eqn.outvars[0].aval.shape)),
            "pad": self._pad,
            "reshape": self._reshape,
            "slice": self._slice,
            "squeeze": self._squeeze,
            "transpose": self._transpose,
        }

    def _pin(self, dims: Sequence[np.ndarray], eqn: Any) -> None:
        place = _layer(eqn)
        reason = f"{eqn.primitive.name} mixes or moves its channels"
        reason += f", in {place}" if place else ""
        for labels in dims:
            self.found.pin(labels, reason)

    def _elementwise(self, eqn: Any, inputs: list[Labelled]) -> Dims:
        shape = eqn.outvars[0].aval.shape
        made = tuple(map(copies, shape))
        for x in inputs:
            if x.dims:
                spread = [
                    self._expand(eqn, d, n) for d, n in zip(x.dims, shape, strict=True)
                ]
                made = tuple(map(self.found.join, made, spread))
        return made

    def _expand(self, eqn: Any, labels: np.ndarray, size: int) -> np.ndarray:
        """Broadcast the labels of a dim to `size`, and pin them if the size changes."""
        if len(labels) == size:
            return labels
        self._pin([labels], eqn)
        return copies(size)

    def _reduce(self, eqn: Any, x: Labelled, *_: Labelled) -> Dims:
        axes = eqn.params["axes"]
        self._pin([x.dims[axis] for axis in axes], eqn)
        return tuple(labels for i, labels in enumerate(x.dims) if i not in axes)

    def _window(self, eqn: Any, x: Labelled) -> Dims | None:
        params, shape = eqn.params, eqn.outvars[0].aval.shape
        moves = [params["window_dimensions"], params["window_strides"]]
        moves += [params["base_dilation"], params["window_dilation"]]
        moved = [
            any(n != 1 for n in of_dim[:4]) or any(of_dim[4])
            for of_dim in zip(*moves, params["padding"], strict=True)
        ]
        self._pin([d for d, moves in zip(x.dims, moved, strict=True) if moves], eqn)
        return tuple(
            fixed(n) if moves else labels
            for labels, n, moves in zip(x.dims, shape, moved, strict=True)
        )

    def _broadcast(self, eqn: Any, x: Labelled, *_: Labelled) -> Dims:
        shape = eqn.params["shape"]
        made = list(map(copies, shape))
        for labels, dim in zip(x.dims, eqn.params["broadcast_dimensions"], strict=True):
            made[dim] = self._expand(eqn, labels, shape[dim])
        return tuple(made)

    def _concatenate(self, eqn: Any, *inputs: Labelled) -> Dims:
        dim, made = eqn.params["dimension"], list(inputs[0].dims)
        for x in inputs[1:]:
            for i, labels in enumerate(x.dims):
                if i != dim:
                    made[i] = self.found.join(made[i], labels)
        made[dim] = np.concatenate([x.dims[dim] for x in inputs])
        return tuple(made)

    def _convolve(self, eqn: Any, x: Labelled, kernel: Labelled) -> Dims | None:
        params, shape = eqn.params, eqn.outvars[0].aval.shape
        if params["batch_group_count"] != 1:
            return None
        numbers = params["dimension_numbers"]
        (_, x_in, *x_space), (out, k_in, *k_space) = numbers.lhs_spec, numbers.rhs_spec
        self._pin([x.dims[dim] for dim in x_space], eqn)
        self._pin([kernel.dims[dim] for dim in k_space], eqn)
        channels, outputs, taken = x.dims[x_in], kernel.dims[out], kernel.dims[k_in]
        groups = params["feature_group_count"]
        if groups == 1:
            self._contract(x, channels, kernel, taken)
        else:
            # A feature group is removed as a unit, so all labels of its input and
            # output channels are equivalent.
            self._pin([taken], eqn)
            ins, outs = channels.reshape(groups, -1), outputs.reshape(groups, -1)
            for labels in (*ins.T, *outs.T):
                self.found.join(outs[:, 0], labels)
        made = list(map(fixed, shape))
        made[numbers.out_spec[0]] = x.dims[numbers.lhs_spec[0]]
        made[numbers.out_spec[1]] = outputs
        self._make(kernel, outputs)
        loops = (*made, taken)
        factor = 2 * math.prod(len(kernel.dims[dim]) for dim in k_space)
        self._count(eqn, loops, factor, math.prod(params["lhs_dilation"]))
        return tuple(made)

    def _dot(self, eqn: Any, x: Labelled, y: Labelled) -> Dims:
        (x_in, y_in), (x_batch, y_batch) = eqn.params["dimension_numbers"]
        for a, b in zip(x_in, y_in, strict=True):
            self._contract(x, x.dims[a], y, y.dims[b])
        made = [
            self.found.join(x.dims[a], y.dims[b])
            for a, b in zip(x_batch, y_batch, strict=True)
        ]
        for one, others in ((x, (*x_in, *x_batch)), (y, (*y_in, *y_batch))):
            free = [d for i, d in enumerate(one.dims) if i not in others]
            for labels in free:
                self._make(one, labels)
            made += free
        self._count(eqn, (*made, *(x.dims[a] for a in x_in)), 2, 1)
        return tuple(made)

    def _contract(
        self, x: Labelled, of_x: np.ndarray, y: Labelled, of_y: np.ndarray
    ) -> None:
        self.found.join(of_x, of_y)
        for one, labels in ((x, of_x), (y, of_y)):
            if not one.of_images:
                self.found.taken.append(labels[labels > STAYS])

    def _make(self, one: Labelled, labels: np.ndarray) -> None:
        if not one.of_images:
            self.found.makers.append(labels[labels > STAYS])

    def _count(self, eqn: Any, dims: Dims, factor: int, divisor: int) -> None:
        known = tuple(np.where(labels == ANY, STAYS, labels) for labels in dims)
        product = LabelledProduct(known, factor, divisor, _layer(eqn))
        self.found.products.append(product)

    def _pad(self, eqn: Any, x: Labelled, _: Labelled) -> Dims:
        shape, padding = eqn.outvars[0].aval.shape, eqn.params["padding_config"]
        padded = [any(amounts) for amounts in padding]
        self._pin([d for d, is_so in zip(x.dims, padded, strict=True) if is_so], eqn)
        return tuple(
            fixed(n) if is_so else labels
            for labels, n, is_so in zip(x.dims, shape, padded, strict=True)
        )

    def _slice(self, eqn: Any, x: Labelled) -> Dims:
        shape = eqn.outvars[0].aval.shape
        whole = [n == len(labels) for n, labels in zip(shape, x.dims, strict=True)]
        self._pin([d for d, is_so in zip(x.dims, whole, strict=True) if not is_so], eqn)
        return tuple(
            labels if is_so else fixed(n)
            for labels, n, is_so in zip(x.dims, shape, whole, strict=True)
        )

    def _reshape(self, eqn: Any, x: Labelled, *_: Labelled) -> Dims:
        made, lost = reshape(x.dims, eqn.params["new_sizes"])
        self._pin(lost, eqn)
        return made

    def _squeeze(self, eqn: Any, x: Labelled) -> Dims:
        gone = eqn.params["dimensions"]
        self._pin([x.dims[dim] for dim in gone], eqn)
        return tuple(labels for i, labels in enumerate(x.dims) if i not in gone)

    def _transpose(self, eqn: Any, x: Labelled) -> Dims:
        return tuple(x.dims[dim] for dim in eqn.params["permutation"])


def _constant(value: Any) -> Labelled:
    """Return the labels of a constant, `ANY` if the array is uniform."""
    array = np.asarray(value)
    alike = array.size and (array == array.reshape(-1)[0]).all()
    return Labelled(tuple(map(copies if alike else fixed, array.shape)), False)


def _needed(jaxpr: Any) -> list[Any]:
    """Return the equations on which the outputs of a jaxpr depend, in order."""
    used = {atom for atom in jaxpr.outvars if not hasattr(atom, "val")}
    needed = []
    for eqn in reversed(jaxpr.eqns):
        if not used.isdisjoint(eqn.outvars):
            used.update(atom for atom in eqn.invars if not hasattr(atom, "val"))
            needed.append(eqn)
    return needed[::-1]


def _layer(eqn: Any) -> str | None:
    """Return the path of the layer that an equation belongs to, or None."""
    scope = scopes.parse_scope(scopes.scope_of(eqn))
    return scope.name.removesuffix("/rest") if scope else None
