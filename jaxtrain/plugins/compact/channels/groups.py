"""Groups of removable channels, and their FLOPs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxtrain.errors import UserError
from jaxtrain.models.auxiliary import AuxiliaryHead
from jaxtrain.models.base import Model
from jaxtrain.plugins.compact.channels.follow import follow
from jaxtrain.plugins.compact.channels.labels import (
    LabelClasses,
    Labelled,
    LabelledProduct,
)
from jaxtrain.trees import by_path

# Number of traced images; more than one, to tell the batch dim from dims of size 1.
NUM_IMAGES = 2
# Path of a model's array, such as `conv1/kernel`, and index of a dim.
Axis = tuple[str, int]


@dataclass(frozen=True, eq=False)
class ChannelGroup:
    """Prunable channels of a layer, and the array indices that are removed with them.

    Channels are removed in units: single channels, or feature groups of a convolution.

    Attributes:
      name: Path of the first layer that computes the channels.
      unit: Number of channels per unit, in the first layer.
      indices: Path and dim of an array -> indices of each unit, int64 (units, n).
      taken: Keys of `indices` that are input-channel dims of kernels.
      numbers: Index of each unit's equivalence class, as in `ChannelMap.components`,
        (units,).
    """

    name: str
    unit: int
    indices: Mapping[Axis, np.ndarray]
    taken: frozenset[Axis]
    numbers: np.ndarray

    @property
    def num_units(self) -> int:
        return len(self.numbers)

    @property
    def channels(self) -> int:
        """Number of channels of the first layer."""
        return self.unit * self.num_units


@dataclass(frozen=True, eq=False)
class ChannelMap:
    """Groups of removable channels of a model.

    Attributes:
      groups: Name -> group, in order of computation.
      unpruned: Path of a layer without removable channels -> reason.
      sizes: Path and dim of an array -> size.
      products: Convolutions and matrix products for `NUM_IMAGES` images.
      components: Index of each label's equivalence class, int (labels,).
    """

    groups: Mapping[str, ChannelGroup]
    unpruned: Mapping[str, str]
    sizes: Mapping[Axis, int]
    products: tuple[LabelledProduct, ...]
    components: np.ndarray

    def flops(self, kept: Mapping[str, np.ndarray]) -> int:
        """Return the FLOPs per image, as `jaxtrain.training.flops.count_flops` does.

        Args:
          kept: Group name -> indices of retained units; other groups are unchanged.
        """
        stays = np.ones(self.components.max() + 1, bool)
        for name, units in kept.items():
            numbers = self.groups[name].numbers
            stays[np.delete(numbers, units)] = False
        of_labels = stays[self.components]
        return sum(p.flops(of_labels) for p in self.products) // NUM_IMAGES

    def costs(self) -> dict[str, np.ndarray]:
        """Return the FLOPs per image of each unit: group name -> float64 (units,).

        The FLOPs of a product are divided equally among the indices of each dim.
        """
        total = np.zeros(self.components.max() + 1)
        for product in self.products:
            sizes = [len(labels) for labels in product.dims]
            flops = product.factor * np.prod(np.asarray(sizes, float)) / NUM_IMAGES
            for labels, size in zip(product.dims, sizes, strict=True):
                numbers = self.components[labels]
                np.add.at(total, numbers, flops / product.divisor / size)
        return {name: total[group.numbers] for name, group in self.groups.items()}

    def indices_of(self, kept: Mapping[str, np.ndarray]) -> dict[Axis, np.ndarray]:
        """Return the retained indices of each dim that becomes smaller.

        Args:
          kept: Group name -> indices of retained units.
        """
        stays: dict[Axis, np.ndarray] = {}
        for name, units in kept.items():
            group = self.groups[name]
            gone = np.delete(np.arange(group.num_units), units)
            if gone.size:
                for axis, indices in group.indices.items():
                    mask = stays.setdefault(axis, np.ones(self.sizes[axis], bool))
                    mask[indices[gone]] = False
        return {axis: np.flatnonzero(mask) for axis, mask in stays.items()}


def channels_of(model: Model, images: jax.ShapeDtypeStruct) -> ChannelMap:
    """Find the removable channels of a model.

    Args:
      model: Model, possibly abstract; layers in its `kernels_from_images` keep all
        channels.
      images: Shape and dtype of `NUM_IMAGES` images.

    Raises:
      UserError: The model does not support the images, or has no removable channels.
    """
    graphdef, state = nnx.split(model)
    weights = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), nnx.to_pure_dict(state)
    )
    auxiliary = set[str]()

    def function(weights: Any, images: jax.Array) -> Any:
        made = nnx.merge(graphdef, weights, copy=True)
        made.eval()
        for path, layer in nnx.iter_modules(made):
            if isinstance(layer, AuxiliaryHead):
                layer.deterministic = False
                auxiliary.add("/".join(map(str, path)))
        return made(images)

    found, labelled = follow(function, weights, images)
    positions = _LabelPositions.of(
        found, dict(zip(by_path(weights), labelled, strict=True))
    )
    for path, x in zip(positions.paths, labelled, strict=True):
        if path.rpartition("/")[0] in model.kernels_from_images:
            found.pin(np.concatenate(x.dims), "its kernel is computed from images")
    components = found.components()
    groups, unpruned = _groups(found, positions, components)
    if not groups:
        told = "; ".join(f"{name}: {reason}" for name, reason in unpruned.items())
        raise UserError(
            f"model {type(model).__name__} has no channels that can be removed "
            f"({told or 'no conv or dense layer'}): choose another model.name"
        )
    products = [
        product
        for product in found.products
        if not any(f"{product.layer}/".startswith(f"{path}/") for path in auxiliary)
    ]
    return ChannelMap(groups, unpruned, positions.sizes, tuple(products), components)


@dataclass(frozen=True, eq=False)
class _LabelPositions:
    """Array, dim, and index along the dim, that each channel label belongs to.

    Attributes:
      paths: Paths of the model's arrays.
      sizes: Path and dim of an array -> size.
      axes: Path and dim of each label, as an index into the keys of `sizes`; -1 if
        no index of the arrays has the label.
      places: Index of each label along its dim.
    """

    paths: tuple[str, ...]
    sizes: Mapping[Axis, int]
    axes: np.ndarray
    places: np.ndarray

    @classmethod
    def of(
        cls, found: LabelClasses, labelled: Mapping[str, Labelled]
    ) -> "_LabelPositions":
        sizes: dict[Axis, int] = {}
        axes, places = np.full(found.num, -1), np.zeros(found.num, np.int64)
        for path, array in labelled.items():
            for dim, labels in enumerate(array.dims):
                axes[labels], places[labels] = len(sizes), np.arange(len(labels))
                sizes[path, dim] = len(labels)
        return cls(tuple(labelled), sizes, axes, places)


def _groups(
    found: LabelClasses, positions: _LabelPositions, components: np.ndarray
) -> tuple[dict[str, ChannelGroup], dict[str, str]]:
    """Return `ChannelMap.groups` and `ChannelMap.unpruned`."""
    why: dict[int, str] = {}
    for labels, reason in found.reasons:
        for number in np.unique(components[labels]).tolist():
            why.setdefault(number, reason)
    order = np.argsort(components, kind="stable")
    ends = np.cumsum(np.bincount(components))
    members = np.split(order, ends[:-1])
    names, unpruned = list(positions.sizes), dict[str, str]()
    # Layer path -> (output-channel dim, all array dims, number of labels per array dim)
    # -> numbers of the equivalence classes whose labels have these properties.
    found_groups: dict[str, dict[Any, list[int]]] = {}
    seen = set[int]()
    for labels in found.makers:
        for label in labels.tolist():
            number, axis = int(components[label]), int(positions.axes[label])
            name = names[axis][0].rpartition("/")[0]
            if number in why:
                unpruned.setdefault(name, why[number])
            elif number not in seen:
                seen.add(number)
                alike = np.unique(positions.axes[members[number]], return_counts=True)
                kind = (axis, *(tuple(x.tolist()) for x in alike))
                found_groups.setdefault(name, {}).setdefault(kind, []).append(number)
    taken = np.unique(positions.axes[np.concatenate([*found.taken, np.zeros(0, int)])])
    made = {}
    for name, kinds in found_groups.items():
        if len(kinds) > 1:
            unpruned[name] = "its channels have different dependencies"
            continue
        ((axis, axes, counts), numbers), *_ = kinds.items()
        lying = np.stack([members[number] for number in numbers])
        # The labels of an equivalence class are sorted, so the labels of each array dim
        # are adjacent. All classes of this group have equal numbers of labels per dim.
        parts = np.split(positions.places[lying], np.cumsum(counts)[:-1], axis=1)
        made[name] = ChannelGroup(
            name=name,
            unit=counts[axes.index(axis)],
            indices={names[a]: part for a, part in zip(axes, parts, strict=True)},
            taken=frozenset(names[a] for a in axes if a in taken),
            numbers=np.array(numbers),
        )
    return made, {name: why for name, why in unpruned.items() if name not in made}
