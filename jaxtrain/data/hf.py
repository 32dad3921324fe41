"""`hf:NAME_OR_DIR`: local data sets of the Hugging Face library `datasets`.

Nothing is downloaded, data set scripts are not run, and images stay encoded.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jaxtrain import extras
from jaxtrain.config import DataConfig
from jaxtrain.data import classes, columns
from jaxtrain.data.classes import SPLITS
from jaxtrain.data.hf_store import HfStore, digest_of
from jaxtrain.data.image_files import listed, shown
from jaxtrain.data.slices import number_examples
from jaxtrain.data.stores import Opened
from jaxtrain.data.target_images import TARGET_IMAGES, TargetImages
from jaxtrain.data.text import nfc
from jaxtrain.data.unlabelled import NO_LABEL
from jaxtrain.errors import UserError, nearest

# Environment variable, and attribute of the libraries' config modules, that disables
# network access of Hugging Face libraries.
OFFLINE = "HF_HUB_OFFLINE"
# Files that mark a directory written by `save_to_disk`.
SAVED = ("dataset_dict.json", "state.json")


def open_hf(name: str, config: DataConfig) -> Opened:
    """Open a data set from a directory, or from the cache of the library `datasets`.

    Args:
      name: Directory written by `save_to_disk`, or directory with Parquet files; or
        NAME[:CONFIG] of a cached data set.
      config: Data section of the config.

    Raises:
      UserError: The data set is missing, or lacks encoded images or labels.
    """
    source = config.source
    message = f"{source} needs the library datasets"
    if extras.missing("datasets"):
        raise UserError(f"{message}: {extras.install('hf')}")
    try:
        import datasets as library
    except ImportError as error:
        raise UserError(f"{message} ({error}): {extras.install('hf')}") from None
    with _offline():
        loaded = _load(library, source, name)
    loaded = loaded if isinstance(loaded, dict) else {"train": loaded}
    loaded = _by_split(source, loaded)
    if not loaded:
        raise UserError(f"{source} has no examples: save the data set again")
    features = next(iter(loaded.values())).features
    kind, target = None, None
    if not config.targets:
        kind, target = _target_images(library, features)
    image = _image_column(library, source, features, target)
    if kind is not None and target is not None:
        columns_of = [rows.select_columns([image, target]) for rows in loaded.values()]
        joined = _joined(library, source, columns_of)
        lengths = {split: [len(rows)] for split, rows in loaded.items()}
        return kind.from_rows(library, config, joined, image, target, lengths)
    read = _columns if config.targets else _labels
    wanted = list(config.targets) or [_label_column(library, source, features)]
    if missing := [name for name in wanted if name not in features]:
        raise UserError(
            f"data.targets = {config.targets}: {source} has no column "
            f"{shown(missing[0])!r}; expected one or more of "
            f"{listed(features)}{nearest(missing[0], features)}"
        )
    columns_of = [rows.select_columns([image, *wanted]) for rows in loaded.values()]
    joined = _joined(library, source, columns_of)
    lengths = {split: [len(rows)] for split, rows in loaded.items()}
    places, splits = number_examples(shown(source), lengths)
    target, names, origin = read(source, joined, wanted)
    encoded = library.Image(decode=False)
    images = joined.select_columns([image]).cast_column(image, encoded)
    digest = digest_of(images, image, target)
    if target.ndim == 1:
        facts = classes.facts(source, splits, target, names, digest)
    else:
        facts = columns.facts(source, splits, names, digest, origin)
    return HfStore(places, images, target, facts), splits


def _by_split(source: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Map canonical split names to the non-empty splits."""
    names: dict[str, str] = {}
    for name, rows in found.items():
        split = SPLITS.get(name.lower(), name)
        if len(rows) and names.setdefault(split, name) != name:
            raise UserError(
                f"{source}: {names[split]} and {name} are both the {split} split: save "
                "the data set with only one of the two splits"
            )
    return {split: found[name] for split, name in names.items()}


def _joined(library: Any, source: str, parts: list[Any]) -> Any:
    try:
        return library.concatenate_datasets(parts)
    except ValueError as error:
        raise UserError(
            f"{source}: the columns of the splits differ ({error}): save splits with "
            "the same columns"
        ) from None


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Keep `datasets` offline and silent in this context.

    The environment variable affects subprocesses. The attributes affect this process,
    which read the variable at import.
    """
    import datasets
    from datasets import config
    from huggingface_hub import constants

    with contextlib.ExitStack() as before:
        for place in (config, constants):
            before.callback(setattr, place, OFFLINE, getattr(place, OFFLINE))
            setattr(place, OFFLINE, True)
        if OFFLINE in os.environ:
            before.callback(os.environ.__setitem__, OFFLINE, os.environ[OFFLINE])
        else:
            before.callback(os.environ.pop, OFFLINE)
        os.environ[OFFLINE] = "1"
        if not datasets.are_progress_bars_disabled():
            before.callback(datasets.enable_progress_bars)
        datasets.disable_progress_bars()
        yield


def _load(library: Any, source: str, name: str) -> Any:
    folder = os.path.expanduser(name)
    try:
        if any(os.path.isfile(os.path.join(folder, file)) for file in SAVED):
            return library.load_from_disk(folder)
        if os.path.isdir(folder):
            # Without an explicit format the library would also read pickles.
            return library.load_dataset("parquet", data_dir=folder)
        repository, _, part = name.partition(":")
        return library.load_dataset(repository, part or None)
    # The library raises many types of exceptions.
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"{source} cannot be opened ({type(error).__name__}: {shown(reason)}): "
            "expected a directory written by save_to_disk or with .parquet files, or a "
            "data set in the datasets cache. Nothing is downloaded: on a machine with "
            'internet access, save the data set once with\n  python -c "import '
            "datasets; datasets.load_dataset('NAME').save_to_disk('DIR')\"\nand give "
            "hf:DIR"
        ) from None


def _target_images(
    library: Any, features: Any
) -> tuple[TargetImages, str] | tuple[None, None]:
    """Return (type, column) of the target images of a data set, or (None, None)."""
    for row in TARGET_IMAGES.values():
        kind = row()
        if (column := kind.find_column(library, features)) is not None:
            return kind, column
    return None, None


def _image_column(library: Any, source: str, features: Any, target: str | None) -> str:
    names = [n for n, kind in features.items() if isinstance(kind, library.Image)]
    names = [name for name in names if name != target]
    return _pick_column(source, features, "image", names)


def _label_column(library: Any, source: str, features: Any) -> str:
    def of_classes(kinds: Mapping[str, Any]) -> list[str]:
        return [n for n, kind in kinds.items() if isinstance(kind, library.ClassLabel)]

    names = of_classes(features)
    if not names and "label" in features:
        names = ["label"]
    lists = {n: getattr(kind, "feature", None) for n, kind in features.items()}
    return _pick_column(source, features, "label", names or of_classes(lists))


def _pick_column(source: str, features: Any, what: str, names: list[str]) -> str:
    """Return the column `what` if `names` has it, or else the only name in `names`."""
    if what in names:
        return what
    if len(names) != 1:
        raise UserError(
            f"{source} has the columns {listed(features)}: expected one Image column, "
            "and one label column (ClassLabel, a list of ClassLabel, or integers with "
            "the name label); rename one column to image and one to label "
            "(rename_column), or name numeric columns in data.targets"
        )
    return names[0]


def _labels(
    source: str, dataset: Any, wanted: list[str]
) -> tuple[np.ndarray, tuple[str, ...], tuple[float, ...]]:
    """Read a column of class labels, or of lists of labels.

    Returns:
      Class indices, int32 (N,), or multi-hot labels, float32 (N, labels); class or
      label names; and (), because only numeric targets have offsets.
    """
    (label,) = wanted
    inner = getattr(dataset.features[label], "feature", None)
    if inner is not None:
        names = tuple(map(shown, getattr(inner, "names", None) or ()))
        if not names:
            raise UserError(
                f"{source}: the column {label} is not a list of ClassLabel; cast the "
                "column (cast_column)"
            )
        lists = dataset.select_columns([label])[:][label]
        numbers = range(len(names))
        if wrong := [i for some in lists for i in some or () if i not in numbers]:
            raise UserError(
                f"{source}: the column {label} contains {wrong[0]}: expected 0 to "
                f"{len(names) - 1}, as {label} has {len(names)} labels"
            )
        return columns.multi_hot(lists, numbers), names, ()
    names = getattr(dataset.features[label], "names", None)
    # Arrow converts null to NaN.
    values = np.asarray(dataset.select_columns([label]).with_format("arrow")[:][label])
    try:
        if values.dtype.kind not in "iuf":
            raise ValueError(f"the dtype is {values.dtype}")
        if names is None:
            return *classes.number(values), ()
    except ValueError as error:
        raise UserError(
            f"{source}: the column {label} does not contain one integer per row: "
            f"{error}"
        ) from None
    numbers = np.where(np.isnan(values), NO_LABEL, values).astype(np.int32)
    wrong = numbers[(numbers < NO_LABEL) | (numbers >= len(names))]
    if len(wrong):
        raise UserError(
            f"{source}: the column {label} contains {wrong[0]}: expected 0 to "
            f"{len(names) - 1}, as {label} has {len(names)} classes"
        )
    return numbers, tuple(nfc(shown(name)) for name in names), ()


def _columns(
    source: str, dataset: Any, wanted: list[str]
) -> tuple[np.ndarray, tuple[str, ...], tuple[float, ...]]:
    table = dataset.select_columns(wanted)[:]
    arrays = []
    for name in wanted:
        try:
            values = np.array(table[name], np.float64)
        except (TypeError, ValueError):
            values = np.zeros((0, 0))
        if values.ndim != 1:
            raise UserError(
                "data.targets: expected one number per row, or null for a missing "
                f"value, in the column {shown(name)} of {source}; leave the column out"
            )
        arrays.append(values)
    target, origin = columns.centred(np.stack(arrays, axis=1))
    return target, tuple(wanted), origin
