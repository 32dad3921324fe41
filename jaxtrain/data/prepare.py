"""TFDS data sets: find and read one that is prepared, and prepare one.

Finding and reading use the files and their own description, never a data set's code:
no TensorFlow is needed and nothing downloaded. Preparing needs both.
"""

import difflib
import functools
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from jaxtrain.data import images
from jaxtrain.errors import UserError

# Read at any place, as the global shuffle needs; TFDS's default, tfrecord, is not.
FILE_FORMAT = "array_record"
INSTALL = "pip install -e '.[tfds-prepare]'"

LABEL_CHUNK = 8192

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class TfdsStore:
    """A split of a prepared set. Picklable: the files are opened when first read."""

    # As messages call it.
    name: str
    # array_record's data source: __len__, and __getitems__(indices) -> list of bytes.
    records: Any
    image_shape: tuple[int | None, int | None, int]
    num_classes: int

    def __len__(self) -> int:
        return len(self.records)

    def labels(self) -> np.ndarray:
        return self._labels

    def read(self, indices: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        examples = self._examples(indices.tolist())
        decoded = []
        for index, example in zip(indices, examples, strict=True):
            try:
                data = example["image"].bytes_list.value[0]
                decoded.append(images.decode(data, self.image_shape[-1]))
            except (OSError, SyntaxError, ValueError) as error:
                raise UserError(
                    f"{self.name}: image {index} is damaged: {error}"
                ) from error
        return decoded, _label(examples)

    @functools.cached_property
    def _labels(self) -> np.ndarray:
        starts = range(0, len(self), LABEL_CHUNK)
        chunks = [range(i, min(i + LABEL_CHUNK, len(self))) for i in starts]
        return np.concatenate([_label(self._examples(chunk)) for chunk in chunks])

    def _examples(self, indices: Sequence[int]) -> list[Any]:
        from tensorflow_datasets.proto import tf_example_pb2

        # TFDS's own decoding takes 15 us a record without the image, this takes 2.
        parse = tf_example_pb2.Example.FromString  # pyright: ignore
        try:
            records = self.records.__getitems__(indices)
            # What a file cut to 64 KiB gives.
            if not all(records):
                raise RuntimeError("records are missing")
        except RuntimeError as error:  # The format has checksums.
            raise UserError(
                f"{self.name}: its files are incomplete or damaged; delete them and "
                f"prepare the set again ({error})"
            ) from error
        return [parse(record).features.feature for record in records]


def open_split(name: str, builder: Any, split: str) -> TfdsStore:
    """Open a split of a set that `open_prepared` found.

    Args:
      name: as messages call the set.
      builder: the set.
      split: in TFDS syntax, such as train[:90%].

    Raises:
      UserError: there is no such split, or it holds no labelled uint8 images.
    """
    import tensorflow_datasets as tfds
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    splits = builder.info.splits
    features: dict[str, Any] = dict(builder.info.features.items())
    image, label = features.get("image"), features.get("label")
    is_image = isinstance(image, tfds.features.Image) and image.np_dtype == np.uint8
    if not (is_image and isinstance(label, tfds.features.ClassLabel)):
        raise UserError(
            f"tfds:{name} has the features {', '.join(sorted(features))}: needed are "
            "`image`, of 8 bits, and `label`, a class"
        )
    where = f"split {split!r} of tfds:{name}"
    try:
        files = splits[split].file_instructions
    except (ValueError, KeyError) as error:
        reason = str(error).split(". ")[0].rstrip(".")
        raise UserError(
            f"{where}: {reason}; expected {', '.join(splits)}, or slices of them such "
            "as train[:90%]"
        ) from None
    if not files:
        raise UserError(f"{where} is empty")
    shape, num_classes = features["image"].shape, features["label"].num_classes
    store = TfdsStore(where, ArrayRecordDataSource(files), shape, num_classes)
    _, labels = store.read(np.array([0, len(store) - 1]))
    if labels.min() < 0:
        raise UserError(f"{where} has no labels: choose another split")
    return store


def open_prepared(name: str, data_dir: PathLike | None) -> Any:
    """Return TFDS's builder of a prepared set.

    Args:
      name: as TFDS writes it: NAME, NAME/CONFIG, NAME:VERSION.
      data_dir: where data sets lie; None: $TFDS_DATA_DIR, else ~/tensorflow_datasets.

    Raises:
      UserError: the name is not known, or the set is not prepared as array_record.
    """
    builder = _find(name, data_dir)
    if builder is None:
        _check_known(name)
        raise UserError(
            f"tfds:{name} is not prepared in {_folder(data_dir)}. "
            + _how_to_prepare(name, data_dir)
        )
    _check_format(name, builder)
    return builder


def prepare(
    source: str, *, data_dir: PathLike | None = None, manual_dir: PathLike | None = None
) -> Path:
    """Download and prepare `tfds:NAME` as array_record files; return their folder.

    Args:
      source: such as tfds:mnist. A set that is prepared already is left alone.
      data_dir: where data sets lie; None: $TFDS_DATA_DIR, else ~/tensorflow_datasets.
      manual_dir: holds files downloaded by hand, under the names they have online.

    Raises:
      UserError: the source, a folder or TensorFlow is missing, or preparing failed.
    """
    kind, _, name = source.partition(":")
    if kind != "tfds" or not name:
        raise UserError(f"{source!r}: give a TFDS data set to prepare, as tfds:mnist")
    if manual_dir is not None and not Path(manual_dir).expanduser().is_dir():
        raise UserError(f"--manual-dir {manual_dir}: there is no such folder")
    builder = _find(name, data_dir)
    if builder is None:
        _check_known(name)
        if importlib.util.find_spec("tensorflow") is None:
            raise UserError(f"preparing {source} needs TensorFlow: {INSTALL}")
        try:
            builder = _download_and_prepare(name, data_dir, manual_dir)
        except Exception as error:  # Of a set's own code, the network or the disk.
            raise UserError(
                f"preparing {source} failed: {type(error).__name__}: {error}\n"
                "Without a network, download its files elsewhere and give their "
                "folder with --manual-dir"
            ) from error
    _check_format(name, builder)
    return Path(builder.data_dir)


def trust_manual_files(builder: Any, manual_dir: PathLike) -> list[str]:
    """Let the files of a folder stand for the downloads of the same names.

    TFDS compares a file with a recorded checksum, which another packer's gzip of the
    same content does not have. Its own way round, `register_checksums`, overwrites the
    record in the installed package, so that from then on the genuine downloads fail;
    here the record is changed in memory only.

    Returns:
      The names of the files that differ from the record.
    """
    from tensorflow_datasets.core.download import checksums

    different = []
    for url, recorded in (builder.url_infos or {}).items():
        path = Path(manual_dir).expanduser() / (recorded.filename or "")
        if path.is_file():
            builder.url_infos[url] = actual = checksums.compute_url_info(path)
            if actual != recorded:
                different.append(path.name)
    return different


def _download_and_prepare(
    name: str, data_dir: PathLike | None, manual_dir: PathLike | None
) -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    logging.set_verbosity(logging.ERROR)
    import tensorflow_datasets as tfds

    builder = tfds.builder(name, data_dir=_folder(data_dir), file_format=FILE_FORMAT)
    if manual_dir is not None:
        manual_dir = Path(manual_dir).expanduser()
        if different := trust_manual_files(builder, manual_dir):
            print(
                f"{manual_dir}: used as they are, though not the files that TFDS knows "
                f"by checksum: {', '.join(different)}"
            )
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(
            # None: TFDS looks in data_dir/downloads/manual.
            manual_dir=manual_dir,
            # Google's bucket holds prepared sets as tfrecord.
            try_download_gcs=False,
        )
    )
    return builder


def _folder(data_dir: PathLike | None) -> str:
    folder = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return os.path.expanduser(folder)


def _find(name: str, data_dir: PathLike | None) -> Any | None:
    from tensorflow_datasets.core import read_only_builder

    try:
        return read_only_builder.builder_from_files(name, data_dir=_folder(data_dir))
    except ValueError:  # The name cannot be parsed, or there are no such files.
        return None


def _check_known(name: str) -> None:
    import tensorflow_datasets as tfds

    base = name.partition("/")[0].partition(":")[0]
    # Community sets would be looked up over the network.
    known = tfds.list_builders(with_community_datasets=False)
    if base not in known:
        near = difflib.get_close_matches(base, known, n=3)
        hint = (
            f"perhaps you meant {' or '.join(near)}"
            if near
            else "see https://www.tensorflow.org/datasets/catalog/overview"
        )
        raise UserError(f"tfds:{name}: TFDS has no data set {base!r}; {hint}")


def _check_format(name: str, builder: Any) -> None:
    formats = sorted(f.value for f in builder.info.available_file_formats())
    if FILE_FORMAT not in formats:
        raise UserError(
            f"tfds:{name} is prepared in {builder.data_dir} as {', '.join(formats)}, "
            f"but is read as {FILE_FORMAT}: prepare it in another folder too, and set "
            f"data.data_dir to that. {_how_to_prepare(name, 'DIR')}"
        )


def _how_to_prepare(name: str, data_dir: PathLike | None) -> str:
    option = f" --data-dir {data_dir}" if data_dir is not None else ""
    return (
        f"Prepare it with\n  python main.py data --prepare tfds:{name}{option}\n"
        f"which needs the extra: {INSTALL}"
    )


def _label(examples: list[Any]) -> np.ndarray:
    values = [example["label"].int64_list.value[0] for example in examples]
    return np.array(values, np.int32)
