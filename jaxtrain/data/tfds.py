"""`tfds:NAME`: data sets that TFDS has prepared (downloaded and converted).

Only the files and their metadata are read; the code of a data set is not run. Neither
TensorFlow nor downloads are needed.
"""

import contextlib
import dataclasses
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from jaxtrain import extras
from jaxtrain.config import DataConfig
from jaxtrain.data.files import StoredFile
from jaxtrain.data.image_files import shown
from jaxtrain.data.shard_files import RecordFiles, allow_open_files
from jaxtrain.data.slices import SplitRanges, join, number_examples
from jaxtrain.data.stores import Opened
from jaxtrain.data.unlabelled import NO_LABEL
from jaxtrain.errors import UserError, nearest
from jaxtrain.json_files.parse import parse
from jaxtrain.plugin import hints_on
from jaxtrain.regular_file import read_text

# The global shuffle needs random access, which TFDS's default format, tfrecord, lacks.
FILE_FORMAT = "array_record"
# Metadata files of a data set, and the keys whose values are names of Python classes.
DESCRIPTIONS = ("features.json", "dataset_info.json")
CLASS_KEYS = ("pythonClassName", "python_class_name", "type")
CATALOG = "https://www.tensorflow.org/datasets/catalog/overview"

LABEL_CHUNK = 8192

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class TfdsStore:
    """All splits of a prepared data set. Picklable: files are opened on first use.

    Attributes:
      places: Index range of each split.
      records: Serialized examples of all splits.
      image_shape: Shape (H, W, C); H and W are None if sizes differ.
      facts: Metadata of the data set (`Store.facts`).
      unlabelled: Splits whose first and last examples have no label. In other splits,
        unlabelled examples are treated as unreadable.
    """

    places: SplitRanges
    records: RecordFiles
    image_shape: tuple[int | None, int | None, int]
    facts: Mapping[str, Any]
    unlabelled: tuple[str, ...] = ()
    # Labels are stored with the images, so reading labels is as slow as reading images.
    labels_in_records: ClassVar[bool] = True

    def strata(self, indices: np.ndarray) -> np.ndarray:
        starts = range(0, len(indices), LABEL_CHUNK)
        chunks = [indices[start : start + LABEL_CHUNK] for start in starts]
        return np.concatenate([_label(self._examples(chunk)) for chunk in chunks])

    def read(self, indices: np.ndarray) -> tuple[list[StoredFile], np.ndarray]:
        examples = self._examples(indices)
        data = [example["image"].bytes_list.value[0] for example in examples]
        labels = _label(examples)
        files: list[bytes | OSError] = data
        for i in np.flatnonzero(labels == NO_LABEL).tolist():
            if self.places.split_of(int(indices[i])) not in self.unlabelled:
                files[i] = OSError(None, "the label is missing (-1)")
        names = map(self.places.name, indices.tolist())
        return list(map(StoredFile, names, files)), labels

    def _examples(self, indices: np.ndarray) -> list[Any]:
        from tensorflow_datasets.proto import tf_example_pb2

        # Takes 2 us per record; TFDS's parser takes 15 us, even without image decoding.
        parse = tf_example_pb2.Example.FromString  # pyright: ignore
        try:
            records = self.records[indices]
        except RuntimeError as error:
            splits = {self.places.locate(i)[0] for i in indices.tolist()}
            raise UserError(
                f"{', '.join(sorted(splits))}: the files are incomplete or damaged "
                f"({error}); delete the files, and prepare the data set again"
            ) from error
        return [parse(record).features.feature for record in records]


def open_tfds(name: str, config: DataConfig) -> Opened:
    """Open a TFDS data set prepared as array_record; TensorFlow is not needed.

    Args:
      name: TFDS name: NAME, NAME/CONFIG, NAME:VERSION.
      config: Data section of the config, for `data_dir`.

    Raises:
      UserError: The name is unknown, or the data set is not prepared as array_record,
        or the data set lacks uint8 images with class labels.
    """
    import tensorflow_datasets as tfds

    builder = find(name, config.data_dir)
    if builder is None:
        raise UserError(
            f"tfds:{name} is not prepared in {data_folder(config.data_dir)}"
            + _how_to_prepare(name, config.data_dir)
        )
    features: dict[str, Any] = dict(builder.info.features.items())
    image, label = features.get("image"), features.get("label")
    is_image = isinstance(image, tfds.features.Image) and image.np_dtype == np.uint8
    if not (is_image and isinstance(label, tfds.features.ClassLabel)):
        raise UserError(
            f"tfds:{name} has the features {', '.join(sorted(features))}: expected "
            "`image`, an Image of uint8, and `label`, a ClassLabel"
        )
    infos, source = builder.info.splits, f"tfds:{name}"
    # TFDS would print a warning for a split without examples.
    files = [f for i in infos.values() if i.num_examples for f in i.file_instructions]
    if not files:
        raise UserError(f"{source} has no examples: prepare the data set again")
    allow_open_files(source, len(files))
    lengths = {split: info.shard_lengths for split, info in infos.items()}
    places, splits = number_examples(source, lengths)
    records = RecordFiles([f.filename for f in files], [f.take for f in files])
    facts = {"num_classes": label.num_classes, "class_names": tuple(label.names)}
    store = TfdsStore(places, records, features["image"].shape, facts)
    ends = {
        split: join(shards)[[0, -1]]
        for split, shards in splits.items()
        if len(join(shards))
    }
    bare = (s for s, i in ends.items() if (store.strata(i) == NO_LABEL).all())
    return dataclasses.replace(store, unlabelled=tuple(bare)), splits


def find(name: str, data_dir: PathLike | None) -> Any | None:
    """Return the TFDS builder of a prepared data set, or None if it is not prepared.

    Args:
      name: TFDS name of the data set.
      data_dir: Directory of data sets. Defaults to $TFDS_DATA_DIR, or else
        ~/tensorflow_datasets.

    Raises:
      UserError: The name is unknown, the metadata refer to code outside TFDS, or the
        data set is prepared in a format other than array_record.
    """
    from tensorflow_datasets.core import read_only_builder
    from tensorflow_datasets.core.utils import error_utils

    folder, path = data_folder(data_dir), None
    # TFDS raises ValueError for a malformed name, and calls `add_context`, which
    # fails outside `reraise_with_context`.
    with contextlib.suppress(ValueError), error_utils.reraise_with_context(ValueError):
        path = read_only_builder._find_builder_dir(name, data_dir=folder)
    if path is None:
        _check_known(name)
        return None
    for file in DESCRIPTIONS:
        _check_features(f"tfds:{name}", os.path.join(path, file))
    builder = read_only_builder.builder_from_directory(path)
    formats = sorted(f.value for f in builder.info.available_file_formats())
    if FILE_FORMAT not in formats:
        raise UserError(
            f"tfds:{name} is prepared in {builder.data_dir} as {', '.join(formats)}, "
            f"expected {FILE_FORMAT}: prepare the data set again in another directory, "
            f"and set data.data_dir to that directory{_how_to_prepare(name, 'DIR')}"
        )
    return builder


def _check_features(source: str, path: str) -> None:
    """Raise UserError if metadata name classes outside TFDS; TFDS would import them."""
    try:
        classes = list(_classes(parse(read_text(path))))
    except FileNotFoundError:
        return  # TFDS reports missing files that it requires.
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{source}: {path} cannot be read ({error}): prepare the data set again"
        ) from None
    for name in classes:
        if "." in name and not name.startswith("tensorflow_datasets."):
            raise UserError(
                f"{source}: {path} names the custom feature class {shown(name)}: use a "
                "data set with only feature classes of TFDS"
            )


def _classes(described: Any) -> Iterator[str]:
    """Yield the names of Python classes in metadata, including nested JSON strings."""
    if isinstance(described, str) and described.lstrip()[:1] in ("{", "[", '"'):
        with contextlib.suppress(ValueError):
            yield from _classes(json.loads(described))
    elif isinstance(described, list):
        for value in described:
            yield from _classes(value)
    elif isinstance(described, dict):
        for key, value in described.items():
            if key in CLASS_KEYS and isinstance(value, str):
                yield value
            yield from _classes(value)


def data_folder(data_dir: PathLike | None) -> str:
    """Return the directory of TFDS data sets; `data_dir` overrides TFDS's default."""
    folder = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return os.path.expanduser(folder)


def _check_known(name: str) -> None:
    import tensorflow_datasets as tfds

    base = name.partition("/")[0].partition(":")[0]
    # Looking up community data sets needs the network.
    known = tfds.list_builders(with_community_datasets=False)
    if base not in known:
        hint = nearest(base, known, num=3) or f"; see {CATALOG}"
        raise UserError(f"tfds:{name}: TFDS has no data set {base!r}{hint}")


def _how_to_prepare(name: str, data_dir: PathLike | None) -> str:
    option = () if data_dir is None else ("--data-dir", data_dir)
    words = shlex.join(map(str, (f"tfds:{name}", *option)))
    extra = extras.install("tfds-prepare")
    return hints_on("unprepared", before=". ", words=words, extra=extra)


def _label(examples: list[Any]) -> np.ndarray:
    values = [example["label"].int64_list.value[0] for example in examples]
    return np.array(values, np.int32)
