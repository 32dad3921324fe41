"""Mapping of the classes of a data set to the classes of a model, by name.

A data set may have a subset of the model's classes, or another order of classes.
Examples of classes unknown to the model are skipped, up to `data.max_bad_fraction`.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data import boxes, columns
from jaxtrain.data.boxes import StoredBoxes
from jaxtrain.data.image_files import listed
from jaxtrain.data.image_source import Source
from jaxtrain.data.pixel_classes import IGNORED, PIXEL_CLASSES
from jaxtrain.data.stores import Images, Remark, Store, remarks_of, targets_of
from jaxtrain.data.target_transform import ResizedCrop, TargetTransform, transform_of
from jaxtrain.errors import UserError, counted
from jaxtrain.inference.model import TrainedModel

CLASSES, NUM_CLASSES = "class_names", "num_classes"
UNKNOWN = -1


@dataclass(frozen=True)
class ClassMapping:
    """Mapping from classes of a data set to classes of a model.

    Attributes:
      names: Classes of the data set.
      known: Classes of the model.
      missing_label: Multi-label target of labels that the data set lacks: 0 or NaN.
      num_unknown: Number of images with classes unknown to the model.
    """

    names: tuple[str, ...]
    known: tuple[str, ...]
    missing_label: float = np.nan
    num_unknown: int = 0

    @cached_property
    def numbers(self) -> np.ndarray:
        """Model index of each class of the data set, int32 (C,), or `UNKNOWN`."""
        known = {name: i for i, name in enumerate(self.known)}
        return np.array([known.get(name, UNKNOWN) for name in self.names], np.int32)

    @property
    def missing(self) -> tuple[str, ...]:
        """Classes of the model that the data set lacks."""
        return tuple(name for name in self.known if name not in {*self.names})

    @property
    def unknown(self) -> tuple[str, ...]:
        """Classes of the data set that the model lacks."""
        return tuple(name for name in self.names if name not in {*self.known})

    def json(self) -> dict[str, Any]:
        """Return missing and unknown classes for the evaluation result, as JSON."""
        return {
            "missing_classes": [*self.missing],
            "unknown_classes": [*self.unknown],
            "num_unknown": self.num_unknown,
        }

    def stored(self, targets: Any) -> Any:
        """Map stored targets to the model's classes.

        Args:
          targets: Class indices (n,), multi-label targets (n, C), or a list, in which
            only `StoredBoxes` are mapped.
        """
        if isinstance(targets, np.ndarray) and targets.ndim == 1:
            return self.groups(targets)
        if isinstance(targets, np.ndarray):
            shape = len(targets), len(self.known)
            found = np.full(shape, self.missing_label, targets.dtype)
            is_known = self.numbers != UNKNOWN
            found[:, self.numbers[is_known]] = targets[:, is_known]
            return found
        return [self._of_boxes(one) for one in targets]

    def groups(self, groups: np.ndarray) -> np.ndarray:
        """Map strata to the model's classes; see `Store.strata`.

        Args:
          groups: Class of each example, (N,), or label presence, (N, C).
        """
        if groups.ndim == 1:
            return np.where(groups < 0, groups, self.numbers[groups])
        found = np.zeros((len(groups), len(self.known)), groups.dtype)
        is_known = self.numbers != UNKNOWN
        found[:, self.numbers[is_known]] = groups[:, is_known]
        return found

    def transformed(self, target: Any) -> Any:
        """Map the pixels of a mask, uint8 (H, W); other targets are unchanged."""
        return target if isinstance(target, dict) else self._pixels[target]

    @cached_property
    def _pixels(self) -> np.ndarray:
        """Lookup table from pixel values to the model's classes, uint8 (256,)."""
        table = np.full(IGNORED + 1, IGNORED, np.uint8)
        known = np.where(self.numbers == UNKNOWN, IGNORED, self.numbers)
        table[: len(self.names)] = known
        return table

    def _of_boxes(self, target: Any) -> Any:
        if not isinstance(target, StoredBoxes):
            return target
        kinds = self.numbers[target.classes]
        stays = kinds != UNKNOWN
        return StoredBoxes(
            target.boxes[stays], kinds[stays], target.crowd[stays], target.size
        )


@dataclass(frozen=True)
class MappedStore:
    """Store whose targets are mapped to the classes of a model."""

    store: Store
    mapping: ClassMapping
    facts: Mapping[str, Any]

    @property
    def image_shape(self) -> tuple[int | None, int | None, int]:
        return self.store.image_shape

    @property
    def remarks(self) -> tuple[Remark, ...]:
        return remarks_of(self.store)

    @property
    def labels_in_records(self) -> bool:
        """Whether labels are stored within the image records (`TfdsStore`)."""
        return getattr(self.store, "labels_in_records", False)

    def strata(self, indices: np.ndarray) -> np.ndarray:
        found = self.store.strata(indices)
        return found if PIXEL_CLASSES in self.facts else self.mapping.groups(found)

    def targets(self, indices: np.ndarray) -> Any | None:
        found = targets_of(self.store, indices)
        return None if found is None else self.mapping.stored(found)

    def read(self, indices: np.ndarray) -> tuple[Images, Any]:
        found, targets = self.store.read(indices)
        return found, self.mapping.stored(targets)

    @property
    def transform_target(self) -> TargetTransform | None:
        """Function that crops and resizes targets like images, or None; see `Store`."""
        return None if transform_of(self.store) is None else self._transform

    def _transform(self, target: Any, crop: ResizedCrop) -> Any:
        transform = transform_of(self.store)
        assert transform is not None
        return self.mapping.transformed(transform(target, crop))


def map_classes(
    source: Source, model: TrainedModel, data: DataConfig
) -> tuple[Source, ClassMapping | None]:
    """Map the classes of a data set to the classes of a model.

    Args:
      source: Examples of the data set.
      model: Model to evaluate on the examples.
      data: Data config of the evaluation.

    Returns:
      Examples with mapped targets, and the mapping (None if the classes are equal).

    Raises:
      UserError: Too many examples have classes unknown to the model.
    """
    facts = source.facts
    key, known = _key(model, facts)
    if known is None or facts.get(key) is None:
        return source, None
    names = tuple(map(str, facts[key]))
    if names == known or are_by_number(names, known):
        return source, None
    label = 0.0 if data.label_separator is not None else np.nan
    source, mapping = _drop_unknown(source, ClassMapping(names, known, label), data)
    whole = {name: x for name, x in facts.items() if name != boxes.CATEGORY_IDS}
    whole[key] = known
    if key == CLASSES:
        whole[NUM_CLASSES] = len(known)
    store = MappedStore(source.store, mapping, whole)
    return dataclasses.replace(source, store=store), mapping


def _key(
    model: TrainedModel, facts: Mapping[str, Any]
) -> tuple[str, tuple[str, ...] | None]:
    """Return the metadata key of the class names, and the model's class names."""
    about = model.description
    if model.task.classes_fact is not None:
        return model.task.classes_fact, about.class_names or about.column_names
    if PIXEL_CLASSES in facts:
        return PIXEL_CLASSES, about.class_names
    # Columns of numbers are not classes: `data.targets` determines their order.
    return columns.NAMES, None if about.column_names else about.class_names


def are_by_number(names: Sequence[str], known: Sequence[str]) -> bool:
    """Whether to match classes by index: data set or model has no class names.

    Classes without names are named by their index: 0, 1, 2. Directories with numeric
    names are in lexicographic order (0, 1, 10, 2) instead, and are matched by name.

    Args:
      names: Classes of the data set.
      known: Classes of the model.
    """
    numbers = [*map(str, range(len(known)))]
    if len(names) == len(known):
        return numbers in ([*names], [*known]) and {*names} != {*known}
    return [*known] == numbers and not {*names} <= {*known}


def _drop_unknown(
    source: Source, mapping: ClassMapping, data: DataConfig
) -> tuple[Source, ClassMapping]:
    """Drop examples that have only unknown classes, and set `mapping.num_unknown`.

    Raises:
      UserError: Too many examples have unknown classes.
    """
    if not mapping.unknown:
        return source, mapping
    has_unknown, lost = _with_unknown(source, mapping.numbers == UNKNOWN)
    num = int(has_unknown.sum())
    if num > math.ceil(data.max_bad_fraction * len(source)) or lost.all():
        raise UserError(
            f"data.source = {data.source!r}: {num:,} of "
            f"{counted(len(source), 'image')} have classes unknown to the model "
            f"({listed(mapping.unknown)}), more than data.max_bad_fraction = "
            f"{data.max_bad_fraction} allows; the model has the classes "
            f"{listed(mapping.known)}. Rename the classes, remove the images, or "
            "increase data.max_bad_fraction"
        )
    mapping = dataclasses.replace(mapping, num_unknown=num)
    return source.subset(np.flatnonzero(~lost)), mapping


def _with_unknown(source: Source, unknown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two masks (N,): examples with an unknown class, and examples to drop.

    Args:
      source: Examples of the data set.
      unknown: Whether each class is unknown to the model, (C,).
    """
    none = np.zeros(len(source), bool)
    if PIXEL_CLASSES in source.facts:
        count: Any = getattr(source.store, "count_pixels", None)
        if count is None:
            return none, none
        rows = [count(source.indices[[i]]) for i in range(len(source))]
        counts = np.stack(rows)[:, : len(unknown)]
        return counts[:, unknown].sum(1) > 0, none
    strata = source.strata()
    if strata.ndim > 1:
        return np.asarray(strata[:, unknown].any(1)), none
    if not (np.issubdtype(strata.dtype, np.integer) and NUM_CLASSES in source.facts):
        return none, none
    found = np.where(strata < 0, False, unknown[strata])
    return found, found
