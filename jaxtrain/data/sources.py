"""Splits of a run, as sources with random access.

A `Store` is a data set on disk or in memory. A `Source` is a selection of its examples,
in the configured size and channels. To add a source type, write a store and a function
that opens it (see `stores.py`), and add an entry to `SOURCES`.
"""

import dataclasses
import functools
import itertools
from dataclasses import dataclass

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data import images, sampled
from jaxtrain.data.fit import FIT, Fit
from jaxtrain.data.hold_out import HoldOut
from jaxtrain.data.image_source import Source
from jaxtrain.data.opening import open_store
from jaxtrain.data.random_windows import Jitter, Window
from jaxtrain.data.slices import NamedSplits, count_shared, join, select
from jaxtrain.data.stores import Store
from jaxtrain.data.unlabelled import NO_LABEL
from jaxtrain.errors import UserError, counted

# (H, W, C) of stored images; H and W are None if sizes differ.
StoredShape = tuple[int | None, int | None, int]
# Name of the test split, and the fraction to hold out if a data set lacks this split.
TEST = "test"
TEST_FRACTION = 0.1


@dataclass(frozen=True)
class Splits:
    """Training, validation and test splits of a run.

    `Source.read` returns random crops with crop seeds, as in training, and otherwise
    evaluation images, before the final resizing in the step (`seen_size`, `fit`).

    Attributes:
      train: Training split.
      validation: Split evaluated during the run, or None.
      test: Split evaluated at the end.
      size: Height and width to which the step resizes training images. None means no
        resizing.
      fit: Conversion of images to `size` and `seen_size` in the step.
      seen_size: Height and width to which the step resizes evaluation images. None
        means no resizing.
    """

    train: Source
    validation: Source | None
    test: Source
    size: int | None = None
    fit: Fit = FIT
    seen_size: int | None = None

    def named(self) -> dict[str, Source]:
        """Return the existing splits by name, with the training split first."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}

    def seen(self, source: Source) -> Source:
        """Return `source`, with images resized on the host to `seen_size` if set."""
        size, channels = self.seen_size, source.image_shape[-1]
        if size is None or source.image_shape[:2] == (size, size):
            return source
        shape = size, size, channels
        return dataclasses.replace(source, image_shape=shape, fit=self.fit)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Shape (H, W, C) of the model's input."""
        height, width, channels = self.train.model_input_shape
        return self.size or height, self.size or width, channels


def load(config: DataConfig, seed: int) -> Splits:
    """Open the splits of the config; hold out missing validation and test splits.

    Args:
      config: Data section of the config.
      seed: Seed of the run, which determines a held-out validation split.

    Raises:
      UserError: The source, a split or a conversion is invalid, or splits overlap.
    """
    return load_splits(config, seed, *open_store(config))


def load_splits(
    config: DataConfig,
    seed: int,
    store: Store,
    splits: NamedSplits,
    shape: StoredShape | None = None,
) -> Splits:
    """Select the splits of a run from an open store; see `load`.

    Args:
      config: Data section of the config.
      seed: Seed of the run, which determines a held-out validation split.
      store: Store with all examples.
      splits: Indices of the examples of each split.
      shape: Result of `stored_shape`. Computed if None.
    """
    shape = stored_shape(config, store, splits) if shape is None else shape
    on_device = _crops_on_device(config, shape)
    open_named = functools.partial(
        open_split, config, store, splits, on_device, shape=shape
    )
    hold_out = HoldOut(config, open_named(config.train_split))
    # If classes are held out, the test and validation splits of the data set are not
    # used, because they have the training classes.
    by_classes = config.hold_out == "classes"
    given_validation = (
        config.validation_split is not None or config.validation_fraction == 0
    )
    if config.test_split == TEST and (by_classes or TEST not in splits):
        fraction = config.test_fraction or TEST_FRACTION
        test = hold_out.take("data.test_fraction", fraction, seed=0)
    elif config.test_fraction is not None:
        raise UserError(
            f"data.test_fraction = {config.test_fraction} has no effect with "
            f"data.test_split = {config.test_split!r}: leave data.test_fraction out"
        )
    else:
        test = open_named(config.test_split)
    train = hold_out.train
    train_name = f"data.train_split = {config.train_split!r}"
    named = {train_name: train, f"data.test_split = {config.test_split!r}": test}
    validation = None
    if config.validation_split is not None:
        validation = open_named(config.validation_split)
        named[f"data.validation_split = {config.validation_split!r}"] = validation
    elif "validation" in splits and not by_classes:
        stored = open_named("validation")
        if not any(count_shared(stored.indices, s.indices) for s in (train, test)):
            validation = stored
    shared = _describe_shared(named)
    if validation is None and config.validation_fraction > 0:
        name, fraction = "data.validation_fraction", config.validation_fraction
        validation = hold_out.take(name, fraction, seed)
        train = hold_out.train
        # data.train_split may select an example twice, such as train+train. One copy
        # may then be held out, and the other not.
        shared += _describe_shared(
            {train_name: train, f"{name} = {fraction}": validation}
        )
    if by_classes and config.test_split != TEST and given_validation:
        raise UserError(
            "data.hold_out = 'classes' has no effect: no split is held out, because "
            f"data.test_split = {config.test_split!r} exists, and either "
            "data.validation_split is set or data.validation_fraction is 0; leave "
            "data.hold_out out"
        )
    if shared and not config.allow_overlap:
        raise UserError(
            f"{'; '.join(shared)}: give disjoint splits, such as train[:90%] "
            "and train[90%:], or set data.allow_overlap to True"
        )
    if config.allow_overlap and not shared:
        raise UserError(
            "data.allow_overlap = True has no effect: the splits share no examples; "
            "leave data.allow_overlap out"
        )
    _check_classes(config, train, {"validation": validation, "test": test})
    fit, seen_size = _make_fit(config), config.seen_size
    if not config.augment.cuts_windows:
        return Splits(train, validation, test, None, fit)
    if config.augment.scale_jitter and not train.transforms_targets:
        raise UserError(
            f"data.augment.scale_jitter = {config.augment.scale_jitter} is for masks "
            f"and boxes, but {config.source} has neither: use "
            "data.augment.random_resized_crop"
        )
    if train.canvas_shape and train.transforms_targets:
        fit = dataclasses.replace(fit, window=None)  # The host cuts the windows.
    return Splits(train, validation, test, config.image_size, fit, seen_size)


def stored_shape(config: DataConfig, store: Store, splits: NamedSplits) -> StoredShape:
    """Return the shape (H, W, C) of a store's images, measured if necessary.

    A store of files does not know the image size. The size is measured if images are
    not resized, or are cached on the device for random crops.
    """
    shape, augment = store.image_shape, config.augment
    on_device = augment.random_resized_crop and config.cache == "device"
    if None not in shape or not (config.seen_size is None or on_device):
        return shape
    examples = join([part for some in splits.values() for part in some])
    size = sampled.common_size(store, examples, config.max_pixels)
    return shape if size is None else (*size, shape[-1])


def _crops_on_device(config: DataConfig, shape: StoredShape) -> bool:
    """Whether the step draws random crops, which requires images of one size."""
    if not config.augment.random_resized_crop:
        return False  # Windows of `scale_jitter` may extend beyond the image.
    height, width, _ = shape
    differ = None in (height, width)
    if differ and config.cache == "device":
        raise UserError(
            "data.augment.random_resized_crop with data.cache = 'device': the images "
            f"of {config.source} differ in size and are cropped on the host; set "
            "data.cache to stream"
        )
    if config.crop_mode == "border" and height != width and not differ:
        raise UserError(
            "data.augment.random_resized_crop with data.crop_mode = 'border': images "
            f"of one size ({width}x{height}) are resized on the device, which does not "
            "support borders; set data.crop_mode to squash or center"
        )
    return not differ


def _make_fit(config: DataConfig) -> Fit:
    window, chosen = None, config.augment
    if chosen.random_resized_crop:
        window = Window(chosen.crop_scale)
    elif chosen.scale_jitter:
        assert config.seen_size is not None, "windows are resized"
        window = Jitter(chosen.scale_jitter, config.seen_size)
    size = (config.training_sizes or (config.image_size,))[-1]
    white = config.white_level
    return Fit(*config.fit, window, size if window else None, white)


def open_split(
    config: DataConfig,
    store: Store,
    splits: NamedSplits,
    on_device: bool,
    text: str,
    shape: StoredShape | None = None,
) -> Source:
    """Create the source of a split expression such as train[:90%].

    Args:
      on_device: Whether the step resizes the images.
      text: Split expression in TFDS syntax.
      shape: Result of `stored_shape`. Computed if None.
    """
    indices = select(text, splits, config.source)
    stored = shape or stored_shape(config, store, splits)
    converted = images.converted_shape(stored, config.seen_size, config.channels)
    fit = _make_fit(config)
    if on_device:
        height, width, _ = stored
        assert height is not None and width is not None
        converted = height, width, converted[-1]
        fit = dataclasses.replace(fit, window=None)
    # Read the first and the last example, to fail early if files are missing.
    store.read(indices[[0, -1]])
    measured = None if stored == store.image_shape else stored[:2]
    return Source(
        store, indices, converted, config.max_pixels, fit, stored_size=measured
    )


def _describe_shared(named: dict[str, Source]) -> list[str]:
    return [
        f"{name} and {other_name} share {count} examples"
        for (name, one), (other_name, other) in itertools.combinations(named.items(), 2)
        if (count := count_shared(one.indices, other.indices))
    ]


def _check_classes(
    config: DataConfig, train: Source, others: dict[str, Source | None]
) -> None:
    """Raise UserError for slices of a data set that is ordered by class.

    TFDS data sets are not checked: they are shuffled, and labels are slow to read.
    With held-out classes, splits differ in classes intentionally.
    """
    mixed = config.source.startswith("tfds:") or config.hold_out == "classes"
    if mixed or not sliced_splits(config) or "num_classes" not in train.facts:
        return
    trained = np.unique(train.strata())
    for name, source in others.items():
        lacking = [] if source is None else np.setdiff1d(source.strata(), trained)
        lacking = [number for number in lacking if number != NO_LABEL]
        if len(lacking):
            names = train.facts.get("class_names")
            first = lacking[0] if names is None else names[int(lacking[0])]
            raise UserError(
                f"data.train_split = {config.train_split!r} lacks "
                f"{counted(len(lacking), 'class', 'classes')} of the {name} split, "
                f"such as {first!r}, as the data are ordered by class: give "
                "data.test_fraction and data.validation_fraction instead of slices"
            )


def sliced_splits(config: DataConfig) -> list[str]:
    """Return the split expressions of the config that are slices."""
    texts = config.train_split, config.validation_split, config.test_split
    return [text for text in texts if text is not None and "[" in text]
